"""Consume queues in RocksDB as a tree of queue files, so that each reader of queue files reads them.

A broker with `storeType=defaultRocksDB` has its units in a RocksDB database (`RocksDBConsumeQueueTable`@5.3.3, the same
bytes in 5.5.0). Its column family `default` has a value for each unit:

| key | i32 length of the topic, 0x01, topic, 0x01, i32 queue id, 0x01, i64 queue offset |
| --- | --- |
| value | i64 commit log offset, i32 store size, i64 tags code, i64 store time |

Here, the folder of the database shows `TOPIC/QUEUE ID/<20 digits>`, files of 300,000 units of 20 bytes, or of another
number, as a broker has them in files. Units before a queue's first one are pre-blank, as after
`ConsumeQueue.fillPreBlank`; zeros follow its last one. A broker deletes no unit from the database when its message
expires.

Column family `offset` says where each queue begins and ends (`RocksDBConsumeQueueOffsetTable`@5.3.3):

| key | i32 length of the topic, 0x01, topic, 0x01, `max` or `min`, 0x01, i32 queue id |
| --- | --- |
| value | i64 commit log offset, i64 queue offset: of the last unit, or of the first one |

The key `max` of queue 0 of `CHECKPOINT_TOPIC` has one i64: the commit log offset after the last message with a unit.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from pyarrow import fs

from spark_mq.errors import StorageError, UnsupportedStoreError
from spark_mq.format.consume_queue import (
    DATABASE_UNIT_DTYPE,
    DEFAULT_FILE_SIZE,
    UNIT_DTYPE,
    UNIT_SIZE,
    Queue,
    Units,
    pre_blank,
    queue_file_name,
)
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import DEFAULT, RocksDatabase, can_read_rocksdb
from spark_mq.io.storage import NetworkStorage, StoredFile
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import double_written_database, queue_database
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.queue.folders import QueueFolder, queue_folders

_CTRL_1 = b"\x01"
_AFTER = b"\x02"
"""The separator of `AbstractRocksDBStorage.CTRL_2`: no key of a queue is after a key that ends with it."""
_INT32, _INT64, _UINT64 = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">Q")
_NEGATIVE = b"\x80"
"""With this byte begin queue offsets that no broker asks for."""
_AFTER_TOPIC = 1 + _INT32.size + 1 + _INT64.size
"""Bytes of a key after the topic."""
_UNITS_AT_ONCE = 4096
OFFSETS = "offset"
"""The column family of the ends of queues."""
_END = struct.Struct(">qq")
_CHECKPOINT = ("CHECKPOINT_TOPIC", 0)
"""`TopicValidator.RMQ_SYS_ROCKSDB_OFFSET_TOPIC`@5.3.3."""


def unit_key_prefix(topic: str, queue_id: int) -> bytes:
    """The keys of a queue's units before the queue offset."""
    return _named(topic) + _CTRL_1 + _INT32.pack(queue_id) + _CTRL_1


def end_key(topic: str, queue_id: int, name: bytes) -> bytes:
    """The key of an end of a queue in the offset table; `name` is `max` or `min`."""
    return _CTRL_1.join((_named(topic), name, _INT32.pack(queue_id)))


def _named(topic: str) -> bytes:
    name = topic.encode()
    return _INT32.pack(len(name)) + _CTRL_1 + name


def offset_records(table: OffsetTable) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table of ends."""
    for name, ends in ((b"max", table.maximum), (b"min", table.minimum)):
        for queue, end in ends.items():
            yield end_key(*queue, name), _END.pack(*end)
    if table.checkpoint is not None:
        yield end_key(*_CHECKPOINT, b"max"), _INT64.pack(table.checkpoint)


def queue_tree(store: Location, file_size: int = DEFAULT_FILE_SIZE) -> Location:
    """The folder of a store's queue files; or its database, if the queues are only in RocksDB, as such a folder."""
    database = queue_database(store) if can_read_rocksdb() else None
    if database is None:
        return store / CONSUME_QUEUE
    return database_tree(database, file_size)


def has_light_queues(store: Location, conf: BrokerConf) -> bool:
    """Whether a store has light message queues, or its broker would make them from the log.

    In files they need enableMultiDispatch, too (`MultiDispatchUtils.checkMultiDispatchQueue`,
    `RocksDBConsumeQueueStore.dispatchLMQ`@5.5.0). Those of `has_light_database` do not count.
    """
    is_set = conf.is_enabled("enableMultiDispatch") or queue_database(store) is not None
    if conf.is_enabled("enableLmq") and is_set and not _has_them_in_database(conf):
        return True
    try:
        tree = queue_tree(store)
        topics = [topic for topic in tree.folders() if topic.startswith(LIGHT_PREFIX)]
        # Without enableLmq, 4.9 takes such names for topics, and has units in the queue with the message's queue id.
        return any(topics) and all((tree / topic).folders() == ["0"] for topic in topics)
    except StorageError:
        return False


