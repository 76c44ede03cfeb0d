"""Messages from the newest to the oldest are those of the log, in the other order, however they are found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.format.record import Record
from spark_mq.store import message_selection
from spark_mq.store.log import scan as backward_scan
from spark_mq.store.message_selection import select_messages
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
