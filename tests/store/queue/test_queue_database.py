"""Queues in RocksDB as queue files: the units of a database, whatever is in it (real ones: `tests/cli/test_forms`)."""

from __future__ import annotations

import errno
import os
import pickle
import random
import shutil
import struct
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.main import main
from spark_mq.errors import StorageError, UnsupportedStoreError
from spark_mq.format.consume_queue import DEFAULT_FILE_SIZE, PRE_BLANK_SIZE, UNIT_DTYPE, Queue, Units
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import RocksDatabase
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.log.segment_files import find_data_end
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFolder, queue_folders
from spark_mq.store.queue.queue_database import (
    QueueDatabase,
    database_tree,
    has_light_database,
    has_light_queues,
    makes_light_queues,
    queue_tree,
)
from tests.support.kernels import examples
from tests.support.rocksdb import ROCKS, key_of, write_database
from tests.support.soak import SOAKS
from tests.support.stores import Unpack

Written = dict[Queue, list[int]]
"""The queue offsets of each queue's units."""


def write(store: Path, queues: Written, others: Iterable[bytes] = ()) -> Location:
    (store / "commitlog").mkdir(parents=True)
    units = {
        key_of(topic, queue_id, offset): struct.pack(">qiqq", 1000 + offset, 100, -offset, 5)
        for (topic, queue_id), offsets in queues.items()
        for offset in offsets
    }
    write_database(store / "consumequeue", {"default": {**units, **dict.fromkeys(others, b"x")}})
    return Location.resolve(str(store))


def units_of(folder: QueueFolder) -> list[tuple[int, int, int]]:
    """The units of all files of a queue."""
    data = b"".join((folder.location / info.base_name).read_bytes() for info in folder.files)
    units: list[tuple[int, int, int]] = np.frombuffer(data, UNIT_DTYPE).tolist()
    return units


queues = st.dictionaries(
    st.tuples(st.sampled_from(["a", "ab", "b", "%LMQ%x", "ü"]), st.sampled_from([0, 1, 256, 2**31 - 1])),
    st.sets(st.integers(0, 40), min_size=1).map(sorted),
    max_size=5,
)


@pytest.mark.parametrize("offsets", [[0], [3, 4, 9], [9, 10, 19, 35], [25, 70]], ids=str)
def test_the_end_of_a_file_is_that_of_its_last_unit(offsets: list[int], tmp_path: Path) -> None:
    database = write(tmp_path / "store", {("a", 0): offsets, ("a", 1): [50], ("b", 0): [2]}) / "consumequeue"
    for folder in queue_folders(database_tree(database, 10 * UNIT_DTYPE.itemsize)):
        for info in folder.files:
            units = np.frombuffer((folder.location / info.base_name).read_bytes(), UNIT_DTYPE)
            written = np.flatnonzero((units["store_size"] != 0) & (units["store_size"] != PRE_BLANK_SIZE))
            end = find_data_end(folder.location / info.base_name, info.size)
            assert end == (int(written[-1]) + 1) * UNIT_DTYPE.itemsize, (folder.topic, folder.queue_id, info.base_name)


@settings(max_examples=examples(50))  # each has files of 300,000 units
@given(queues)
def test_files_have_the_units_of_the_database(tmp_path_factory: pytest.TempPathFactory, written: Written) -> None:
    tree = queue_tree(write(tmp_path_factory.mktemp("store") / "s", written))
    folders = {(folder.topic, folder.queue_id): folder for folder in queue_folders(tree)}
    assert folders.keys() == written.keys()
    for name, offsets in written.items():
        units = units_of(folders[name])
        assert len(units) == DEFAULT_FILE_SIZE // 20
        for offset, unit in enumerate(units[:50]):
            is_before = offset < offsets[0]
            absent = (0, PRE_BLANK_SIZE, 0) if is_before else (0, 0, 0)
            assert unit == ((1000 + offset, 100, -offset) if offset in offsets else absent), (name, offset)