def dispatches_to_light_queues(conf: BrokerConf) -> bool:
    """Whether a broker that has light message queues puts new units into them; without a file of settings, it does."""
    in_rocksdb = conf.has_rocksdb_store or _has_them_in_database(conf)
    is_enabled = conf.is_enabled("enableLmq") and (in_rocksdb or conf.is_enabled("enableMultiDispatch"))
    return is_enabled or not conf.is_given


def makes_light_queues(store: Location, conf: BrokerConf) -> bool:
    """Whether a broker makes light message queues, in files or in a database."""
    return has_light_queues(store, conf) or has_light_database(store, conf)


def has_light_database(store: Location, conf: BrokerConf) -> bool:
    """Whether light message queues are in a database beside the files of other queues (`CombineConsumeQueueStore`)."""
    return _has_them_in_database(conf) or bool(light_folders(store))


def light_database(store: Location, conf: BrokerConf) -> QueueDatabase | None:
    """The database of light message queues beside the files of other queues; None if there is none."""
    database = double_written_database(store) if has_light_database(store, conf) else None
    if database is None:
        return None
    found = QueueDatabase(database)
    found.open_database()
    return found


def lost_light_database(store: Location, conf: BrokerConf) -> bool:
    """Whether a broker has light message queues in a database beside the files of others, and there is no database."""
    is_there = double_written_database(store) is not None or queue_database(store) is not None
    return _has_them_in_database(conf) and not is_there


def _has_them_in_database(conf: BrokerConf) -> bool:
    return conf.is_enabled("rocksdbCQDoubleWriteEnable") and conf.is_enabled("combineCQUseRocksdbForLmq")


def light_folders(store: Location) -> list[QueueFolder]:
    """The light message queues that are in a database only, beside the files of other queues.

    If RocksDB does not open the database, there is a warning.
    """
    database = double_written_database(store) if can_read_rocksdb() else None
    if database is None or any(topic.startswith(LIGHT_PREFIX) for topic in (store / CONSUME_QUEUE).folders()):
        return []
    try:
        return [folder for folder in queue_folders(database_tree(database)) if folder.topic.startswith(LIGHT_PREFIX)]
    except StorageError as error:
        warnings.warn(f"{error}. Light message queues in it are left out", stacklevel=2)
        return []


def in_files(folders: Iterable[QueueFolder]) -> list[QueueFolder]:
    """Those of these queues that have files, and are not in a database."""
    return [folder for folder in folders if not isinstance(folder.location.storage, QueueDatabase)]


def database_tree(database: Location, file_size: int = DEFAULT_FILE_SIZE) -> Location:
    """The queues of a database as a folder of queue files of this size."""
    queues = QueueDatabase(database, file_size)
    queues.open_database()
    return Location(queues, database.path)


@dataclass(frozen=True)
class _Queue:
    """A queue of a database: name, first bytes of its keys, first queue offset, and the one after its last.

    `files` are the numbers of the files that have a unit. A damaged key can be far from all others.
    """

    topic: str
    queue_id: int
    prefix: bytes
    first: int
    stop: int
    files: tuple[int, ...]

    def key(self, queue_offset: int) -> bytes:
        """The key of the unit at a queue offset; the key after those of all units for 2^63."""
        return self.prefix + _UINT64.pack(queue_offset)


End = tuple[int, int]
"""Commit log offset and queue offset of the first or last unit of a queue."""


@dataclass(frozen=True)
class OffsetTable:
    """Where queues begin and end by the database.

    `checkpoint` is the commit log offset after the last message that has a unit; None if it is not known.
    """

    minimum: dict[Queue, End]
    maximum: dict[Queue, End]
    checkpoint: int | None


