"""The project's own stores: their facts agree with the raw bytes, and brokers serve them.

The facts were written by Apache RocketMQ's classes. What reads the logs here is plain Python, so that facts
and bytes are two witnesses, and neither is this project's code.
"""

import gzip
import json
import re
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker import harness
from tests.support.soak import cases

NAMES = sorted(path.name.removesuffix(".facts.jsonl.gz") for path in harness.STORES.glob("*.facts.jsonl.gz"))
WORKLOADS = [name for name in NAMES if name.startswith("workload-")]
MESSAGE_MAGICS = (0xDAA320A7, 0xDAA320AB)
UNIT_BYTES = 20


def facts_of(name: str, kind: str) -> list[dict[str, Any]]:
    with gzip.open(harness.STORES / f"{name}.facts.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [fact for fact in map(json.loads, lines) if fact["t"] == kind]


def settings_of(name: str) -> Path:
    return harness.STORES / f"{name}.conf"


def version_of(name: str) -> str:
    return harness.VERSIONS[0] if name.endswith("-533") else harness.VERSIONS[1]


def raw_records(store: Path) -> Iterator[dict[str, Any]]:
    """Read the head of every record of a log, until bytes come that are none."""
    for segment in sorted((store / "commitlog").iterdir()):
        data, at = segment.read_bytes(), 0
        while struct.unpack_from(">I", data, at + 4)[0] in MESSAGE_MAGICS:
            size, magic, body_crc, queue_id = struct.unpack_from(">iIii", data, at)
            queue_offset, physical_offset, system_flag = struct.unpack_from(">qqi", data, at + 20)
            born_host = 20 if system_flag & 0x10 else 8
            store_host = 20 if system_flag & 0x20 else 8
            store_time = struct.unpack_from(">q", data, at + 48 + born_host)[0]
            body_at = at + 48 + born_host + 8 + store_host + 12
            body_length = struct.unpack_from(">i", data, body_at)[0]
            body = data[body_at + 4 : body_at + 4 + body_length]
            if zlib.crc32(body) & 0x7FFFFFFF != body_crc:
                return
            topic_at = body_at + 4 + body_length
            width = ">B" if magic == MESSAGE_MAGICS[0] else ">H"
            topic_length = struct.unpack_from(width, data, topic_at)[0]
            topic_at += struct.calcsize(width)
            yield {
                "offset": int(segment.name) + at,
                "size": size,
                "topic": data[topic_at : topic_at + topic_length].decode(),
                "queueId": queue_id,
                "queueOffset": queue_offset,
                "physicalOffsetField": physical_offset,
                "sysFlag": system_flag,
                "storeTimestamp": store_time,
                "bodyCRC": body_crc,
                "bodyLenRaw": body_length,
            }
            at += size


def index_files_by_message(store: Path, entries: int, slots: int) -> dict[int, set[str]]:
    """Tell for each message that has keys which index files have an entry for it."""
    files: dict[int, set[str]] = {}
    for file in (store / "index").iterdir():
        data = file.read_bytes()
        for number in range(1, min(struct.unpack_from(">i", data, 36)[0], entries)):
            offset = struct.unpack_from(">iqii", data, 40 + 4 * slots + 20 * number)[1]
            files.setdefault(offset, set()).add(file.name)
    return files


def half_transactions(messages: list[dict[str, Any]]) -> set[str]:
    """Return the unique keys of transactions that no one decides, and that the broker has not given up on."""
    undecided = {"fate": "UNKNOW", "fateWhenAsked": "UNKNOW"}.items()
    open_ones = {m["uniqKey"] for m in messages if undecided <= m["properties"].items()}
    return open_ones - {m["uniqKey"] for m in messages if m["topic"] == "TRANS_CHECK_MAX_TIME_TOPIC"}


def queue_file(store: Path, topic: str, queue: int = 0) -> Path:
    return min((store / "consumequeue" / topic / str(queue)).iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_facts_agree_with_the_raw_log(name: str, tmp_path: Path) -> None:
    store = harness.unpack_store(name, tmp_path)
    records = list(raw_records(store))
    facts = facts_of(name, "msg")
    assert records
    assert [{field: fact[field] for field in records[0]} for fact in facts] == records


@pytest.mark.parametrize("name", NAMES)
def test_file_times_come_back_to_the_nanosecond(name: str, tmp_path: Path) -> None:
    store = harness.unpack_store(name, tmp_path)
    times = [path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()]
    assert any(time % 1000 for time in times)


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload_has_its_kinds(name: str, tmp_path: Path) -> None:
    messages = facts_of(name, "msg")
    topics = {message["topic"] for message in messages}
    wanted = {"%DLQ%GID_failing", "%RETRY%GID_failing", "BatchIngest", "DelayDemo", "DirectTopic"}
    wanted |= {"MovedQueue", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC"}
    wanted |= {"TransactionDemo"}
    if name == "workload-533":
        wanted |= {"TimerDemo", "rmq_sys_wheel_timer"}
    assert wanted <= topics
    flags = {message["sysFlag"] for message in messages}
    assert {0x101, 0x201, 0x301} <= flags
    assert {flag & 0x30 for flag in flags} == {0, 0x10, 0x20, 0x30}
    assert {message["sysFlag"] & 0xC for message in messages} == {0, 0x4, 0x8, 0xC}
    assert min(message["bodyLenRaw"] for message in messages) == 0
    assert min(m["queueOffset"] for m in messages if m["topic"] == "MovedQueue") == 450
    if name == "workload-533":
        assert any(message["magic"] == MESSAGE_MAGICS[1] - 2**32 for message in messages)
    assert half_transactions(messages)
    store = harness.unpack_store(name, tmp_path)
    assert len(list((store / "consumequeue" / "SequenceDemo" / "0").iterdir())) > 1
    conf = dict(line.split("=") for line in settings_of(name).read_text().splitlines())
    files = index_files_by_message(store, int(conf["maxIndexNum"]), int(conf["maxHashSlotNum"]))
    assert any(len(names) > 1 for names in files.values())


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("stale-")])
def test_stale_has_whole_records_behind_its_end(name: str, tmp_path: Path) -> None:
    store = harness.unpack_store(name, tmp_path)
    end = facts_of(name, "store")[0]["maxPhyOffset"]
    segment = max((store / "commitlog").iterdir())
    first, data = int(segment.name), segment.read_bytes()
    behind = 0
    for at in range(end - first, len(data) - 36):
        magic = struct.unpack_from(">I", data, at + 4)[0]
        behind += magic in MESSAGE_MAGICS and struct.unpack_from(">q", data, at + 28)[0] == first + at
    assert behind > 10


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("killed-")])
def test_killed_has_messages_that_no_queue_knows(name: str, tmp_path: Path) -> None:
    store = harness.unpack_store(name, tmp_path)
    assert (store / "abort").exists()
    known = 0
    for file in (store / "consumequeue").glob("*/*/*"):
        known += sum(size > 0 for _, size, _ in struct.iter_unpack(">qiq", file.read_bytes()))
    assert 0 < known < len(facts_of(name, "msg"))