def test_one_unit_is_read_with_few_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, units = list[int](), QueueDatabase.units

    def counted(database: QueueDatabase, queue: Any, start: int, stop: int) -> Units:
        asked.append(stop - start)
        return units(database, queue, start, stop)

    monkeypatch.setattr(QueueDatabase, "units", counted)
    (folder,) = queue_folders(queue_tree(write(tmp_path / "s", {("a", 0): list(range(9_000))})))
    with closing(FileReaders()) as readers:
        assert ConsumeQueue(folder, readers).unit(8_000) == (9000, 100, -8000)
    assert 0 < max(asked) <= 8192 // 20 + 2


def test_a_queue_that_begins_late_has_no_file_before(tmp_path: Path) -> None:
    first = 3 * 300_000 - 1
    (folder,) = queue_folders(queue_tree(write(tmp_path / "s", {("t", 0): [first, first + 1]})))
    assert [info.base_name for info in folder.files] == [
        f"{2 * DEFAULT_FILE_SIZE:020d}",
        f"{3 * DEFAULT_FILE_SIZE:020d}",
    ]
    units = units_of(folder)
    assert units[299_998:300_002] == [
        (0, PRE_BLANK_SIZE, 0),
        (1000 + first, 100, -first),
        (1001 + first, 100, -first - 1),
        (0, 0, 0),
    ]


def test_keys_of_another_form_are_no_queue(tmp_path: Path) -> None:
    others = [b"", b"x", b"\0\0\0\1", key_of("t", 0, 0)[:-1], b"\xff" * 40, struct.pack(">i", -5) + bytes(30)]
    folders = list(queue_folders(queue_tree(write(tmp_path / "s", {("t", 0): [0]}, filter(None, others)))))
    assert [(folder.topic, folder.queue_id) for folder in folders] == [("t", 0)]


def test_a_key_far_from_the_others_adds_one_file(tmp_path: Path) -> None:
    """A damaged queue offset must not make each file up to it."""
    tree = queue_tree(write(tmp_path / "s", {("t", 0): [0, 1, 1 << 60]}))
    (folder,) = queue_folders(tree)
    assert [info.base_name for info in folder.files] == [
        f"{0:020d}",
        f"{(1 << 60) // 300_000 * DEFAULT_FILE_SIZE:020d}",
    ]
    assert units_of(folder)[:3] == [(1000, 100, 0), (1001, 100, -1), (0, 0, 0)]
    assert isinstance(tree.storage, QueueDatabase)
    assert tree.storage.last_units(1002)["t", 0] == (1001, 1)


def test_a_negative_queue_offset_hides_no_unit(tmp_path: Path) -> None:
    (folder,) = queue_folders(queue_tree(write(tmp_path / "s", {("t", 0): [5], ("u", 0): []}, [key_of("t", 0, -1)])))
    assert units_of(folder)[5] == (1005, 100, -5)


@pytest.mark.parametrize("other", [key_of("t", 0, 1), key_of("t", 0, 0) + b"x"], ids=["value", "key"])
def test_a_key_or_value_of_another_size_is_an_error(tmp_path: Path, other: bytes) -> None:
    (folder,) = queue_folders(queue_tree(write(tmp_path / "s", {("t", 0): [0, 2]}, [other])))
    with pytest.raises(StorageError, match=r"consumequeue: a key or value has \d+ bytes, not \d+: it is damaged"):
        units_of(folder)


def test_another_process_opens_the_database_again(tmp_path: Path) -> None:
    (folder,) = queue_folders(queue_tree(write(tmp_path / "s", {("t", 0): [0, 1]})))
    assert units_of(pickle.loads(pickle.dumps(folder))) == units_of(folder)


def test_nothing_is_written(tmp_path: Path) -> None:
    tree = queue_tree(write(tmp_path / "s", {("t", 0): [0]}))
    for change in (tree.delete, tree.make_folder, lambda: tree.storage.rename("a", "b")):
        with pytest.raises(UnsupportedStoreError, match="is read, and not changed"):
            change()


