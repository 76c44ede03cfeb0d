"""Messages of a topic, newest first or as they come, and of a unique key: those of the log, however they are found."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.errors import LogCutError
from spark_mq.format.record import Record
from spark_mq.io.location import Location
from spark_mq.store import message_selection
from spark_mq.store.log import scan as backward_scan
from spark_mq.store.log.scan import InQueue
from spark_mq.store.message_selection import FollowedLog, find_unique_key, known_topics, select_messages
from spark_mq.testing import LogWriter
from tests.support.stores import STORES, WORKLOAD, RealStore, Unpack


def found(store: MessageStore, topic: str, queue_id: int | None, count: int | None = None) -> list[int]:
    parts = select_messages(store, topic, queue_id, newest_first=True)
    records = (part for part in parts if isinstance(part, Record))
    return [record.commit_log_offset for record, _ in zip(records, range(count or 10**6), strict=False)]


def expected(real: RealStore, topic: str, queue_id: int | None) -> list[int]:
    return sorted(
        (
            fact["offset"]
            for fact in real.facts("msg")
            if fact["topic"] == topic and queue_id in (None, fact["queueId"]) and fact["sysFlag"] & 12 in (0, 8)
        ),
        reverse=True,
    )


@pytest.fixture(params=["plain", "kernels"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A log that is read in plain Python, or nearly all of it with the kernels, in several splits."""
    if request.param == "kernels":
        monkeypatch.setattr(message_selection, "_TAIL_SIZES", (1000, 3000))
        monkeypatch.setattr(backward_scan, "_SPLIT_SIZE", 50_000)
    return str(request.param)


@pytest.mark.parametrize("name", ["workload-533", "killed-533", "deleted-533", "stale-49x"])
def test_the_newest_messages_come_first(name: str, way: str, unpacked: Unpack) -> None:
    real = STORES[name]
    sent = {(fact["topic"], fact["queueId"]) for fact in real.facts("msg") if fact["sysFlag"] & 12 in (0, 8)}
    topics = sorted({topic for topic, _ in sent})
    with MessageStore(str(unpacked(real))) as store:
        for topic in topics[-2:]:
            assert found(store, topic, None) == expected(real, topic, None)
        for topic, queue_id in sorted(sent)[:: 1 if way == "plain" else 7]:
            assert found(store, topic, queue_id) == expected(real, topic, queue_id)
            assert found(store, topic, queue_id, 2) == expected(real, topic, queue_id)[:2]


@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/OrderEvents", "consumequeue/OrderEvents/2"])
def test_lost_queues_lose_no_message(lost: str, way: str, tmp_path: Path) -> None:
    folder = WORKLOAD.unpack(tmp_path)
    shutil.rmtree(folder / lost)
    with MessageStore(str(folder)) as store:
        for queue_id in (None, 1, 2):
            assert found(store, "OrderEvents", queue_id) == expected(WORKLOAD, "OrderEvents", queue_id)


def test_the_last_messages_need_a_small_part_of_the_log(unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_selection, "_TAIL_SIZES", (60_000,))
    with MessageStore(str(unpacked(WORKLOAD))) as store:
        size = store.get_max_phy_offset() - store.get_min_phy_offset()
        monkeypatch.setattr(backward_scan, "list_offset_range", None)  # with which the rest of the log would be read
        before = store.files.bytes_read
        assert found(store, "OrderEvents", None, 3) == expected(WORKLOAD, "OrderEvents", None)[:3]
        assert store.files.bytes_read - before < size / 2


@pytest.mark.parametrize("queue_id", [None, 2])
def test_damage_is_one_part_and_costs_one_message(queue_id: int | None, way: str, tmp_path: Path) -> None:
    folder = WORKLOAD.unpack(tmp_path)
    facts = [fact for fact in WORKLOAD.facts("msg") if (fact["topic"], fact["queueId"]) == ("OrderEvents", 2)]
    fact = sorted(facts, key=lambda fact: int(fact["offset"]))[4]
    segment = max(file for file in (folder / "commitlog").iterdir() if int(file.name) <= fact["offset"])
    with segment.open("r+b") as file:
        file.seek(fact["offset"] - int(segment.name) + 4)
        file.write(b"\xa5" * 4)
    with MessageStore(str(folder)) as store:
        parts = list(select_messages(store, "OrderEvents", queue_id, newest_first=True))
    offsets = [part.commit_log_offset for part in parts if isinstance(part, Record)]
    assert offsets == [offset for offset in expected(WORKLOAD, "OrderEvents", queue_id) if offset != fact["offset"]]
    assert [part.commit_log_offset for part in parts if not isinstance(part, Record)] == [fact["offset"]]


