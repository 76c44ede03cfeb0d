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
OF_NODE = ["checkpoint", "currterm", "data/00000000000000000000", "data/00000000000000004096", "index/" + "0" * 20]
DLEDGER = [f"dledger-n0/{name}" for name in OF_NODE]
DLEDGER_2 = [*DLEDGER, *(f"dledger-n1/{name}" for name in OF_NODE)]
ROCKSDB = ["000004.log", "000010.sst", "CURRENT", "IDENTITY", "LOCK", "MANIFEST-000005", "OPTIONS-000007"]


def make_files(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\1" * SIZE)


def segments(*numbers: int) -> list[str]:
    return [f"commitlog/{number * SIZE:020d}" for number in numbers]


def open_log(folder: Path) -> CommitLog:
    return CommitLog.open(Location.resolve(str(folder)))


@pytest.mark.parametrize(
    ("files", "opened", "error", "message"),
    [
        (DLEDGER, "dledger-n0", StoreNotFoundError, "is a part of a DLedger log: give the folder /"),
        (DLEDGER, "dledger-n0/data", StoreNotFoundError, "is a part of a DLedger log: give the folder /"),
        (DLEDGER_2, ".", UnsupportedStoreError, "several DLedger nodes, dledger-n0 and dledger-n1: give a folder"),
        (segments(0, 1), "commitlog", StoreNotFoundError, "is itself a folder of segments, .* that contains"),
        (["store"], "store", StoreNotFoundError, "is a file: give the broker's store directory"),
        (["commitlog/0.gz"], ".", StoreNotFoundError, "commitlog contains 0.gz, but no segments: .* 20 digits"),
        (["commitlog/part-0"], ".", StoreNotFoundError, "commitlog contains part-0, but no segments: .* 20 digits"),
        ([f"commitlog/disk1/{0:020d}"], ".", StoreNotFoundError, "commitlog contains disk1, but no segments"),
        (segments(0, 2, 4), ".", UnsupportedStoreError, "only one of every 2 segments: if storePathCommitLog"),
        (segments(1, 3, 5, 7), ".", UnsupportedStoreError, "only one of every 2 segments: if storePathCommitLog"),
        (segments(2, 5, 8), ".", UnsupportedStoreError, "only one of every 3 segments: if storePathCommitLog"),
    ],
)
def test_what_is_no_store_is_named(
    files: list[str], opened: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    make_files(tmp_path, files)
    with pytest.raises(error, match=message) as raised:
        open_log(tmp_path / opened)
    assert files != DLEDGER or str(raised.value).endswith(f"give the folder {tmp_path}")


@pytest.mark.parametrize("numbers", [(0, 2), (0, 1, 3), (0, 2, 3), (0, 2, 5), (0, 1, 2)])
def test_missing_segments_are_no_other_folder_s(numbers: tuple[int, ...], tmp_path: Path) -> None:
    make_files(tmp_path, [*segments(*numbers), "commitlog/.DS_Store", "dledger-n0/currterm"])
    (tmp_path / "dledger-n1" / "data").mkdir(parents=True)  # a DLedger folder without a log does not matter
    assert len(open_log(tmp_path).segments) == len(numbers)


def test_hidden_files_make_no_log(tmp_path: Path) -> None:
    make_files(tmp_path, ["commitlog/.DS_Store"])
    assert open_log(tmp_path).segments == ()


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
