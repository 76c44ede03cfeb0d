"""Units with addresses in `consumequeue_ext`: a real store is sound, damage is found, and a repair removes it."""

from __future__ import annotations

import random
import shutil
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from spark_mq import MessageStore
from spark_mq.format.consume_queue import UNIT_DTYPE
from spark_mq.format.consume_queue_ext import HEADER_SIZE, is_address, offset_of
from spark_mq.format.record import Record
from spark_mq.store.config.consumer_filters import load_consumer_filters
from tests.support.filter_cases import is_true_for
from tests.support.filtered_store import FILTERED, TOPIC
from tests.support.repaired import repair_here
from tests.support.soak import SOAKS
from tests.support.stores import Unpack, tree_of
from tests.support.verified import check, grave


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(FILTERED), tmp_path / "store"))


def codes(path: Path) -> Counter[str]:
    return Counter(finding.code for finding in grave(check(path, FILTERED.broker_conf)[1]))


def test_a_real_store_is_sound(store: Path) -> None:
    _, findings = check(store, FILTERED.broker_conf)
    assert findings == []


def test_an_extension_that_lost_its_end(store: Path) -> None:
    lost = sorted((store / "consumequeue_ext" / TOPIC / "0").iterdir())[-1]
    first = -(1 << 63) + int(lost.name)
    lost.unlink()
    with MessageStore(str(store)) as opened:
        queue = opened.queues[TOPIC, 0]
        count = sum(queue.unit(offset)[2] >= first for offset in range(queue.written_end))
    assert codes(store) == {"QUEUE_EXT_MISSING": count}
    assert count > 0


def test_another_tags_code_in_an_extension_unit(store: Path) -> None:
    file = store / "consumequeue_ext" / TOPIC / "1" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    struct.pack_into(">q", content, 2, 12345)
    file.write_bytes(content)
    _, findings = check(store, FILTERED.broker_conf)
    (found,) = grave(findings)
    assert (found.code, found.topic, found.queue_id, found.position) == ("QUEUE_UNIT_WRONG", TOPIC, 1, 0)
    assert "tags code 12345" in (found.found or "")


def test_another_due_time_in_an_extension_unit(store: Path) -> None:
    (file,) = (store / "consumequeue_ext" / "SCHEDULE_TOPIC_XXXX").rglob("0*")
    content = bytearray(file.read_bytes())
    content[9] ^= 1
    file.write_bytes(content)
    assert codes(store) == {"QUEUE_DUE_TIME": 1}


def test_another_store_time_in_an_extension_unit(store: Path) -> None:
    file = store / "consumequeue_ext" / TOPIC / "1" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    (time,) = struct.unpack_from(">q", content, 10)
    struct.pack_into(">q", content, 10, time - 1)
    file.write_bytes(content)
    ((code, queue_id, position, expected, found),) = (
        (one.code, one.queue_id, one.position, one.expected, one.found) for one in check(store, FILTERED.broker_conf)[1]
    )
    assert (code, queue_id, position) == ("QUEUE_EXT_TIME", 1, 0)
    assert (expected, found) == (f"store time {time}", f"store time {time - 1}")


def extension_units(store: Path) -> list[tuple[Path, int, int]]:
    """File, position and size of each unit."""
    units = []
    for file in sorted((store / "consumequeue_ext").glob("*/*/*")):
        content, at = file.read_bytes(), 0
        while (size := int.from_bytes(content[at : at + 2], "big", signed=True)) > 0:
            units.append((file, at, size))
            at += size
    return units


def test_every_changed_bit_of_a_unit_is_found_unless_it_only_adds_a_group(store: Path) -> None:
    """A bit that is set too much lets a message through that the filter itself then stops. Heads are hit most often."""
    units, counts, wrong = extension_units(store), Counter[str](), []
    for seed in range(500 if SOAKS else 12):
        chance = random.Random(seed)
        file, start, size = chance.choice(units)
        before = file.read_bytes()
        at = start + chance.randrange(HEADER_SIZE if chance.random() < 0.7 else size)
        content, bit = bytearray(before), 1 << chance.randrange(8)
        content[at] ^= bit
        file.write_bytes(content)
        found = {one.code for one in check(store, FILTERED.broker_conf)[1]}
        adds = at >= start + HEADER_SIZE and content[at] & bit
        counts["found" if found else "adds a bit" if adds else "not found"] += 1
        if not found and not adds:
            wrong.append((seed, str(file), at - start, bit))
        file.write_bytes(before)
    print(dict(counts))
    assert not wrong
    assert counts["found"] > counts["adds a bit"]


def test_bits_of_a_group_that_an_extension_unit_lacks(store: Path) -> None:
    """All bits of a unit are cleared: those of the groups whose filter is TRUE are missing, and no others."""
    queue_id = 0
    with MessageStore(str(store)) as opened:
        filters = [one for one in load_consumer_filters(opened.location) if one.topic == TOPIC]
        queue = opened.queues[TOPIC, queue_id]
        units = [queue.unit(number) for number in range(queue.written_end)]
        records = [opened.find_record(offset) for offset, _, _ in units]
    matching = {
        number: [
            one.consumer_group
            for one in filters
            if one.born_time < record.store_timestamp and is_true_for(one, record.text_properties)
        ]
        for number, record in enumerate(records)
        if isinstance(record, Record)
    }
    number = max(matching, key=lambda one: len(matching[one]))
    assert matching[number]
    place = offset_of(units[number][2])
    file = max(one for one in (store / "consumequeue_ext" / TOPIC / str(queue_id)).iterdir() if int(one.name) <= place)
    content = bytearray(file.read_bytes())
    start = place - int(file.name)
    (size,) = struct.unpack_from(">h", content, start + 18)
    content[start + 20 : start + 20 + size] = bytes(size)
    file.write_bytes(content)
    _, findings = check(store, FILTERED.broker_conf)
    assert {(one.code, one.severity, one.commit_log_offset) for one in findings} == {
        ("QUEUE_EXT_BITS", "note", units[number][0])
    }
    said = [one.expected or "" for one in findings]
    assert sorted(text.split(" of group ")[1].split(",")[0] for text in said) == sorted(matching[number])


def test_a_repair_writes_tags_codes_where_the_extension_is_lost(store: Path) -> None:
    folder = store / "consumequeue_ext" / TOPIC / "0"
    last = sorted(folder.iterdir())[-1]
    lost = -(1 << 63) + int(last.name)
    last.unlink()
    before = tree_of(store / "consumequeue")
    report = repair_here(store, FILTERED.broker_conf, apply=True)
    assert report.is_applied
    assert codes(store) == {}
    after = tree_of(store / "consumequeue")
    changed = {name for name in after if before[name] != after[name]}
    assert all(name.startswith(f"{TOPIC}/0/") for name in changed)
    with MessageStore(str(store)) as opened:
        found = opened.queues[TOPIC, 0].units(0, opened.queues[TOPIC, 0].written_end)["tags_code"].tolist()
    old = np.frombuffer(b"".join(before[f"{TOPIC}/0/{2000 * n:020d}"] for n in range(2)), UNIT_DTYPE)[: len(found)]
    for code, address in zip(found, old["tags_code"].tolist(), strict=True):
        assert code == address if address < lost else not is_address(code)
