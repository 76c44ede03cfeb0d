"""Other kinds of stores are named, whatever their files hold; the listings are those that 5.3.3 brokers left."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from spark_mq.errors import StoreNotFoundError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import Door, check_form, refuse_rocksdb
from spark_mq.store.config.store_paths import is_rocksdb
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.queue.folders import queue_folders
from spark_mq.testing import LogWriter
from tests.support.readers import by_hopping, offsets_of
from tests.support.stores import OWN_STORES, RealStore, Unpack, stores_in

SIZE = 4096
DLEDGER = ["checkpoint", "currterm", "data/00000000000000000000", "data/00000000000000004096", "index/" + "0" * 20]
ROCKSDB = ["000004.log", "000010.sst", "CURRENT", "IDENTITY", "LOCK", "MANIFEST-000005", "OPTIONS-000007"]


def make_files(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\1" * SIZE)


def segments(*numbers: int) -> list[str]:
    return [f"commitlog/{number * SIZE:020d}" for number in numbers]


def open_log(folder: Path) -> CommitLog:
    return CommitLog.open(Location.resolve(str(folder)))


@pytest.mark.parametrize("path", ["dledger-n0", "dledger-n0/data"])
def test_a_part_of_a_dledger_store_is_named(path: str, tmp_path: Path) -> None:
    make_files(tmp_path / "dledger-n0", DLEDGER)
    with pytest.raises(StoreNotFoundError, match=rf"is a part of a DLedger log: give the folder {tmp_path}$"):
        open_log(tmp_path / path)


def test_the_logs_of_two_dledger_nodes_in_one_folder_are_named(tmp_path: Path) -> None:
    for node in ("dledger-n0", "dledger-n1"):
        make_files(tmp_path / node, DLEDGER)
    with pytest.raises(UnsupportedStoreError, match="several DLedger nodes, dledger-n0 and dledger-n1: give a folder"):
        open_log(tmp_path)


def test_a_dledger_folder_without_a_log_does_not_matter(tmp_path: Path) -> None:
    make_files(tmp_path, [*segments(0), "dledger-n0/currterm"])
    (tmp_path / "dledger-n1" / "data").mkdir(parents=True)
    assert len(open_log(tmp_path).segments) == 1


def test_the_folder_of_the_commit_log_itself_is_named(tmp_path: Path) -> None:
    make_files(tmp_path, segments(0, 1))
    with pytest.raises(StoreNotFoundError, match=r"is itself a folder of segments, .* give the folder that contains"):
        open_log(tmp_path / "commitlog")


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(StoreNotFoundError, match="is a file: give the broker's store directory"):
        open_log(tmp_path / "store")


@pytest.mark.parametrize("name", ["00000000000000000000.gz", "part-0", "disk1/00000000000000000000"])
def test_a_commit_log_of_other_files_is_no_empty_log(name: str, tmp_path: Path) -> None:
    make_files(tmp_path / "commitlog", [name])
    with pytest.raises(
        StoreNotFoundError, match=rf"commitlog contains {name.split('/')[0]}, but no segments: .* 20 digits"
    ):
        open_log(tmp_path)


def test_hidden_files_make_no_log(tmp_path: Path) -> None:
    make_files(tmp_path / "commitlog", [".DS_Store"])
    assert open_log(tmp_path).segments == ()


@pytest.mark.parametrize(
    ("numbers", "folders"), [((0, 2, 4), 2), ((1, 3, 5, 7), 2), ((2, 5, 8), 3)], ids=["first", "second", "third"]
)
def test_one_of_several_commit_log_folders_is_named(numbers: tuple[int, ...], folders: int, tmp_path: Path) -> None:
    make_files(tmp_path, segments(*numbers))
    with pytest.raises(UnsupportedStoreError, match=f"only one of every {folders} segments: if storePathCommitLog"):
        open_log(tmp_path)


@pytest.mark.parametrize("numbers", [(0, 2), (0, 1, 3), (0, 2, 3), (0, 2, 5), (0, 1, 2)])
def test_missing_segments_are_no_other_folder_s(numbers: tuple[int, ...], tmp_path: Path) -> None:
    make_files(tmp_path, segments(*numbers))
    assert len(open_log(tmp_path).segments) == len(numbers)


def test_segments_of_several_folders_can_be_read_when_they_are_linked_together(tmp_path: Path) -> None:
    writer = LogWriter(SIZE)
    while len(writer.segments) < 6:
        writer.append(1000 + len(writer.offsets), bytes(300))
    store = writer.write(tmp_path / "whole")
    expected = by_hopping(CommitLog.open(store))
    folders = [tmp_path / "disk0" / "commitlog", tmp_path / "disk1" / "commitlog", tmp_path / "linked" / "commitlog"]
    for folder in folders:
        folder.mkdir(parents=True)
    for number, file in enumerate(sorted((tmp_path / "whole" / "commitlog").iterdir())):
        part = folders[number % 2] / file.name
        file.rename(part)
        os.symlink(part, folders[2] / file.name)
    for folder in folders[:2]:
        with pytest.raises(UnsupportedStoreError, match="Link the segments"):
            open_log(folder.parent)
    linked = by_hopping(open_log(tmp_path / "linked"))
    assert offsets_of(linked) == offsets_of(expected) == writer.offsets


@pytest.fixture
def without_rocksdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package that reads RocksDB is not installed."""
    for module in ("store.config.store_kind", "store.config.config_file", "store.queue.queue_database"):
        monkeypatch.setattr(f"spark_mq.{module}.can_read_rocksdb", lambda: False)


