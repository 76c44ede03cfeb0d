"""A look-up by key gives the rows of a filtered scan: with and without its topic, in any time range.

The judge is what the Java classes said of each message of the log, filtered here. Prices and the clock tolerance are
changed so that small stores are read by their index, too, and so that a time range leaves out index files.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from spark_mq.datasource import RocketMQDataSource
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.source import planner, time_window
from spark_mq.source.read_plan import AccessPath
from spark_mq.store.index import coverage, key_index
from spark_mq.store.index import file_names as file_times
from spark_mq.store.message_store import MessageStore
from tests.support.broken_trees import BrokenTrees
from tests.support.in_process import read_rows, row_offsets
from tests.support.index_stores import index_files, layout_of
from tests.support.plans import facts_of, make_look_ups_cheap, options_of, plan
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, WORKLOAD, Fact, RealStore, Unpack, index_keys, stores_in

CASES = 600 if SOAKS else 24
QUESTIONS = 8
STORES = [store for store in stores_in(OWN_STORES) if store.facts("msg")]


@pytest.fixture(autouse=True)
def prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices with which the planner uses the index if it can; no clock of these stores was set back."""
    make_look_ups_cheap(monkeypatch, planner)
    monkeypatch.setattr(planner, "CLEARLY_LESS", 10)
    for clocked in (coverage, file_times, key_index, time_window):
        monkeypatch.setattr(clocked, "CLOCK_TOLERANCE_MILLIS", 0)


def window(facts: list[Fact], fact: Fact, random: Random) -> tuple[int | None, int | None]:
    """A time range near a message, often a short one."""
    begin = fact["storeTimestamp"] - random.choice([0, 0, 1, 500, 5000]) + random.choice([0, 0, 0, 1])
    end = random.choice([begin, fact["storeTimestamp"], facts[-1]["storeTimestamp"], begin + 2000])
    chosen = random.choice(["begin", "end", "both", "both", "none"])
    return (begin if chosen in ("begin", "both") else None), (end if chosen in ("end", "both") else None)


def is_in(fact: Fact, begin: int | None, end: int | None) -> bool:
    time = fact["storeTimestamp"]
    return (begin is None or time >= begin) and (end is None or time <= end)


def ask(store: RealStore, folder: Path, random: Random, checks_index: bool) -> Counter[AccessPath]:
    """Ask for keys that messages have, in several ways; returns the paths of the reads."""
    facts, paths = facts_of(store), Counter[AccessPath]()
    keyed = [fact for fact in facts if index_keys(fact)]
    with MessageStore(str(folder), broker_conf=str(store.broker_conf), check_index=checks_index) as opened:
        for _ in range(QUESTIONS):
            fact = random.choice(keyed)
            key, (begin, end) = random.choice(sorted(index_keys(fact))), window(facts, fact, random)
            having = [one for one in facts if key in index_keys(one) and is_in(one, begin, end)]
            of_topic = [one["offset"] for one in having if one["topic"] == fact["topic"]]
            found = opened.query_message(fact["topic"], key, begin=begin, end=end)
            assert found["commit_log_offset"].to_pylist() == of_topic[::-1], (fact["topic"], key, begin, end)
            if checks_index:  # the data source does not read all index files first
                continue
            times = {name: str(time) for name, time in (("startTimestamp", begin), ("endTimestamp", end)) if time}
            options = {"key": key} | times
            expected = [one["offset"] for one in having]
            if random.random() < 0.3:
                options, expected = options | {"topic": fact["topic"]}, of_topic
            elif random.random() < 0.3 and key == fact.get("uniqKey"):
                # What a WHERE clause becomes: messages of type ROLLBACK match, too.
                options = {"conditions": f'[["unique_key", "in", ["{key}"]]]'} | times
                expected = [one["offset"] for one in facts if one.get("uniqKey") == key and is_in(one, begin, end)]
            elif random.random() < 0.3:
                options["table"] = "messages_by_key"
            assert row_offsets(read_rows(**options_of(store, folder, **options))) == expected, options
            paths[plan(store, folder, **options).path] += 1
    return paths


