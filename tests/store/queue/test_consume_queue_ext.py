"""Extension units of a real broker: what each says, what reads them, and damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_mq import MessageStore
from spark_mq.format.consume_queue_ext import ExtUnit, is_address
from spark_mq.format.java_text import hash_code
from spark_mq.lifecycle.delayed import delayed_rows
from spark_mq.lifecycle.life.life import life
from spark_mq.store.config.consumer_filters import load_consumer_filters
from spark_mq.store.file_tables import plan_queue_splits, unit_batches
from spark_mq.store.queue.folders import queue_folders
from spark_mq.tables.store_files import CONSUME_QUEUE
from tests.support.filter_cases import message_bit_map
from tests.support.filtered_store import FILTERED, TOPIC, records_of
from tests.support.stores import Unpack

TWO_HOURS = 7_200_000


def rows_of(store: MessageStore, columns: list[str] | None = None) -> list[dict[str, Any]]:
    names = columns or CONSUME_QUEUE.schema.names
    folders = list(queue_folders(store.location / "consumequeue"))
    batches = [
        batch
        for shares in plan_queue_splits(folders)
        for share in shares
        for batch in unit_batches(share, store.records, store.get_max_phy_offset(), names)
    ]
    return list(pa.Table.from_batches(batches).to_pylist())


@pytest.mark.parametrize("tree", ["", "rebuilt"])
def test_units_are_those_of_the_messages_and_filters(tree: str, tmp_path: Path) -> None:
    """In the store itself, filters count from their birth on; a broker that makes the queues again uses all of them."""
    path = FILTERED.unpack(tmp_path)
    if tree:
        for name in ("consumequeue", "consumequeue_ext"):
            shutil.rmtree(path / name)
        shutil.copytree(FILTERED.unpack(tmp_path, tree), path, dirs_exist_ok=True)
    seen, with_bits = 0, 0
    with MessageStore(str(path)) as store:
        filters = load_consumer_filters(store.location)
        records = records_of(store)
        for (topic, queue_id), queue in store.queues.items():
            mine = [one for one in filters if one.topic == topic]
            for queue_offset in range(queue.written_end):
                record = records[topic, queue_id, queue_offset]
                unit = queue.ext.unit(queue.unit(queue_offset)[2])
                known = mine if tree else [one for one in mine if one.born_time < record.store_timestamp]
                bits = message_bit_map(known, record.text_properties, 112)
                code = (
                    hash_code(record.text_properties.get("TAGS", ""))
                    if topic == TOPIC
                    else record.store_timestamp + TWO_HOURS
                )
                assert unit == ExtUnit(code, record.store_timestamp, bits)
                seen, with_bits = seen + 1, with_bits + any(bits)
    assert (seen, with_bits > 50) == (243, True)


def test_the_table_has_what_the_extension_units_say(unpacked: Unpack) -> None:
    with MessageStore(str(unpacked(FILTERED))) as store:
        rows = rows_of(store)
        assert len(rows) == 243
        for row in rows:
            queue = store.queues[row["topic"], row["queue_id"]]
            address = queue.unit(row["queue_offset"])[2]
            unit = queue.ext.unit(address)
            assert unit is not None
            assert row["ext_address"] == address
            assert row["tags_code"] == unit.tags_code == queue.tags_code(row["queue_offset"])
            assert row["ext_store_timestamp"].timestamp() * 1000 == pytest.approx(unit.store_timestamp, abs=0.5)
            assert row["filter_bit_map"] == (unit.bit_map or None)
        assert rows_of(store, ["tags_code"]) == [{"tags_code": row["tags_code"]} for row in rows]
        assert rows_of(store, ["queue_offset"]) == [{"queue_offset": row["queue_offset"]} for row in rows]


def test_a_delayed_message_is_due_at_the_time_in_its_extension_unit(unpacked: Unpack) -> None:
    with MessageStore(str(unpacked(FILTERED))) as store:
        (record,) = [one for (topic, _, _), one in records_of(store).items() if topic == "SCHEDULE_TOPIC_XXXX"]
        due = record.store_timestamp + TWO_HOURS
        (row,) = delayed_rows(store, at=due - 1).to_pylist()
        assert (row["state"], round(row["due_timestamp"].timestamp() * 1000)) == ("WAITING", due)
        (told,) = life(store, row["unique_key"], at=due - 1).lives
        assert told.events[0].due_timestamp == due


def test_what_the_extension_has_not_is_not_known(tmp_path: Path) -> None:
    path = FILTERED.unpack(tmp_path)
    folder = path / "consumequeue_ext" / TOPIC / "0"
    first, *others = sorted(folder.iterdir())
    content = bytearray(first.read_bytes())
    content[20:22] = b"\x00\x00"  # the second unit: no size
    first.write_bytes(content)
    for file in others:
        file.unlink()
    shutil.rmtree(path / "consumequeue_ext" / "SCHEDULE_TOPIC_XXXX")
    with MessageStore(str(path)) as store:
        queue = store.queues[TOPIC, 0]
        units = queue.units(0, queue.written_end)
        codes, is_known = queue.tags_codes(units)
        in_file = (units["tags_code"].astype(np.int64) & ((1 << 63) - 1)) < len(content)
        assert is_known.tolist() == [index != 1 and bool(there) for index, there in enumerate(in_file)]
        assert 0 < is_known.sum() < is_known.size
        assert [queue.tags_code(index) for index in range(queue.written_end)] == [
            int(code) if known else None for code, known in zip(codes, is_known, strict=True)
        ]
        rows = [row for row in rows_of(store) if (row["topic"], row["queue_id"]) == (TOPIC, 0)]
        assert [row["tags_code"] is not None for row in rows] == is_known.tolist()
        assert all(is_address(row["ext_address"]) for row in rows)
        # Without the unit, the delay level says when the message is due.
        (row,) = delayed_rows(store).to_pylist()
        due = row["due_timestamp"] - row["store_timestamp"]
        assert due.total_seconds() * 1000 == TWO_HOURS
