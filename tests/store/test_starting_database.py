"""What a boot does to queues in RocksDB: completed, lost, corrected ends. The judge is `test_rocksdb_boot.py`.

Expectations follow from the facts of the store's broker, and from a plain look at all units.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from spark_mq.errors import UnsupportedStoreError
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.boot import Boot
from spark_mq.store.dispatch_requests import QueueNumbers
from spark_mq.store.queue.folders import queue_folders
from spark_mq.store.queue.queue_database import QueueDatabase, database_tree
from spark_mq.store.recovery import next_recovery
from spark_mq.store.starting_queues import StartingDatabase
from spark_mq.store.store_state import store_state
from tests.support.boots import rows
from tests.support.rebuilt import rebuild_here
from tests.support.restored import restore_here
from tests.support.rocksdb import ALL_IN_ROCKS, CHECKPOINT, ROCKS, end_key, key_of, lose_units, write_database

Queue = tuple[str, int]


def database_of(folder: Path, units: dict[Queue, dict[int, int]], dispatched_to: int) -> None:
    """A database with units (queue offset, commit log offset), whose ends are those of the last ones."""
    ends = {queue: max(of_queue.items()) for queue, of_queue in units.items() if of_queue}
    table = {end_key(queue): struct.pack(">qq", offset, queue_offset) for queue, (queue_offset, offset) in ends.items()}
    values = {
        key_of(*queue, queue_offset): struct.pack(">qiqq", offset, 100, 0, 0)
        for queue, of_queue in units.items()
        for queue_offset, offset in of_queue.items()
    }
    table[end_key(CHECKPOINT)] = struct.pack(">q", dispatched_to)
    write_database(folder, {"default": values, "offset": table})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return ROCKS.unpack(tmp_path)


def recover(store: Path, version: str = "5.5.0") -> Boot:
    recovery = next_recovery(str(store), version, str(ROCKS.broker_conf))
    (boot,) = store_state(str(store), version, str(ROCKS.broker_conf), with_forced=False).boots
    assert recovery == boot
    return recovery


def maxima() -> dict[Queue, int]:
    return {(fact["topic"], fact["queueId"]): fact["max"] for fact in ROCKS.facts("queue") if fact["max"]}


def in_queues() -> list[int]:
    """The commit log offsets of messages that have a unit: not those of transaction types PREPARED and ROLLBACK."""
    return sorted(fact["offset"] for fact in ROCKS.facts("msg") if fact["sysFlag"] & 0xC in (0, 8))


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_sound_store_loses_nothing(store: Path, version: str) -> None:
    recovery = recover(store, version)
    assert recovery.is_harmless
    assert {queue: end for queue, end in recovery.max_offsets.items() if end} == maxima()
    state = store_state(str(store), version, str(ROCKS.broker_conf))
    assert not state.lacking.messages
    assert [boot.is_full and boot.loses_nothing for boot in state.forced_boots] == [True]


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
@pytest.mark.parametrize("place", [0.3, 0.7])
def test_units_that_a_crash_lost_come_back_after_it_and_one_is_lost_without_abort(
    store: Path, version: str, place: float
) -> None:
    offsets = in_queues()
    start = offsets[int(len(offsets) * place)]
    lacking = lose_units(store, start)
    assert lacking == sum(offset >= start for offset in offsets)
    clean = recover(store, version)
    assert clean.is_full
    assert (clean.lost, clean.completed, clean.shifted) == (1, lacking - 1, 0)
    assert [row["commit_log_offset"] for row in rows(clean, "lose")] == [start]
    (store / "abort").touch()
    crashed = recover(store, version)
    assert crashed.is_full
    assert (crashed.completed, crashed.is_harmless) == (lacking, True)
    assert {queue: end for queue, end in crashed.max_offsets.items() if end} == maxima()
    quick = store_state(str(store), version, str(ROCKS.broker_conf), full=False).boots[0]
    assert (quick.recovers_from, quick.lost) == (crashed.recovers_from, 0)


@pytest.mark.parametrize("seed", range(12))
def test_ends_after_the_end_of_the_log_are_those_of_the_last_unit_before_it(seed: int, tmp_path: Path) -> None:
    """But not if a unit leads to the end of the log, and not if no message of the queue is before it."""
    chance = random.Random(seed)
    units: dict[Queue, dict[int, int]] = {}
    first = {("Topic", queue_id): chance.choice([0, 0, 7]) for queue_id in range(5)}
    for offset in range(0, 20_000, 100):
        queue = "Topic", chance.randrange(5)
        of_queue = units.setdefault(queue, {})
        of_queue[first[queue] + len(of_queue)] = offset
    database_of(tmp_path / "database", units, 20_000)
    log_end = chance.randrange(3_000, 20_000, 100)
    tree = database_tree(Location.resolve(str(tmp_path / "database")))
    assert isinstance(tree.storage, QueueDatabase)
    queues = StartingDatabase(tree.storage, QueueNumbers(list(queue_folders(tree)), FileReaders()), 0)
    assert queues.highest == 20_000
    changed = {queue: (before, after) for queue, before, after in queues.correct_ends(log_end)}
    for queue, of_queue in units.items():
        before = [queue_offset for queue_offset, offset in of_queue.items() if offset < log_end]
        if max(of_queue.values()) < log_end or not before:
            assert queue not in changed
        elif log_end in of_queue.values():
            assert changed[queue][1][1] in before  # too early, or not
        else:
            assert changed[queue] == ((max(of_queue.values()), max(of_queue)), (of_queue[max(before)], max(before)))
            assert queues.max_offsets()[queue] == max(before) + 1
    assert (queues.highest, list(queues.correct_ends(log_end))) == (log_end, [])


@pytest.mark.parametrize("setting", ["indexRocksDBEnable", "transRocksDBEnable"])
def test_what_else_is_in_rocksdb_decides_where_the_check_begins(store: Path, setting: str, tmp_path: Path) -> None:
    """A broker of 5.5.0 whose database has no such record began with the first segment, and put its units again."""
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{ROCKS.broker_conf.read_text()}\n{setting}=true\n")
    starts = {}
    for has_abort in (False, True):
        if has_abort:
            (store / "abort").touch()
        for version in ("5.3.3", "5.5.0"):
            recovery = next_recovery(str(store), version, str(conf))
            assert recovery.is_harmless
            assert recovery.is_full
            starts[has_abort, version] = recovery.recovers_from
    assert starts == {(a, v): 0 if v == "5.5.0" else 131_072 for a in (False, True) for v in ("5.3.3", "5.5.0")}


def test_a_store_with_all_in_rocksdb_loses_nothing(tmp_path: Path) -> None:
    recovery = next_recovery(str(ALL_IN_ROCKS.unpack(tmp_path)), "5.5.0", str(ALL_IN_ROCKS.broker_conf))
    assert recovery.is_harmless


def test_a_broker_of_rocksdb_does_not_read_the_queue_files_of_a_restored_store(store: Path, tmp_path: Path) -> None:
    """Seen with 5.5.1: of a message at commit log offset 0 it has no unit then."""
    report = restore_here(store, tmp_path / "new", ROCKS.broker_conf)
    assert sum("--queue-store rocksdb" in note for note in report.notes) == 1
    with pytest.raises(UnsupportedStoreError, match=r"has queue files, and .* says storeType=defaultRocksDB"):
        store_state(str(tmp_path / "new"), "5.5.0", str(ROCKS.broker_conf))
    assert store_state(str(tmp_path / "new"), "5.5.0").boots[0].loses_nothing
    conf = str(ROCKS.broker_conf)
    rebuild_here(tmp_path / "new", only="consumequeue", queue_store="rocksdb", replace=True, broker_conf=conf)
    assert store_state(str(tmp_path / "new"), "5.5.0", conf).boots[0].loses_nothing


def test_what_is_not_predicted_is_said(store: Path, tmp_path: Path) -> None:
    asks: tuple[Callable[..., object], ...] = next_recovery, store_state
    conf = tmp_path / "broker.conf"
    for settings, message in (
        ("storeType=default", "says otherwise"),
        ("", "says otherwise"),
        ("storeType=defaultRocksDB\nrecheckReputOffsetFromCq=true", "not predicted with recheckReputOffsetFromCq=true"),
        ("storeType=defaultRocksDB\nenableAcceleratedRecovery=true", "not predicted with enableAcceleratedRecovery"),
    ):
        conf.write_text(f"{settings}\nmappedFileSizeCommitLog=1000\n")
        for ask in asks:
            with pytest.raises(UnsupportedStoreError, match=message):
                ask(str(store), "5.5.0", str(conf))
    for version, ask in product(("5.2.0", "5.3.1"), asks):
        with pytest.raises(UnsupportedStoreError, match=r"predicted for 5\.3\.2 and later"):
            ask(str(store), version)
    state = store_state(str(store), "5.3", str(ROCKS.broker_conf))
    assert [str(versions) for versions in state.unpredicted] == ["5.3.0 to 5.3.1"]
    assert [str(boot.rules) for boot in state.boots] == ["5.3.2 to 5.3.3"]
