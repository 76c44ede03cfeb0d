"""The messages of a topic one after the other are those of the log, by units or by a scan, forwards or backwards.

The judge is what the Java classes said of each message of the log. The costs are changed so that small stores are read
by their units.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import Record
from spark_mq.source import time_window, topic_messages
from spark_mq.store import message_selection
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.unit_cover import ReadCost
from tests.support.broken_trees import BrokenTrees
from tests.support.index_stores import layout_of
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, WORKLOAD, Fact, RealStore, Unpack, stores_in

CASES = 600 if SOAKS else 30
STORES = [store for store in stores_in(OWN_STORES) if store.facts("msg")]


@pytest.fixture(autouse=True)
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs with which units are used if they can be; nothing is read before."""
    monkeypatch.setattr(topic_messages, "cost_of", lambda location: ReadCost(jump=0, queue=0))
    monkeypatch.setattr(topic_messages, "CLEARLY_LESS", 10)
    monkeypatch.setattr(topic_messages, "_RECORD", 0)
    monkeypatch.setattr(topic_messages, "MERGE_DISTANCE", 1)
    monkeypatch.setattr(topic_messages, "_FIRST_BYTES", 0)
    monkeypatch.setattr(message_selection, "_TAIL_SIZES", ())
    monkeypatch.setattr(time_window, "CLOCK_TOLERANCE_MILLIS", 0)  # no clock of these stores was set back


class Scanned:
    """Bytes of the log that were scanned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        scan = topic_messages._TopicMessages._scan

        def counted(read: object, part: object, *arguments: object) -> Iterator[topic_messages.Part]:
            self.bytes += part.size  # type: ignore[attr-defined]
            return scan(read, part, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(topic_messages._TopicMessages, "_scan", counted)


def expected(store: RealStore, topic: str, begin: int | None = None, end: int | None = None) -> list[int]:
    def is_in(fact: Fact) -> bool:
        time = fact["storeTimestamp"]
        return (begin is None or time >= begin) and (end is None or time <= end)

    queued = (fact for fact in store.facts("msg") if fact["topic"] == topic and fact["sysFlag"] & 12 in (0, 8))
    return sorted(fact["offset"] for fact in queued if is_in(fact))


def found(
    store: MessageStore, topic: str, begin: int | None = None, end: int | None = None, newest_first: bool = False
) -> list[int]:
    parts = topic_messages.topic_messages(store, topic, begin, end, newest_first)
    return [
        part.commit_log_offset
        for part in parts
        if isinstance(part, Record)
        and (begin is None or part.store_timestamp >= begin)
        and (end is None or part.store_timestamp <= end)
    ]


@pytest.mark.parametrize("case", range(CASES))
def test_no_change_of_queues_loses_or_doubles_a_message(case: int, unpacked: Unpack, tmp_path: Path) -> None:
    random = Random(case)
    real = STORES[case % len(STORES)]
    trees = BrokenTrees(unpacked(real), tmp_path / "store", layout_of(real), random)
    for _ in range(random.choice([0, 1, 3, 8])):
        trees.break_something("consumequeue")
    facts = real.facts("msg")
    try:
        with MessageStore(str(trees.folder)) as store:
            for _ in range(4):
                fact = random.choice(facts)
                topic = random.choice([fact["topic"], *(name for name, _ in sorted(trees.queues))])
                times = sorted(random.choice(facts)["storeTimestamp"] for _ in range(2))
                begin, end = (random.choice([None, time]) for time in times)
                wanted = expected(real, topic, begin, end)
                assert found(store, topic, begin, end) == wanted, (topic, begin, end)
                assert found(store, topic, begin, end, newest_first=True) == wanted[::-1], (topic, begin, end)
    except BaseException as error:
        error.add_note(f"case {case}, {real}:\n" + "\n".join(trees.changes))
        raise
    finally:
        shutil.rmtree(trees.folder)


@pytest.mark.parametrize("newest_first", [False, True])
def test_units_at_two_places_give_a_message_once(newest_first: bool, tmp_path: Path) -> None:
    """The first file of a queue has the units of the second one, and the time range begins after its messages."""
    real = RealStore("stale-49x", OWN_STORES)
    folder = real.unpack(tmp_path)
    first, second = sorted((folder / "consumequeue" / "SequenceDemo" / "0").iterdir())[:2]
    first.write_bytes(second.read_bytes())
    times = sorted(fact["storeTimestamp"] for fact in real.facts("msg") if fact["topic"] == "SequenceDemo")
    with MessageStore(str(folder)) as store:
        for begin in times[:: len(times) // 8]:
            wanted = expected(real, "SequenceDemo", begin)
            assert sorted(found(store, "SequenceDemo", begin, newest_first=newest_first)) == wanted


@pytest.mark.parametrize("newest_first", [False, True])
def test_units_spare_the_log(newest_first: bool, unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only messages that are in no queue are scanned."""
    scanned = Scanned(monkeypatch)
    with MessageStore(str(unpacked(WORKLOAD))) as store:
        size = store.get_max_phy_offset() - store.get_min_phy_offset()
        assert sorted(found(store, "OrderEvents", newest_first=newest_first)) == expected(WORKLOAD, "OrderEvents")
    assert scanned.bytes < size / 10