@pytest.mark.broker
@pytest.mark.parametrize("name", cases(WORKLOADS, [name for name in NAMES if not name.startswith("lagging-")]))
def test_broker_serves_a_store_as_it_is(name: str, tmp_path: Path) -> None:
    store = harness.unpack_store(name, tmp_path)
    facts = harness.STORES / f"{name}.facts.jsonl.gz"
    # What a killed broker had not yet indexed is not all indexed again.
    index = name.startswith("workload-")
    report = harness.check_served(store, settings_of(name), index, facts, version_of(name))
    assert report["consumed"] > 0
    assert report["messages"] == len(facts_of(name, "msg"))
    assert report["sent"] > 0


@pytest.mark.broker
@pytest.mark.parametrize("name", WORKLOADS)
def test_changed_units_and_a_missing_queue_file_fail_the_check(name: str, tmp_path: Path) -> None:
    """A change of one bit in the offset, in the size and in the tags code, each in a unit of its own."""
    store = harness.unpack_store(name, tmp_path)
    queue_file(store, "OrderEvents", 2).unlink()
    changed = {3: 7, 5: 11, 8: 19}
    with queue_file(store, "OrderEvents", 1).open("r+b") as file:
        units = bytearray(file.read(10 * UNIT_BYTES))
        for unit, byte in changed.items():
            units[unit * UNIT_BYTES + byte] ^= 1
        file.seek(0)
        file.write(units)
    with pytest.raises(harness.ServingError) as error:
        harness.check_served(store, settings_of(name), version=version_of(name))
    problems = error.value.report["problems"]
    units_found = [found[1] for text in problems if (found := re.search(r"OrderEvents/1 has .* as unit (\d+) ", text))]
    assert units_found == [str(unit) for unit in changed]
    assert [text for text in problems if text.startswith("OrderEvents/2 goes from 0 to 0")]


@pytest.mark.broker
def test_clean_boot_damages_a_lagging_queue(tmp_path: Path) -> None:
    """From 5.3.2 on a broker loses a message of a queue that lags without an abort file."""
    store = harness.unpack_store("lagging-533", tmp_path)
    with pytest.raises(harness.ServingError, match="LastQueue/0"):
        harness.check_served(store, settings_of("lagging-533"))


@pytest.mark.broker
@pytest.mark.parametrize("name", cases(["workload-533"], WORKLOADS))
def test_broker_serves_what_the_java_store_rebuilt(name: str, tmp_path: Path) -> None:
    store = harness.unpack_store(name, tmp_path)
    for derived in ("consumequeue", "index"):
        shutil.rmtree(store / derived)
    (store / "checkpoint").unlink()
    report = harness.java_rebuild(store, settings_of(name), version_of(name))
    assert report["messages"] == len(facts_of(name, "msg"))
    harness.check_served(store, settings_of(name), index=True, version=version_of(name))