@dataclass(frozen=True)
class QueueDatabase(NetworkStorage):
    """The queues of one database, as files. Each process opens the database once, when it first needs it."""

    folder: Location
    file_size: int = DEFAULT_FILE_SIZE
    block = 8 << 10  # 400 units: each takes time, and the end of a log needs the last one of each queue
    what_to_check = "the files of the database"
    what_denies = "the rights of its files"

    def __reduce__(self) -> tuple[type[QueueDatabase], tuple[Location, int]]:
        return QueueDatabase, (self.folder, self.file_size)

    def open_database(self) -> None:
        """Open the database now, and not with the first question."""
        _ = self._database

    def read_all(self) -> None:
        """Read the whole database once. Raises `StorageError` if a part of it is damaged."""
        for family in (DEFAULT, OFFSETS):
            for _ in self._database.items(family):
                pass

    def stored_files(self) -> list[Location]:
        """The files in which RocksDB has the queues now."""
        return [self.folder / info.base_name for info in self.folder.entries()]

    @property
    def copied_at(self) -> int:
        """When the files were read (nanoseconds since the epoch)."""
        return self._database.copied_at

    @cached_property
    def _database(self) -> RocksDatabase:
        return RocksDatabase(self.folder)

    @cached_property
    def _queues(self) -> dict[str, dict[str, _Queue]]:
        """The queues by topic and queue id, as folders are called."""
        found: dict[str, dict[str, _Queue]] = {}
        for queue in self._all_queues():
            found.setdefault(queue.topic, {})[str(queue.queue_id)] = queue
        return found

    def _all_queues(self) -> Iterator[_Queue]:
        """All queues, each by the first key after those of the queue before."""
        start = b""
        while (key := next((key for key, _ in self._database.items(DEFAULT, start)), None)) is not None:
            name, prefix = _queue_of(key), key[: -_INT64.size]
            start = key + b"\0" if name is None else prefix[:-1] + _AFTER
            if name is not None and _offset(key) >= 0:
                last = self._database.last_key(DEFAULT, key, prefix + _NEGATIVE) or key
                first, stop = _offset(key), _offset(last, len(prefix)) + 1
                yield _Queue(*name, prefix, first, stop, tuple(self._file_numbers(key, last)))

    def _file_numbers(self, key: bytes, last: bytes) -> Iterator[int]:
        """The numbers of the files with the units of a queue from one key to another."""
        units, after = self.file_size // UNIT_SIZE, last + b"\0"
        found: bytes | None = key
        while found is not None:
            number = _offset(found, len(key) - _INT64.size) // units
            yield number
            start = key[: -_INT64.size] + _UINT64.pack((number + 1) * units)
            found = next((one for one, _ in self._database.items(DEFAULT, start, after)), None)

    def end_of(self, topic: str, queue_id: int) -> tuple[int, tuple[int, int, int]]:
        """The queue offset after the last unit of a queue that has units, and that unit."""
        queue = self._queues[topic][str(queue_id)]
        return queue.stop, self.units(queue, queue.stop - 1, queue.stop)[0].item()

    def last_units(self, log_end: int) -> dict[Queue, End]:
        """The last unit of each queue that leads to the log.

        A recovery that cuts the log leaves later units, which count no more (`RocksDBConsumeQueueStore.truncateDirty`).
        """
        found = {}
        for queue in (one for of_topic in self._queues.values() for one in of_topic.values()):
            stop = queue.stop
            while stop > queue.first:
                start = max(stop - _UNITS_AT_ONCE, queue.first)
                units = self.units(queue, start, stop)
                is_live = (units["store_size"] != 0) & (units["commit_log_offset"] < log_end)
                if is_live.any():
                    at = int(np.flatnonzero(is_live)[-1])
                    found[queue.topic, queue.queue_id] = int(units["commit_log_offset"][at]), start + at
                    break
                before = self._database.last_key(DEFAULT, queue.key(queue.first), queue.key(start))
                stop = queue.first if before is None else _offset(before, len(queue.prefix)) + 1
        return found

    def offset_table(self) -> OffsetTable:
        """The table of the ends of queues; keys and values of another form are left out, as a broker does."""
        table = OffsetTable({}, {}, None)
        for key, value in self._database.items(OFFSETS):
            (length,) = _INT32.unpack_from(key) if len(key) >= _INT32.size else (-1,)
            at = _INT32.size + 1
            if length < 0 or len(key) != at + length + 1 + 3 + 1 + _INT32.size:
                continue
            queue = key[at : at + length].decode("utf-8", "replace"), _INT32.unpack(key[-_INT32.size :])[0]
            is_max = key[at + length + 1 :].startswith(b"max")
            if len(value) == _END.size:
                (table.maximum if is_max else table.minimum)[queue] = _END.unpack(value)
            elif queue == _CHECKPOINT and is_max and len(value) == _INT64.size:
                table = OffsetTable(table.minimum, table.maximum, _INT64.unpack(value)[0])
        return table

    def commit_log_offset(self, queue: Queue, queue_offset: int) -> int | None:
        """The commit log offset of the unit of a queue at a queue offset; None if there is no unit."""
        found = self._queues.get(queue[0], {}).get(str(queue[1]))
        if found is None or not found.first <= queue_offset < found.stop:
            return None
        unit = self.units(found, queue_offset, queue_offset + 1)[0]
        return int(unit["commit_log_offset"]) if unit["store_size"] else None

    def units(self, queue: _Queue, start: int, stop: int) -> Units:
        """The units from queue offset `start` to `stop` (not included); zeros where there is none."""
        units = np.zeros(max(stop - start, 0), UNIT_DTYPE)
        first, last = max(start, queue.first), min(stop, queue.stop)
        if first < last:
            keys, key_size = (queue.key(first), queue.key(last)), len(queue.prefix) + _INT64.size
            stored = self._database.values(DEFAULT, *keys, DATABASE_UNIT_DTYPE.itemsize)
            values = np.frombuffer(stored, DATABASE_UNIT_DTYPE)
            places = np.arange(first, last) - start
            if values.size != last - first:
                names = np.frombuffer(self._database.keys(DEFAULT, *keys, key_size), np.uint8).reshape(-1, key_size)
                places = np.ascontiguousarray(names[:, -_INT64.size :]).view(">i8")[:, 0].astype(np.int64) - start
            for name in UNIT_DTYPE.names or ():
                units[name][places] = values[name]
        before = min(queue.first, stop) - start
        if before > 0:
            units[:before] = pre_blank(before)
        return units

    def uri(self, path: str) -> str:
        return path

    def info(self, path: str) -> fs.FileInfo:
        if path == self.folder.path:
            return fs.FileInfo(path, fs.FileType.Directory)
        beside = self.entries(path.rpartition("/")[0])
        return next((one for one in beside if one.path == path), fs.FileInfo(path, fs.FileType.NotFound))

    def entries(self, path: str, recursive: bool = False) -> list[fs.FileInfo]:
        names = path.removeprefix(self.folder.path).strip("/").split("/")
        match names:
            case [""]:
                below = [fs.FileInfo(f"{path}/{topic}", fs.FileType.Directory) for topic in sorted(self._queues)]
            case [topic]:
                ids = sorted(self._queues.get(topic, {}))
                below = [fs.FileInfo(f"{path}/{queue_id}", fs.FileType.Directory) for queue_id in ids]
            case [topic, queue_id] if queue_id in self._queues.get(topic, {}):
                queue = self._queues[topic][queue_id]
                paths = [f"{path}/{queue_file_name(number, self.file_size)}" for number in queue.files]
                below = [fs.FileInfo(file, fs.FileType.File, size=self.file_size) for file in paths]
            case _:
                below = []
        folders = [one.path for one in below if recursive and one.type == fs.FileType.Directory]
        return below + [info for folder in folders for info in self.entries(folder, recursive)]

    def open(self, path: str, size: int | None = None) -> StoredFile:
        return self._file(path)

    def data_end(self, path: str) -> int:
        file = self._file(path)
        stop = min(file.queue.stop, file.first + self.file_size // UNIT_SIZE)
        last = self._database.last_key(DEFAULT, file.queue.key(file.first), file.queue.key(stop))
        return 0 if last is None else (_offset(last, len(file.queue.prefix)) + 1 - file.first) * UNIT_SIZE

    def _file(self, path: str) -> _QueueFile:
        topic, queue_id, name = path.removeprefix(f"{self.folder.path}/").split("/")
        queue = self._queues.get(topic, {}).get(queue_id)
        if queue is None:
            raise FileNotFoundError(path)
        return _QueueFile(self, queue, int(name) // UNIT_SIZE)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedStoreError(f"{self.folder} is a RocksDB database, which is read, and not changed")

    write = make_folder = rename = delete = delete_folder = _refuse


@dataclass(frozen=True)
class _QueueFile:
    """One file of a queue: `first` is the queue offset of its first unit."""

    database: QueueDatabase
    queue: _Queue
    first: int

    @property
    def size(self) -> int:
        return self.database.file_size

    def read(self, position: int, length: int) -> bytes:
        stop = min(position + length, self.size)
        start, end = position // UNIT_SIZE, -(-stop // UNIT_SIZE)
        units = self.database.units(self.queue, self.first + start, self.first + end)
        return units.tobytes()[position - start * UNIT_SIZE :][: max(stop - position, 0)]


def _queue_of(key: bytes) -> Queue | None:
    """Topic and queue id in a key; None if it has another form."""
    length = len(key) - _INT32.size - 1 - _AFTER_TOPIC
    if length < 0 or _INT32.unpack_from(key)[0] != length:
        return None
    topic_at, after = _INT32.size + 1, _INT32.size + 1 + length
    if (key[topic_at - 1], key[after], key[after + 1 + _INT32.size]) != (1, 1, 1):
        return None
    return key[topic_at:after].decode("utf-8", "replace"), _INT32.unpack_from(key, after + 1)[0]


def _offset(key: bytes, at: int = -_INT64.size) -> int:
    """The queue offset in a key, which is damaged if it has fewer or more bytes: then that of the key's place."""
    offset: int = _INT64.unpack(key[at:][: _INT64.size].ljust(_INT64.size, b"\0"))[0]
    return offset