def by_unique_key(store: MessageStore, key: str) -> list[int]:
    return [record.commit_log_offset for record in find_unique_key(store, key)]


@pytest.mark.parametrize("index", ["whole", "half", "none"])
def test_the_messages_of_all_topics_are_found(index: str, unpacked: Unpack, tmp_path: Path) -> None:
    folder = unpacked(WORKLOAD)
    if index != "whole":
        folder = WORKLOAD.unpack(tmp_path)
        files = sorted((folder / "index").iterdir())
        for file in files if index == "none" else files[: len(files) // 2]:
            file.unlink()
    expected = defaultdict(list)
    for fact in sorted(WORKLOAD.facts("msg"), key=lambda fact: -int(fact["offset"])):
        if fact["uniqKey"] and fact["sysFlag"] & 12 != 12:
            expected[fact["uniqKey"]].append(fact["offset"])
    repeated = [key for key, offsets in expected.items() if len(offsets) > 1]
    assert repeated  # a retried message has the unique key of the first one
    with MessageStore(str(folder), broker_conf=str(WORKLOAD.broker_conf)) as store:
        for key in [*repeated[:3], *list(expected)[:: 1 + len(expected) // 8]]:
            assert by_unique_key(store, key) == expected[key]
        assert by_unique_key(store, "7F0000010B5F18B4AAC28F1B3B6D0000") == []


def test_a_key_of_keys_is_not_a_unique_key(unpacked: Unpack) -> None:
    key = next(fact["keys"] for fact in WORKLOAD.facts("msg") if fact["keys"]).split()[0]
    with MessageStore(str(unpacked(WORKLOAD)), broker_conf=str(WORKLOAD.broker_conf)) as store:
        assert by_unique_key(store, key) == []


def test_topics_are_known_without_queues(tmp_path: Path) -> None:
    folder = WORKLOAD.unpack(tmp_path)
    with MessageStore(str(folder)) as store:
        before = known_topics(store)
    shutil.rmtree(folder / "consumequeue" / "OrderEvents")
    with MessageStore(str(folder)) as store:
        assert known_topics(store) == before
        assert "OrderEvents" in before


SEGMENT_SIZE = 1024


def save(writer: LogWriter, folder: Path, unfinished: int = 0) -> None:
    """The store as a broker leaves it that has yet to write the last `unfinished` bytes."""
    for base, data in writer.segments.items():
        file = folder / "commitlog" / f"{base:020d}"
        file.parent.mkdir(exist_ok=True)
        is_last = base == max(writer.segments)
        written = data[: len(data) - unfinished] if is_last and unfinished else data
        file.write_bytes(bytes(written).ljust(SEGMENT_SIZE, b"\0"))


def bodies(log: FollowedLog) -> list[bytes]:
    return [part.body for part in log.new_parts() if isinstance(part, Record)]


def test_each_message_is_returned_once_when_it_is_whole(tmp_path: Path) -> None:
    writer = LogWriter(SEGMENT_SIZE)
    writer.append(1000, b"old")
    save(writer, tmp_path)
    log = FollowedLog(Location.resolve(str(tmp_path)), InQueue("T", 1), writer.next_offset)
    assert bodies(log) == []
    for number in range(12):  # more than a segment
        writer.append(1001 + number, b"new %d" % number, queue_id=number % 2)
    writer.append(1020, b"unfinished", queue_id=1)
    save(writer, tmp_path, unfinished=5)
    assert bodies(log) == [b"new %d" % number for number in range(1, 12, 2)]
    save(writer, tmp_path)
    assert bodies(log) == [b"unfinished"]
    assert bodies(log) == []
    assert log.position == writer.next_offset


def test_a_log_that_lost_its_end_is_an_error(tmp_path: Path) -> None:
    writer = LogWriter(SEGMENT_SIZE)
    writer.append(1000, b"old")
    end = writer.next_offset
    save(writer, tmp_path)
    with pytest.raises(LogCutError, match=f"up to commit log offset {end + 100}, and ends at {end} now"):
        bodies(FollowedLog(Location.resolve(str(tmp_path)), InQueue("T"), end + 100))
