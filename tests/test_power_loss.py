"""A power loss at each moment of a command that changes a store: after the next run the store is the old or new one.

A usual run tries few of the states that a power loss can leave; a soak tries all of them, or 800 of a command, of
which one or more are after each change.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import spark_mq
from spark_mq.errors import UnfinishedAppendError
from spark_mq.format.dledger import HEAD_SIZE
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.io.local import flush_to_disk
from spark_mq.io.rocksdb import make_database
from spark_mq.job.tasks import LocalTasks
from spark_mq.repairer import log_edit
from spark_mq.repairer.changes import CHANGES, undo_repair
from spark_mq.repairer.from_replica import repair_from
from spark_mq.store.config.store_paths import APPEND_UNFINISHED
from spark_mq.testing.disk import DiskState, FileSystem, Recording, recorded
from tests.support.appended import append_here, segments_of
from tests.support.dledger import STORE as DLEDGER
from tests.support.dledger import heads, overwrite
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.restored import restored_plain
from tests.support.rocksdb import ROCKS, records
from tests.support.soak import SOAKS
from tests.support.store_history import cut_log, record_ends, settings_of
from tests.support.stores import OWN_STORES, STORES, WORKLOAD, RealStore, Unpack, tree_of
from tests.support.verified import Bench

CRC, LAGGING = STORES["crc-533"], STORES["lagging-533"]
BATCH = RealStore("fBatchcq533", OWN_STORES / "forms")
MOST = 800 if SOAKS else 3
"""States that are tried of a command on a filesystem, those after each change first."""

file_systems = pytest.mark.parametrize("file_system", list(FileSystem))


def tried(recording: Recording, file_system: FileSystem) -> Iterator[DiskState]:
    """States of the disk, each of which is in the folder."""
    store = recording.folder
    assert {path: file.data for path, file in recording.last().files.items()} == tree_of(store)
    states = list(recording.states(file_system))
    random.Random(41).shuffle(states)
    firsts = {state.change: state for state in reversed(states)}
    number = min(MOST, len(states))
    print(f"{number} of {len(states)} states, after {len(firsts)} changes")
    for state in sorted(states, key=lambda state: state is not firsts[state.change])[:number]:
        state.write(store)
        yield state


def copied(store: Path, target: Path) -> Path:
    """A copy of a store without `timerwheel`, and DLedger's own index: they are large, and no command changes them."""

    def left_out(folder: str, names: Iterable[str]) -> list[str]:
        return [name for name in names if name == "timerwheel" or "/dledger-n0/index/" in f"{folder}/{name}"]

    return Path(shutil.copytree(store, target, ignore=left_out))


def files_of(store: Path) -> dict[str, bytes]:
    """The files of a store, without those of a job, its lock, and what it had not given a name yet."""
    return {
        name: data
        for name, data in tree_of(store).items()
        if not name.startswith((".spark_mq", "lock", "backup-", ".checkpoint."))
    }


def contents(recording: Recording, file_system: FileSystem) -> set[tuple[tuple[str, bytes], ...]]:
    """The files of each state."""
    return {
        tuple(sorted((path, file.data) for path, file in state.files.items()))
        for state in recording.states(file_system)
    }


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_renamed_file_is_whole_only_if_it_was_synced(is_synced: bool, tmp_path: Path) -> None:
    data = bytes([1]) * 5000
    with recorded(tmp_path) as recording, (tmp_path / "new").open("wb") as file:
        file.write(data)
        file.flush()
        if is_synced:
            os.fsync(file.fileno())
        (tmp_path / "new").rename(tmp_path / "file")
    whole = {()} | {((name, part),) for name in ("new", "file") for part in (data,)}
    blocks = [data[:512] if number % 2 else bytes(512) for number in range(10)]
    torn = [b"", bytes(5000), bytes(4096) + data[4096:], data[:4096] + bytes(904), b"".join(blocks)[:5000]]
    torn.append(bytes(one ^ 1 for one in torn[-1]))
    before = {(("new", part),) for part in torn}
    after = set() if is_synced else {(("file", part),) for part in torn}
    for file_system in FileSystem:
        assert contents(recording, file_system) == whole | before | after