@pytest.mark.usefixtures("without_rocksdict")
def test_a_rocksdb_consume_queue_does_not_hinder_reading_and_is_no_queue(tmp_path: Path) -> None:
    make_files(tmp_path, segments(0))
    make_files(tmp_path / "consumequeue", ROCKSDB)
    make_files(tmp_path / "config" / "consumerOffsets", ROCKSDB)
    store = Location.resolve(str(tmp_path))
    assert len(CommitLog.open(store).segments) == 1
    assert list(queue_folders(store / "consumequeue")) == []
    assert is_rocksdb(store / "consumequeue")
    with pytest.raises(UnsupportedStoreError, match=r"RocksDB database .* give another --output"):
        refuse_rocksdb(store / "consumequeue")
    assert [note.path for note in check_form(store, Door.FILES)] == ["consumequeue", "config/consumerOffsets"]


@pytest.mark.usefixtures("without_rocksdict")
def test_consumers_offsets_of_the_second_kind_of_rocksdb_config_are_noted(tmp_path: Path) -> None:
    make_files(tmp_path / "config" / "rdb", ROCKSDB)
    store = Location.resolve(str(tmp_path))
    assert [note.path for note in check_form(store, Door.FILES)] == ["config/rdb"]


def test_a_file_is_no_rocksdb_database(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").write_bytes(b"")
    assert not is_rocksdb(Location.resolve(str(tmp_path / "consumequeue")))


@pytest.mark.parametrize("names", [[], ["CURRENT"], ["MANIFEST-000005"], ["T/0/" + "0" * 20, "CURRENT/0/" + "0" * 20]])
def test_queue_folders_are_no_rocksdb_database(names: list[str], tmp_path: Path) -> None:
    make_files(tmp_path, names)
    location = Location.resolve(str(tmp_path))
    assert not is_rocksdb(location)
    refuse_rocksdb(location)
    assert check_form(location / "nowhere", Door.FILES) == []


@pytest.mark.parametrize("store", stores_in(OWN_STORES), ids=str)
def test_a_real_store_is_a_plain_one(store: RealStore, unpacked: Unpack) -> None:
    location = Location.resolve(str(unpacked(store)))
    assert CommitLog.open(location).segments
    assert not is_rocksdb(location / "consumequeue")
    assert [check_form(location, door) for door in Door] == [[]] * len(Door)
