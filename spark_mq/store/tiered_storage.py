"""Tiered storage (`TieredMessageStore`, 5.3.0 and later): messages, units and index files that a broker uploaded.

The files are in the folder `tieredStoreFilePath` (`PosixFileSegment`@5.3.3, the same in 5.5.0), each at
`HASH_CLUSTER/BROKER/TOPIC/QUEUE ID/TYPE/NAME`. HASH and the first eight characters of NAME are the start of an MD5.
Each queue has a log of its own, whose records have their offset in that log as their own offset
(`CommitLogInputStream`@5.3.3), so it is read as a commit log is; and a consume queue, whose units lead into it. A file
begins where the one before it ends, and no record is in two files. `config/tieredStoreMetadata.json` of the store lists
the files (`DefaultMetadataStore`@5.3.3).

A broker writes records before units. If it is killed in between, it uploads the messages again, and no unit leads to
their first records.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import CorruptIndexError, OptionError
from spark_mq.format.array_types import Int64s, native
from spark_mq.format.arrow_array import table_of, timestamps
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Units
from spark_mq.format.message_row import Row
from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS
from spark_mq.format.timestamp import micros
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import as_integer, load_config
from spark_mq.store.log.commit_log import Segment
from spark_mq.store.log.segment_files import MAX_OFFSET
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.tiered import TIERED_INDEX_ENTRIES, TIERED_QUEUES, TIERED_SEGMENTS, TIERED_UNITS

METADATA = "tieredStoreMetadata.json"
COMMIT_LOG, CONSUME_QUEUE, INDEX = TYPES = ("COMMIT_LOG", "CONSUME_QUEUE", "INDEX")
"""The folders of a queue, by `FileSegmentType`@5.3.3."""
INDEX_TOPIC = "rmq_sys_INDEX"
END_MAGIC = (0xCCDDEEFF ^ (1880681586 + 8)) - (1 << 32)
"""The first number of an index file that was uploaded (`IndexStoreFile.END_MAGIC_CODE`@5.3.3)."""
INDEX_HEADER_DTYPE = np.dtype(
    [("magic", ">i4"), ("begin_timestamp", ">i8"), ("end_timestamp", ">i8"), ("slots", ">i4"), ("entries", ">i4")]
)
SLOT_DTYPE = np.dtype([("position", ">i4"), ("length", ">i4")])
ENTRY_DTYPE = np.dtype(
    [
        *(("key_hash", ">i4"), ("topic_id", ">i4"), ("queue_id", ">i4"), ("commit_log_offset", ">i8")),
        *(("store_size", ">i4"), ("time_difference", ">i4")),
    ]
)
"""An entry of an index file that was uploaded (`IndexItem.COMPACT_INDEX_ITEM_SIZE`@5.3.3)."""
_NAME = re.compile(r"[0-9a-f]{8}\d{20}")
_QUEUE_OFFSET_AT = 20
_STATUS = ("NEW", "SEALED", "DELETED")
_OF_ENTRY = ("key_hash", "topic_id", "queue_id", "commit_log_offset", "store_size")
_LOG = logging.getLogger(__name__)
_BLOCK = 1 << 16
"""The most units that are read together."""


class SegmentMetadata(NamedTuple):
    """What the metadata say of a file; times are milliseconds, and not set while nothing was written."""

    broker: str
    topic: str
    queue_id: int
    type: str
    base: int
    size: int
    status: int
    created: int
    begin: int
    end: int


class Metadata(NamedTuple):
    """The content of the metadata: the ids and reserved hours of topics, and the files."""

    topics: Mapping[str, tuple[int, int]]
    segments: Sequence[SegmentMetadata]


def _decode(content: Mapping[str, Any]) -> Metadata:
    topics = {
        str(name): (as_integer(one["topicId"], 32), as_integer(one.get("reserveTime", -1), 64))
        for name, one in (content.get("topicMetadataTable") or {}).items()
    }
    names = ("baseOffset", "size", "status", "createTimestamp", "beginTimestamp", "endTimestamp")
    segments = [
        SegmentMetadata(*_queue_of(queue), kind, *(as_integer(one.get(name, 0), 64) for name in names))
        for kind, table in zip(TYPES, ("commitLog", "consumeQueue", "index"), strict=True)
        for queue, files in (content.get(f"{table}FileSegmentTable") or {}).items()
        for one in files.values()
    ]
    return Metadata(topics, segments)


def _queue_of(path: str) -> tuple[str, str, int]:
    broker, topic, queue_id = path.split("/")
    return broker, topic, as_integer(queue_id, 32)


@dataclass(frozen=True)
class TieredSegment:
    """A file of tiered storage: what the metadata say of it, and the file; None if one of them is not there.

    `is_last` says that the metadata list no later file of its type and queue, and `before` is the file before it.
    """

    topic: str
    queue_id: int
    type: str
    base: int
    listed: SegmentMetadata | None
    file: Segment | None
    is_last: bool
    before: Segment | None = None

    @property
    def problem(self) -> str | None:
        """How it differs from the metadata, and from the end of the file before it.

        At its start a broker takes the size of the last file from the file.
        """
        if self.file is None:
            is_empty = self.listed is not None and self.listed.size == 0
            return None if is_empty else "the metadata list the file, and it is not there"
        if self.listed is None:
            return "the metadata do not list the file" if self.file.size else None
        if self.before is not None and self.before.end_offset != self.base:
            return f"the file before it ends at {self.before.end_offset}"
        if self.type == CONSUME_QUEUE and (self.file.size % UNIT_SIZE or self.base % UNIT_SIZE):
            return f"units have {UNIT_SIZE} bytes, and the file does not begin or end with a whole one"
        size, found = self.listed.size, self.file.size
        grows = self.is_last and self.type != INDEX
        return f"the metadata say {size} bytes" if found < size or (found != size and not grows) else None


@dataclass(frozen=True)
class TieredQueue:
    """A queue in tiered storage: the files of its log, and those of its units."""

    topic: str
    queue_id: int
    log: tuple[Segment, ...]
    files: tuple[Segment, ...]

    @property
    def max_offset(self) -> int:
        """The queue offset after the last unit (`FlatMessageFile.getConsumeQueueCommitOffset`@5.3.3)."""
        return self.files[-1].end_offset // UNIT_SIZE if self.files else 0

    @cached_property
    def min_offset(self) -> int:
        """The first queue offset that a broker offers (`FlatMessageFile.getConsumeQueueMinOffset`@5.3.3)."""
        offset, first = -1, next((file for file in self.log if file.size), None)
        if first is not None:
            with FileReader(first.location) as reader:
                offset = int.from_bytes(reader.read(0, _QUEUE_OFFSET_AT + 8)[_QUEUE_OFFSET_AT:], "big", signed=True)
        return max(self.files[0].base // UNIT_SIZE if self.files else 0, offset)

    @cached_property
    def written(self) -> Int64s:
        """The queue offsets whose units are in the files."""
        parts = [np.arange(-(-file.base // UNIT_SIZE), file.end_offset // UNIT_SIZE) for file in self.files]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def units(self, queue_offsets: Int64s) -> Units:
        """The unit of each of the queue offsets; zeros for those that no file has."""
        if queue_offsets.size and (np.diff(queue_offsets) == 1).all():  # as a broker uploads messages
            return self._read(int(queue_offsets[0]), int(queue_offsets[0]) + queue_offsets.size)
        found: Units = np.zeros(queue_offsets.size, UNIT_DTYPE)
        bounds = np.array([(-(-file.base // UNIT_SIZE), file.end_offset // UNIT_SIZE) for file in self.files])
        if not bounds.size:
            return found
        starts, stops = bounds.T
        file = np.searchsorted(starts, queue_offsets, "right") - 1
        is_written = (file >= 0) & (queue_offsets < stops[file])
        if is_written.any():
            first, last = (int(end(queue_offsets[is_written])) for end in (np.min, np.max))
            blocks = (queue_offsets - first) // _BLOCK
            for block in np.unique(blocks[is_written]).tolist():
                some, start = is_written & (blocks == block), first + block * _BLOCK
                found[some] = self._read(start, min(start + _BLOCK, last + 1))[queue_offsets[some] - start]
        return found

    def _read(self, start: int, stop: int) -> Units:
        """The units from a queue offset on, before another one; zeros for those that no file has."""
        found: Units = np.zeros(stop - start, UNIT_DTYPE)
        memory, base = found.view(np.uint8), start * UNIT_SIZE
        for file in self.files:
            whole = -(-file.base // UNIT_SIZE) * UNIT_SIZE, file.end_offset // UNIT_SIZE * UNIT_SIZE
            first, last = max(base, whole[0]), min(stop * UNIT_SIZE, whole[1])
            if first < last:
                with FileReader(file.location) as reader:
                    data = reader.read(first - file.base, last - first)
                memory[first - base : last - base] = np.frombuffer(data, np.uint8)
        return found


@dataclass(frozen=True)
class TieredStorage:
    """The folder of a broker in tiered storage, and the metadata of its store."""

    folder: Location
    metadata: Metadata

    @classmethod
    def of(cls, store: Location, root: str) -> Self:
        """The tiered storage of a store; `root` is the folder `tieredStoreFilePath`, or that of the cluster in it.

        Raises `OptionError` if it is not, or the store has no metadata, and `ConfigError` if they cannot be read.
        """
        metadata, folder = load_config(store, METADATA, _decode), Location.resolve(root).snapshot()
        if metadata is None:
            raise OptionError(f"{store} has no config/{METADATA}: its broker has no tiered storage")
        brokers = {segment.broker for segment in metadata.segments}
        found = [
            cluster / broker
            for cluster in (folder, *(folder / name for name in folder.folders()))
            for broker in brokers.intersection(cluster.folders())
        ]
        if len(found) != 1:
            what = "more than one folder" if found else "no folder"
            names = ", ".join(sorted(brokers)) or "the store's broker, which uploaded nothing"
            raise OptionError(
                f"option tieredStorage: {folder} has {what} of {names}: give the broker's tieredStoreFilePath, or the "
                "folder of its cluster in it"
            )
        return cls(found[0], metadata)

    def queues(self, topic: str | None = None) -> list[TieredQueue]:
        """The queues, or those of a topic, by topic and queue id."""
        names = [name for name in self.folder.folders() if topic in (None, name) and name != INDEX_TOPIC]
        ids = [(name, int(one)) for name in names for one in (self.folder / name).folders() if _is_queue_id(one)]
        # A broker that runs writes records before units, so each unit that is listed has its record.
        units = [self.files(f"{name}/{queue_id}", CONSUME_QUEUE) for name, queue_id in sorted(ids)]
        logs = [self.files(f"{name}/{queue_id}", COMMIT_LOG) for name, queue_id in sorted(ids)]
        return [TieredQueue(*queue, *files) for queue, *files in zip(sorted(ids), logs, units, strict=True)]

    def files(self, queue: str, kind: str) -> tuple[Segment, ...]:
        """The files of one type of a queue, by the offset at which they begin; others than a broker's are left out."""
        folder = self.folder / queue / kind
        found = [
            Segment(folder / info.base_name, int(info.base_name[8:]), info.size, info.size, is_last=False)
            for info in folder.entries()
            if _NAME.fullmatch(info.base_name)
            and file_name(int(info.base_name[8:])) == info.base_name
            and int(info.base_name[8:]) + info.size <= MAX_OFFSET
        ]
        return tuple(sorted(found, key=lambda file: file.base))

    def segments(self) -> list[TieredSegment]:
        """All files that the metadata list, or that are there, by queue, type and offset."""
        listed = {(one.topic, one.queue_id, one.type, one.base): one for one in self.metadata.segments}
        there = {
            (topic, int(queue_id), kind, file.base): file
            for topic in self.folder.folders()
            for queue_id in filter(_is_queue_id, (self.folder / topic).folders())
            for kind in TYPES
            for file in self.files(f"{topic}/{queue_id}", kind)
        }
        lasts = {key[:3]: key for key in sorted(listed)}
        before = {after: there[key] for key, after in pairwise(sorted(there)) if key[:3] == after[:3]}
        return [
            TieredSegment(*key, listed.get(key), there.get(key), key >= lasts.get(key[:3], key), before.get(key))
            for key in sorted(listed.keys() | there.keys())
        ]

    @property
    def index_files(self) -> tuple[Segment, ...]:
        """The index files that were uploaded; a broker that stops makes an empty one of a file without entries."""
        return tuple(file for file in self.files(f"{INDEX_TOPIC}/0", INDEX) if file.size)