def test_a_real_store_is_not_changed_by_reading_it(tmp_path: Path) -> None:
    store = ROCKS.unpack(tmp_path)

    def state() -> dict[str, tuple[int, int, int, bytes]]:
        files = [(path, path.stat()) for path in store.rglob("*") if path.is_file()]
        return {
            str(path): (info.st_mtime_ns, info.st_ctime_ns, info.st_nlink, path.read_bytes()) for path, info in files
        }

    before = state()
    with MessageStore(str(store), broker_conf=str(ROCKS.broker_conf)) as opened:
        assert len(opened.queues) == len(ROCKS.facts("queue"))
    assert main(["lag", str(store)]) == FOUND
    assert state() == before


def test_a_database_that_does_not_open_hides_no_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log has them; what needs the queues says why it has no answer."""
    store = ROCKS.unpack(tmp_path)
    for file in (store / "consumequeue").glob("MANIFEST-*"):
        file.write_bytes(file.read_bytes()[:20])
    fact = next(fact for fact in ROCKS.facts("msg") if fact["uniqKey"] and fact["topic"] == "PaymentLog")
    queue = fact["topic"], fact["queueId"]
    with MessageStore(str(store), broker_conf=str(ROCKS.broker_conf)) as opened:
        found = opened.get_message_result(*queue, fact["queueOffset"], 1, read_log=True).messages
        assert found["commit_log_offset"].to_pylist() == [fact["offset"]]
        with pytest.raises(UnsupportedStoreError, match="consumequeue: RocksDB does not open this database: "):
            opened.get_max_offset_in_queue(*queue)
        with pytest.raises(UnsupportedStoreError, match="RocksDB does not open"):
            _ = opened.queues
    assert main(["query-by-unique-key", str(store), fact["topic"], fact["uniqKey"]]) == FOUND
    assert fact["msgId"] in capsys.readouterr().out


def content_of(folder: Path) -> list[list[tuple[bytes, bytes]]]:
    database = RocksDatabase(Location.resolve(str(folder)))
    try:
        return [list(database.items(family)) for family in ("default", "offset")]
    finally:
        database.close()


def test_a_damaged_table_is_never_read_as_a_shorter_one(unpacked: Unpack, tmp_path: Path) -> None:
    """`rocksdict` ends an iteration at a damaged block without an error."""
    original, chosen = unpacked(ROCKS) / "consumequeue", random.Random(40)
    wanted, folder, harmless = content_of(original), tmp_path / "database", 0
    for _ in range(500 if SOAKS else 60):
        shutil.copytree(original, folder)
        file = chosen.choice(sorted(folder.glob("*.sst")))
        data, at = bytearray(file.read_bytes()), chosen.randrange(file.stat().st_size)
        if chosen.random() < 0.7:
            data[at] ^= 1 << chosen.randrange(8)
        else:
            data[at : at + 64] = bytes(len(data[at : at + 64]))
        file.write_bytes(data)
        with suppress(StorageError):
            assert content_of(folder) == wanted, (file.name, at)
            harmless += 1
        shutil.rmtree(folder)
    assert harmless < 20


@pytest.mark.parametrize(
    ("enabled", "in_files", "in_database"),
    [
        ("", False, False),
        ("enableLmq", False, False),
        ("enableMultiDispatch", False, False),
        ("enableLmq enableMultiDispatch", True, False),
        ("enableLmq enableMultiDispatch rocksdbCQDoubleWriteEnable", True, False),
        ("enableLmq enableMultiDispatch rocksdbCQDoubleWriteEnable combineCQUseRocksdbForLmq", False, True),
    ],
)
def test_settings_say_where_light_queues_are(enabled: str, in_files: bool, in_database: bool, tmp_path: Path) -> None:
    store, conf = Location.resolve(str(tmp_path)), BrokerConf(dict.fromkeys(enabled.split(), "true"))
    assert has_light_queues(store, conf) == in_files
    assert has_light_database(store, conf) == in_database
    assert makes_light_queues(store, conf) == (in_files or in_database)


def test_a_temporary_folder_without_room_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = write(tmp_path, {("a", 0): [0]})

    def no_room(_: RocksDatabase) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RocksDatabase, "_copy_files", no_room)
    with pytest.raises(OSError, match=r"No space left on device: '.*spark-mq-rocksdb-") as full:
        RocksDatabase(store / "consumequeue")
    assert not isinstance(full.value, StorageError)