@pytest.mark.parametrize("is_synced", [True, False])
def test_names_change_in_their_order_if_there_is_a_journal_or_fsync(is_synced: bool, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    with recorded(tmp_path) as recording:
        for name in "ab":
            (tmp_path / name).unlink()
            if is_synced:
                flush_to_disk(str(tmp_path))
    kept = {
        file_system: {"".join(name for name, _ in files) for files in contents(recording, file_system)}
        for file_system in FileSystem
    }
    assert kept[FileSystem.JOURNALED] == {"abc", "bc", "c"}
    assert kept[FileSystem.UNORDERED] == {"abc", "bc", "c"} | (set() if is_synced else {"ac"})


def test_old_bytes_are_overwritten_block_by_block(tmp_path: Path) -> None:
    old, new = bytes([1]) * 1024, bytes([2]) * 1024
    (tmp_path / "file").write_bytes(old)
    with recorded(tmp_path) as recording, (tmp_path / "file").open("r+b") as file:
        file.write(new)
        file.flush()
        os.fsync(file.fileno())
    expected = {old, new, old[:512] + new[512:], new[:512] + old[512:]}
    assert contents(recording, FileSystem.JOURNALED) == {(("file", data),) for data in expected}


Damaged = Callable[[str], Bench]
"""The fixture `damaged`: gives a store with damage of a kind."""


@pytest.fixture
def damaged(unpacked: Unpack, tmp_path: Path) -> Damaged:
    def damage(kind: str) -> Bench:
        packed = STORES.get(kind, WORKLOAD)
        bench = Bench(packed, Path(shutil.copytree(unpacked(packed), tmp_path / "store")))
        if packed == WORKLOAD:
            file, position = bench.unit("SequenceDemo", 0, 7)
            bench.flip(file, position + 6)
            (bench.path / file).with_name("notes.txt").write_text("do not delete")
            shutil.rmtree((bench.path / bench.unit("SequenceDemo", 1, 0)[0]).parent)
            (bench.path / bench.index_file(2)).unlink()
            bench.flip(bench.index_file(4), bench.entry(20) + 2)
            os.truncate(bench.path / "checkpoint", 100)
        return bench

    return damage


def undo_all(store: Path) -> None:
    while list(store.glob(f".spark_mq/backup-*/{CHANGES}")):
        undo_repair(str(store))


@file_systems
@pytest.mark.parametrize("kind", ["queues, index and checkpoint", "stale-533"])
def test_repair(kind: str, file_system: FileSystem, damaged: Damaged) -> None:
    """The undo gives the old files; so it does after the next repair, which gives the new ones.

    The second store has old records after the end of its log, which are overwritten in place.
    """
    bench = damaged(kind)
    store, conf, old = bench.path, bench.packed.broker_conf, files_of(bench.path)
    with recorded(store) as recording:
        repair_here(store, conf, apply=True, offsets=True)
    new = files_of(store)
    for state in tried(recording, file_system):
        undo_all(store)
        assert files_of(store) == old, state.about
        state.write(store)
        repair_here(store, conf, apply=True, offsets=True)
        assert files_of(store) == new, state.about
        undo_all(store)
        assert files_of(store) == old, state.about


def damaged_log(kind: str, unpacked: Unpack, folder: Path) -> tuple[Path, Callable[[], object]]:
    """A store whose log is repaired, and the repair."""
    if kind == "of a DLedger node":
        store, member = (copied(unpacked(DLEDGER), folder / name) for name in ("store", "member"))
        (member / "dledger-n0").rename(member / "dledger-n1")
        entries = heads(store)
        for number in (150, -3):
            overwrite(store, entries[number][0] + HEAD_SIZE, bytes(8))
        return store, lambda: repair_from(str(store), str(member), apply=True)
    bench = Bench.of(unpacked(WORKLOAD), WORKLOAD.name, folder)
    middle = bench.messages[len(bench.messages) // 2]["offset"]
    if kind == "cut":
        return bench.path, lambda: log_edit.cut_log(str(bench.path), middle, apply=True)
    file, position = bench.segment(middle)
    bench.flip(file, position + 4)
    (bench.path / bench.segment(1 << 17)[0]).unlink()
    return bench.path, lambda: repair_from(str(bench.path), str(unpacked(WORKLOAD)), apply=True)


@file_systems
@pytest.mark.parametrize("kind", ["cut", "from a replica", "of a DLedger node"])
def test_repair_of_the_log(kind: str, file_system: FileSystem, unpacked: Unpack, tmp_path: Path) -> None:
    """The undo gives the old files, and the next run the new ones: a cut log, or the records of a replica."""
    store, repair = damaged_log(kind, unpacked, tmp_path)
    old = files_of(store)
    with recorded(store) as recording:
        repair()
    new = files_of(store)
    assert new != old
    for state in tried(recording, file_system):
        undo_all(store)
        assert files_of(store) == old, state.about
        state.write(store)
        repair()
        assert files_of(store) == new, state.about
        undo_all(store)
        assert files_of(store) == old, state.about


@file_systems
@pytest.mark.parametrize("kind", ["queues, index and checkpoint", "stale-533"])
def test_undo_of_a_repair(kind: str, file_system: FileSystem, damaged: Damaged) -> None:
    """The next undo gives the old files, the next repair the new ones."""
    bench = damaged(kind)
    store, conf, old = bench.path, bench.packed.broker_conf, files_of(bench.path)
    repair_here(store, conf, apply=True, offsets=True)
    new = files_of(store)
    with recorded(store) as recording:
        undo_repair(str(store))
    for state in tried(recording, file_system):
        undo_all(store)
        assert files_of(store) == old, state.about
        state.write(store)
        repair_here(store, conf, apply=True, offsets=True)
        assert files_of(store) == new, state.about


@file_systems
def test_expire(file_system: FileSystem, unpacked: Unpack, tmp_path: Path) -> None:
    """What is gone is the beginning of the plan, and the next run deletes the rest."""
    store = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    before = files_of(store)
    with recorded(store) as recording:
        plan = [file.path for file in spark_mq.expire(str(store), min_offset=524_288, apply=True).files]
    after = files_of(store)
    assert len(before) - len(after) == len(plan) > 0
    for state in tried(recording, file_system):
        left = files_of(store)
        gone = [path for path in plan if path not in left]
        assert gone == plan[: len(gone)], state.about
        assert left == {path: data for path, data in before.items() if path not in gone}, state.about
        spark_mq.expire(str(store), min_offset=524_288, apply=True)
        assert files_of(store) == after, state.about


def tree(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """The files in a folder."""
    return {path.removeprefix(f"{folder}/"): data for path, data in files.items() if path.startswith(f"{folder}/")}


@file_systems
def test_rebuild_in_place(file_system: FileSystem, unpacked: Unpack, tmp_path: Path) -> None:
    """Each tree is the old one, the new one, or set aside; the next run makes the new one, and keeps the old one."""
    store = Path(shutil.copytree(unpacked(LAGGING), tmp_path / "store"))
    request = RebuildRequest.of(str(store), replace=True, broker_conf=str(LAGGING.broker_conf))
    old = files_of(store)
    with recorded(store) as recording:
        rebuild_with(LocalTasks(1), request)
    new = files_of(store)
    for state in tried(recording, file_system):
        left = files_of(store)
        for name in ("consumequeue", "index"):
            assert tree(left, name) in (tree(old, name), tree(new, name), {}), state.about
        assert tree(left, "commitlog") == tree(old, "commitlog")
        assert left["checkpoint"] in (old["checkpoint"], new["checkpoint"]), state.about
        rebuild_with(LocalTasks(1), request)
        assert files_of(store) == new, state.about
        for name in ("consumequeue", "index"):
            assert tree(old, name) in map(tree_of, store.glob(f"backup-*/{name}")), state.about


@file_systems
def test_rebuild_of_queues_in_rocksdb(
    file_system: FileSystem, unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queues are the old ones, the new ones, or set aside; the next run makes the new ones, and keeps the old."""

    def make_synced(folder: str, *content: Any) -> None:
        make_database(folder, *content)
        for name in ("", *os.listdir(folder)):  # RocksDB has done so itself, which is not seen here
            flush_to_disk(os.path.join(folder, name))

    monkeypatch.setattr("spark_mq.indexer.queue_files.make_database", make_synced)
    store, conf = copied(unpacked(ROCKS), tmp_path / "store"), str(ROCKS.broker_conf)
    request = RebuildRequest.of(str(store), only="consumequeue", broker_conf=conf, replace=True, queue_store="rocksdb")
    old = files_of(store)
    with recorded(store) as recording:
        rebuild_with(LocalTasks(1), request)
    new = {name: records(store / "consumequeue", name) for name in ("default", "offset")}

    def is_made() -> bool:
        return all(records(store / "consumequeue", name) == family for name, family in new.items())

    for state in tried(recording, file_system):
        left = files_of(store)
        assert tree(left, "consumequeue") in (tree(old, "consumequeue"), {}) or is_made(), state.about
        assert tree(left, "commitlog") == tree(old, "commitlog")
        rebuild_with(LocalTasks(1), request)
        assert is_made(), state.about
        assert tree(old, "consumequeue") in map(tree_of, store.glob("backup-*/consumequeue")), state.about


@file_systems
def test_repair_of_queues_in_rocksdb(file_system: FileSystem, unpacked: Unpack, tmp_path: Path) -> None:
    """The next repair makes the queues of the broker, also if its files are among those of the old database."""
    store, conf = copied(unpacked(ROCKS), tmp_path / "store"), ROCKS.broker_conf
    wanted = records(store / "consumequeue", "default")
    (store / "consumequeue/CURRENT").write_text("damaged")
    old = files_of(store)
    with recorded(store) as recording:
        repair_here(store, conf, apply=True)
    for state in tried(recording, file_system):
        undo_all(store)
        assert files_of(store) == old, state.about
        state.write(store)
        repair_here(store, conf, apply=True)
        assert records(store / "consumequeue", "default") == wanted, state.about
        undo_all(store)
        assert files_of(store) == old, state.about


@file_systems
@pytest.mark.parametrize("kind", ["new", "replaces", "batch queues"])
def test_restore(kind: str, file_system: FileSystem, unpacked: Unpack, tmp_path: Path) -> None:
    """The store is absent, the old one, or the new one; the next run makes the new one."""
    folder, old = tmp_path / "disk", {}
    folder.mkdir()
    source, conf, replaces = unpacked(LAGGING), LAGGING.broker_conf, kind == "replaces"
    if replaces:
        shutil.copytree(unpacked(STORES["stale-533"]), folder / "store")
        old = tree_of(folder / "store")
    if kind == "batch queues":
        source, conf = copied(unpacked(BATCH), tmp_path / "source"), tmp_path / "broker.conf"
        conf.write_text(f"{BATCH.broker_conf.read_text()}mapperFileSizeBatchConsumeQueue=4600\n")

    def restore() -> None:
        restored_plain(source, folder / "store", conf, replace=replaces)

    with recorded(folder) as recording:
        restore()
    new = files_of(folder / "store")
    for state in tried(recording, file_system):
        left = files_of(folder / "store") if (folder / "store").exists() else {}
        assert left in (old, new), state.about
        if left != new:
            restore()
            assert files_of(folder / "store") == new, state.about
        if replaces:
            assert old in [files_of(path) for path in folder.glob("store.backup-*")], state.about


@file_systems
def test_append(file_system: FileSystem, unpacked: Unpack, tmp_path: Path) -> None:
    """The store is the old one, the new one, or refused; the next run makes the new one."""
    ends, whole = record_ends(CRC), segments_of(unpacked(CRC))
    store = cut_log(unpacked(CRC), tmp_path / "store", ends[-40])
    for file in (store / "config").glob("consumerOffset.json*"):
        file.unlink()
    rebuild_here(store, **settings_of(CRC))
    old = files_of(store)

    def append() -> None:
        append_here(store, whole, ends[-1], CRC.broker_conf, b"{}", LocalTasks(1))

    with recorded(store) as recording:
        append()
    new = files_of(store)
    for state in tried(recording, file_system):
        if (store / "commitlog" / APPEND_UNFINISHED).exists():
            with pytest.raises(UnfinishedAppendError):
                spark_mq.MessageStore(str(store)).get_max_phy_offset()
        else:
            assert files_of(store) in (old, new), state.about
        if files_of(store) != new:
            append()
        assert files_of(store) == new, state.about