def _is_queue_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < 1 << 31


def file_name(base: int) -> str:
    """The name of the file that begins at an offset (`MessageStoreUtil.offset2FileName`@5.3.3)."""
    digest = hashlib.md5(str(base).encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:8]}{base:020d}"


def stored_offsets(store: MessageStore, queue: TieredQueue) -> range:
    """The queue offsets that the store itself has of a queue in tiered storage."""
    name = queue.topic, queue.queue_id
    if store.find_queue(*name) is None:
        return range(0)
    return range(store.get_min_offset_in_queue(*name), store.get_max_offset_in_queue(*name))


def tiered_queues(store: MessageStore, tiered_storage: str | None = None, topic: str | None = None) -> pa.Table:
    """The rows of table `tiered_queues`."""
    storage = find_storage(store, tiered_storage)
    rows = [] if storage is None else [_queue_row(store, storage, queue) for queue in storage.queues(topic)]
    return table_of(rows, TIERED_QUEUES.schema)


def find_storage(store: MessageStore, root: str | None) -> TieredStorage | None:
    """The tiered storage of a store; None without a folder: its tables have no rows then."""
    if root is None:
        what = "tables of tiered storage have no rows without option tieredStorage (--tiered-storage)"
        _LOG.warning("%s: %s", store.location, what)
        return None
    return TieredStorage.of(store.location, root)