def test_a_topic_of_many_messages_is_scanned(unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records one by one cost more than a scan that reads over the others."""
    monkeypatch.setattr(topic_messages, "CLEARLY_LESS", 0.7)
    monkeypatch.setattr(topic_messages, "_RECORD", 4096)
    scanned = Scanned(monkeypatch)
    with MessageStore(str(unpacked(WORKLOAD))) as store:
        size = store.get_max_phy_offset() - store.get_min_phy_offset()
        assert found(store, "OrderEvents") == expected(WORKLOAD, "OrderEvents")
        assert scanned.bytes > size / 2
        scanned.bytes = 0
        assert found(store, "%DLQ%GID_failing") == expected(WORKLOAD, "%DLQ%GID_failing")
        assert scanned.bytes < size / 2


def test_who_stops_early_reads_no_later_segment(unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_messages, "_MOST_UNITS", 1)
    with MessageStore(str(unpacked(WORKLOAD))) as store:
        segments = [segment.base for segment in store.records.segments]
        assert len(segments) > 3
        read: list[int] = []
        record = RecordLookup.record

        def noted(records: RecordLookup, offset: int, size: int | None = None) -> Record:
            read.append(offset)
            return record(records, offset, size)

        parts = topic_messages.topic_messages(store, "OrderEvents")
        wanted = expected(WORKLOAD, "OrderEvents")
        first = next(part.commit_log_offset for part in parts if isinstance(part, Record))
        monkeypatch.setattr(RecordLookup, "record", noted)  # the ends of queues and log were looked for
        more = [part.commit_log_offset for part in islice(parts, 3) if isinstance(part, Record)]
        assert [first, *more] == wanted[:4]
        assert max(read) < next(base for base in segments if base > wanted[3])


def test_a_record_that_is_damaged_is_one_part(tmp_path: Path) -> None:
    folder = WORKLOAD.unpack(tmp_path)
    offsets = expected(WORKLOAD, "OrderEvents")
    damaged = offsets[len(offsets) // 2]
    segment = max(file for file in (folder / "commitlog").iterdir() if int(file.name) <= damaged)
    with segment.open("r+b") as file:
        file.seek(damaged - int(segment.name) + 4)
        file.write(b"\xa5" * 4)
    with MessageStore(str(folder)) as store:
        with pytest.raises(CorruptLogError):
            store.records.record(damaged)
        for newest_first in (False, True):
            parts = list(topic_messages.topic_messages(store, "OrderEvents", newest_first=newest_first))
            kept = [part.commit_log_offset for part in parts if isinstance(part, Record)]
            assert sorted(kept) == [offset for offset in offsets if offset != damaged]
            assert [part.commit_log_offset for part in parts if not isinstance(part, Record)] == [damaged]
