"""Rows of the messages in inner batches: those that consumers get, whatever the conditions are."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from spark_mq.errors import OptionError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.store.message_store import MessageStore
from spark_mq.testing import LogWriter
from tests.support.in_process import message_batches, read_rows
from tests.support.stores import OWN_STORES, RealStore

STORE, TOPIC = RealStore("fBatchcq533", OWN_STORES / "forms"), "b1bcq"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return STORE.unpack(tmp_path_factory.mktemp("batches"))


def unwrapped(store: Path, **options: str) -> list[Row]:
    rows = read_rows(path=str(store), unwrapBatches="true", **options)
    return sorted(rows, key=lambda row: (row["topic"], row["queue_id"], row["queue_offset"]))


def test_the_rows_are_what_consumers_get(store: Path) -> None:
    """`MessageStore` decodes the batches with the plain twin; the Java store counted their messages."""
    rows = unwrapped(store, topic=TOPIC)
    with MessageStore(str(store)) as opened:
        expected = [row for queue in (0, 1) for row in opened.get_message(TOPIC, queue, 0, 1_000).to_pylist()]
    names = [name for name in expected[0] if name in rows[0] and name != "body_crc"]
    assert {"properties", "body", "unique_key", "store_size", "sys_flag", "flag"} <= set(names)
    assert [{name: row[name] for name in names} for row in rows] == [
        {name: row[name] for name in names} for row in expected
    ]
    facts = [fact for fact in STORE.facts("msg") if fact["topic"] == TOPIC]
    assert len(rows) == sum(int(fact["properties"].get("INNER_NUM", 1)) for fact in facts) == 141


def test_a_column_alone_has_the_values_that_it_has_among_others(store: Path) -> None:
    """Bodies and their CRCs are read only for the columns that need them."""

    def values(*names: str) -> list[Row]:
        batches = message_batches(names, path=str(store), topic=TOPIC, unwrapBatches="true")
        return [row for batch in batches for row in batch.to_pylist()]

    whole = values(*ALL_MESSAGE_FIELDS)
    assert len({row["body"] for row in whole}) > 1
    for row in whole:
        assert row["body_crc"] == zlib.crc32(row["stored_body"]) & 0x7FFFFFFF
    for name in ALL_MESSAGE_FIELDS:
        assert values(name) == [{name: row[name]} for row in whole], name


def test_other_records_stay_as_they_are(store: Path) -> None:
    wrapped = read_rows(path=str(store))
    rows = read_rows(path=str(store), unwrapBatches="true")
    assert [row for row in rows if row["topic"] != TOPIC] == [row for row in wrapped if row["topic"] != TOPIC]
    sizes = {row["commit_log_offset"]: row["store_size"] for row in wrapped}
    assert all(sizes[row["commit_log_offset"]] == row["store_size"] for row in rows)


def test_conditions_are_about_the_messages(store: Path) -> None:
    rows = unwrapped(store, topic=TOPIC)
    batches = [row["commit_log_offset"] for row in read_rows(path=str(store), topic=TOPIC) if row["sys_flag"] & 0x80]
    inner = next(row for row in rows if row["commit_log_offset"] == batches[3] and row["queue_id"] == 1)
    place = {
        "queueId": "1",
        "startQueueOffset": str(inner["queue_offset"]),
        "endQueueOffset": str(inner["queue_offset"]),
    }
    for conditions in (place, {"uniqueKey": inner["unique_key"]}, {"offsetMessageId": inner["offset_message_id"]}):
        matching = [row for row in rows if row["unique_key"] == inner["unique_key"]]
        if "offsetMessageId" in conditions:
            matching = [row for row in rows if row["commit_log_offset"] == inner["commit_log_offset"]]
        assert unwrapped(store, topic=TOPIC, **conditions) == matching
    tagged = [row for row in rows if row["tags"] == inner["tags"]]
    assert unwrapped(store, topic=TOPIC, tag=inner["tags"]) == tagged


def frame(body: bytes, properties: bytes) -> bytes:
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 9, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


@pytest.mark.parametrize("compressed", [False, True])
def test_a_body_that_is_not_a_batch_stays_one_row(tmp_path: Path, compressed: bool) -> None:
    whole = frame(b"one", b"KEYS\1a\2") + frame(b"", b"")
    log, flags = LogWriter(1 << 16), 0xC0 | compressed
    for body in (whole, whole[:-1], whole[:25], b"", frame(b"x", b"")[:4] + b"\x7f\xff\xff\xff" * 4):
        log.append(1_000, zlib.compress(body) if compressed and body else body, sys_flag=flags)
    rows = unwrapped(Path(log.write(tmp_path / "store").path), mode="PERMISSIVE")
    found = [(row["queue_offset"], row["body"], row["keys"], row["flag"]) for row in rows if not row["sys_flag"] & 0x80]
    assert found[:2] == [(0, b"one", ["a"], 9), (1, b"", None, 9)]
    left = [row["queue_offset"] for row in rows if row["sys_flag"] & 0x80]
    assert left == [1, 2, 4]


def test_a_wrong_crc_keeps_the_batch(store: Path, tmp_path: Path) -> None:
    log = LogWriter(1 << 16)
    log.append(1_000, frame(b"one", b""), sys_flag=0xC0)
    log.append(1_000, b"the last record")  # with a wrong CRC, the log would end before it
    written = log.write(tmp_path / "store").path
    assert unwrapped(Path(written))[0]["sys_flag"] == 0
    segment = Path(written) / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[data.index(b"one")] ^= 1
    segment.write_bytes(data)
    row, _ = unwrapped(Path(written), checkCrc="true")
    assert row["sys_flag"] == 0xC0
    assert row["_corrupt_record"].startswith("BODY_CRC")


@pytest.mark.parametrize("other", [{"splitBy": "queue"}, {"tieredStorage": "/x"}])
def test_options_that_do_not_work_together_are_an_error(store: Path, other: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="unwrapBatches does not work with option"):
        read_rows(path=str(store), topic=TOPIC, unwrapBatches="true", **other)