def _queue_row(store: MessageStore, storage: TieredStorage, queue: TieredQueue) -> Row:
    topic_id, reserved = storage.metadata.topics.get(queue.topic, (None, -1))
    uploaded, stored = range(queue.min_offset, queue.max_offset), stored_offsets(store, queue)
    both = range(max(uploaded.start, stored.start), min(uploaded.stop, stored.stop))
    row: Row = {"topic": queue.topic, "queue_id": queue.queue_id, "topic_id": topic_id}
    row |= {"min_offset": uploaded.start, "max_offset": uploaded.stop, "only_tiered_count": len(uploaded) - len(both)}
    row["not_uploaded_count"] = max(stored.stop - max(uploaded.stop, stored.start), 0)
    row["reserve_hours"] = reserved if reserved > 0 else None
    return row | {"log_bytes": sum(file.size for file in queue.log)}


def tiered_segments(store: MessageStore, tiered_storage: str | None = None, topic: str | None = None) -> pa.Table:
    """The rows of table `tiered_segments`: the files that the metadata list, and those that are there."""
    storage = find_storage(store, tiered_storage)
    found = storage.segments() if storage is not None else ()
    return table_of([_segment_row(one) for one in found if topic in (None, one.topic)], TIERED_SEGMENTS.schema)


def _segment_row(one: TieredSegment) -> Row:
    row: Row = {"topic": one.topic, "queue_id": one.queue_id, "file_type": one.type, "base_offset": one.base}
    row |= {"file": file_name(one.base), "file_size": None if one.file is None else one.file.size}
    row["problem"] = one.problem
    if one.listed is not None:
        times = {"begin": one.listed.begin, "end": one.listed.end, "create": one.listed.created}
        stated = {name: time for name, time in times.items() if 0 <= time <= MAX_TIMESTAMP_MILLIS}
        row |= {f"{name}_timestamp": micros(time) for name, time in stated.items()}
        row["size"] = one.listed.size
        row["status"] = _STATUS[one.listed.status] if one.listed.status in range(len(_STATUS)) else None
    return row