@pytest.mark.parametrize("case", range(CASES))
def test_no_change_of_queues_or_index_loses_a_row(case: int, unpacked: Unpack, tmp_path: Path) -> None:
    random = Random(case)
    store = STORES[case % len(STORES)]
    trees = BrokenTrees(unpacked(store), tmp_path / "store", layout_of(store), random)
    for _ in range(random.choice([0, 1, 3, 8])):
        trees.break_something(random.choice(["consumequeue", "index", "index"]))
    try:
        ask(store, trees.folder, random, trees.has_cut_pointers())
    except BaseException as error:
        error.add_note(f"case {case}, {store}:\n" + "\n".join(trees.changes))
        raise
    finally:
        shutil.rmtree(trees.folder)


def test_keys_without_a_topic_are_looked_up(unpacked: Unpack) -> None:
    """The cases above do not only scan."""
    assert ask(WORKLOAD, unpacked(WORKLOAD), Random(1), checks_index=False)[AccessPath.INDEX] >= QUESTIONS - 1


@pytest.mark.parametrize("lost", ["topic", "queues", "index"])
def test_what_is_in_no_queue_or_index_is_found(lost: str, tmp_path: Path) -> None:
    """A topic that was deleted has messages in the log and in the index, but no queue."""
    folder = WORKLOAD.unpack(tmp_path)
    facts = [fact for fact in facts_of(WORKLOAD) if fact["topic"] == "OrderEvents"]
    if lost == "topic":
        shutil.rmtree(folder / "consumequeue" / "OrderEvents")
    elif lost == "queues":
        shutil.rmtree(folder / "consumequeue")
    else:
        shutil.rmtree(folder / "index")
    for fact in facts[:: len(facts) // 5]:
        key = min(index_keys(fact))
        expected = [one["offset"] for one in facts_of(WORKLOAD) if key in index_keys(one)]
        assert fact["offset"] in expected
        assert row_offsets(read_rows(**options_of(WORKLOAD, folder, key=key))) == expected
        if lost == "topic":
            found = plan(WORKLOAD, folder, key=key)
            assert found.path == AccessPath.INDEX
            assert any(fact["offset"] in part for part in found.uncovered)


@pytest.mark.parametrize("begin_timestamp", [1, (1 << 63) - 1, "begin of the log", "end of the log"])
def test_a_header_with_another_time_leaves_nothing_out(begin_timestamp: int | str, tmp_path: Path) -> None:
    """Headers only say which files to open first. These names say nothing."""
    folder, facts = WORKLOAD.unpack(tmp_path), facts_of(WORKLOAD)
    keyed = [fact for fact in facts if index_keys(fact)]
    ends = {"begin of the log": facts[0]["storeTimestamp"], "end of the log": facts[-1]["storeTimestamp"]}
    stored = int(ends.get(str(begin_timestamp), begin_timestamp)).to_bytes(8, "big")
    for number, file in enumerate(index_files(folder)):
        file.rename(file.with_name(f"{number:017d}"))
    for file in index_files(folder):
        sound = file.read_bytes()
        file.write_bytes(stored + sound[8:])
        with MessageStore(str(folder), broker_conf=str(WORKLOAD.broker_conf)) as store:
            for fact in keyed[:: len(keyed) // 15]:
                key, time = min(index_keys(fact)), fact["storeTimestamp"]
                for begin, end in ((time, time), (time, None), (None, time)):
                    found = store.query_message(fact["topic"], key, begin=begin, end=end)
                    assert fact["offset"] in found["commit_log_offset"].to_pylist(), (file.name, fact)
        file.write_bytes(sound)


class OpenedFiles:
    """The index files that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: Counter[str] = Counter()
        read = FileReaders.read

        def counted(readers: FileReaders, location: Location, position: int, length: int) -> bytes:
            if Path(location.path).parent.name == "index":
                self.names[location.name] += 1
            return read(readers, location, position, length)

        monkeypatch.setattr(FileReaders, "read", counted)


def test_a_time_range_opens_the_index_files_of_its_time(unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most the headers of the two newest files besides, which show the zone of the names."""
    folder = unpacked(WORKLOAD)
    count = len(index_files(folder))
    assert count >= 8
    facts = facts_of(WORKLOAD)
    opened = OpenedFiles(monkeypatch)
    for fact in (facts[5], facts[len(facts) // 2], facts[-5]):
        key, time = min(index_keys(fact), default=""), fact["storeTimestamp"]
        with MessageStore(str(folder), broker_conf=str(WORKLOAD.broker_conf)) as store:
            opened.names.clear()
            found = store.query_message(fact["topic"], key, begin=time, end=time)
        assert fact["offset"] in found["commit_log_offset"].to_pylist()
        checked = [name for name, reads in opened.names.items() if reads > 1]
        assert len(checked) <= 4
        assert len(opened.names) <= 7


class TestCheckedFiles:
    """The files that the planner checked are not checked again by the tasks."""

    @staticmethod
    def partitions(folder: Path, **options: str) -> tuple[Any, list[InputPartition]]:
        source = RocketMQDataSource(options_of(WORKLOAD, folder, **options))
        reader = source.reader(source.schema())
        return reader, list(reader.partitions())

    @staticmethod
    def rows(reader: Any, partitions: list[InputPartition]) -> list[dict[str, Any]]:
        return [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]

    @staticmethod
    def entries_in_the_slot(folder: Path, topic: str, key: str) -> int:
        with MessageStore(str(folder), broker_conf=str(WORKLOAD.broker_conf)) as store:
            return store.index.count_entries(topic, key)[0]

    @pytest.fixture
    @staticmethod
    def fact() -> Fact:
        return max((fact for fact in facts_of(WORKLOAD) if index_keys(fact)), key=lambda fact: len(index_keys(fact)))

    def test_a_task_reads_slots_and_entries_only(
        self, fact: Fact, unpacked: Unpack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = unpacked(WORKLOAD)
        entries = self.entries_in_the_slot(folder, fact["topic"], "no such key")
        reader, partitions = self.partitions(folder, topic=fact["topic"], key="no such key")
        checked = 0

        def check_file(*arguments: object) -> None:
            nonlocal checked
            checked += 1

        monkeypatch.setattr(coverage.IndexCoverage, "_check_file", check_file)
        opened = OpenedFiles(monkeypatch)
        assert self.rows(reader, partitions) == []
        assert checked == 0
        # A slot of each file, its entries, and the header of the file that is not full.
        assert sum(opened.names.values()) <= len(index_files(folder)) + entries + 1

    @pytest.mark.parametrize("change", ["lost", "garbage", "zeros", "other"])
    def test_a_file_that_changed_meanwhile_loses_no_row(self, change: str, fact: Fact, tmp_path: Path) -> None:
        folder = WORKLOAD.unpack(tmp_path)
        key = min(index_keys(fact))
        reader, partitions = self.partitions(folder, topic=fact["topic"], key=key)
        files = index_files(folder)
        for file in files:
            sound = file.read_bytes()
            if change == "lost":
                file.unlink()
            elif change == "garbage":
                file.write_bytes(b"\xa5" * len(sound))
            elif change == "zeros":
                file.write_bytes(bytes(len(sound)))
            else:
                file.write_bytes(files[0].read_bytes())
        expected = [
            one["offset"] for one in facts_of(WORKLOAD) if one["topic"] == fact["topic"] and key in index_keys(one)
        ]
        assert row_offsets(self.rows(reader, partitions)) == expected