def tiered_units(store: MessageStore, tiered_storage: str | None = None, topic: str | None = None) -> pa.Table:
    """The rows of table `tiered_units`, by topic, queue id and queue offset."""
    parts, storage = [TIERED_UNITS.schema.empty_table()], find_storage(store, tiered_storage)
    for queue in storage.queues(topic) if storage is not None else ():
        offsets, units = queue.written, queue.units(queue.written)
        arrays = [
            pa.repeat(pa.scalar(queue.topic), units.size),
            pa.repeat(pa.scalar(queue.queue_id, pa.int32()), units.size),
            pa.array(offsets),
            *(pa.array(native(units[name])) for name in UNIT_DTYPE.names or ()),
            pa.array(offsets >= queue.min_offset),
        ]
        parts.append(pa.Table.from_arrays(arrays, schema=TIERED_UNITS.schema))
    return pa.concat_tables(parts)


def tiered_index_entries(store: MessageStore, tiered_storage: str | None = None) -> pa.Table:
    """The rows of table `tiered_index_entries`: the entries of the files that were uploaded, in their order."""
    parts, storage = [TIERED_INDEX_ENTRIES.schema.empty_table()], find_storage(store, tiered_storage)
    topics = {} if storage is None else {topic_id: name for name, (topic_id, _) in storage.metadata.topics.items()}
    for file in storage.index_files if storage is not None else ():
        header, _, entries = read_index(file)
        times = int(header["begin_timestamp"]) + entries["time_difference"].astype(np.int64) * 1000
        known = pa.array(list(topics), pa.int64())
        at = pc.index_in(pa.array(entries["topic_id"].astype(np.int64)), known)
        arrays = {name: pa.array(native(entries[name])) for name in _OF_ENTRY}
        arrays |= {
            "file": pa.repeat(pa.scalar(file.location.name), entries.size),
            "topic": pa.array(list(topics.values()), pa.string()).take(at),
            "store_timestamp": timestamps(times),
        }
        parts.append(pa.Table.from_pydict(arrays, TIERED_INDEX_ENTRIES.schema))
    return pa.concat_tables(parts)


def read_index(file: Segment) -> tuple[Any, Any, Any]:
    """The header, the slots and the entries of an index file. Raises `CorruptIndexError` if it has another form."""
    data = file.location.read_bytes()
    if len(data) >= INDEX_HEADER_DTYPE.itemsize:
        header = np.frombuffer(data, INDEX_HEADER_DTYPE, 1)[0]
        rest = len(data) - INDEX_HEADER_DTYPE.itemsize - int(header["entries"]) * ENTRY_DTYPE.itemsize
        if header["magic"] == END_MAGIC and header["entries"] >= 0 and rest > 0 and rest % SLOT_DTYPE.itemsize == 0:
            slots = np.frombuffer(data, SLOT_DTYPE, rest // SLOT_DTYPE.itemsize, INDEX_HEADER_DTYPE.itemsize)
            return header, slots, np.frombuffer(data, ENTRY_DTYPE, -1, INDEX_HEADER_DTYPE.itemsize + rest)
    raise CorruptIndexError(
        f"{file.location}: {len(data)} bytes are not an index file of tiered storage that was uploaded whole: "
        "`spark-mq verify --tiered-storage` names damage"
    )
