"""Staged splits: a row for each (`SplitRow`), and files: units in runs by queue, index entries, records for RocksDB.

Units and entries are numerous (twenty bytes each), so they stay out of the JVM: a task writes the file, and the tasks
that write queue files and index files read the parts that they need. Spark only gets the row.

A *run* is consecutive queue offsets of one queue file, in the order of the log; its 20-byte units are ready to be
written. Units for RocksDB have 28 bytes, as the store time is there, too. After the units of all runs, the file has
their directory: an Arrow stream of `RUN_SCHEMA`, in the same order.

The entries are in the order of the log. A staged entry is an entry of an index file that has the store timestamp of
its message in place of the last two numbers, which depend on the file (`format/kernels/index_put`). Writers and readers
need the memory of a few entries only, however many keys the messages of a split have. A hash can be marked: all of its
bits are inverted, so it is negative. It is the hash of tags, of which something else says whether a broker put the
entry (`indexer.tag_entries`). Who does not ask for marks gets the hash itself.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import NativeFile

from spark_mq.errors import StorageError
from spark_mq.format.array_types import ArrayRows, Bytes, Int32s, Int64s
from spark_mq.format.consume_queue import UNIT_SIZE, Queue, Units
from spark_mq.format.properties import UNIQUE_KEY
from spark_mq.format.record import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import write_table
from spark_mq.store.index.index_database import HOUR
from spark_mq.store.log.segment_files import CorruptRange

if TYPE_CHECKING:
    from spark_mq.store.log.record_reader import RecordChunk

MAX_RUN_UNITS = 13_000
"""The limit of units in a run: about 256 KiB, so that a batch of a few dozen runs stays small."""

READERS = 8
"""The number of threads that read directories of many splits: on a remote filesystem each takes a while."""

RUN_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("file_number", pa.int64()),
        ("first_queue_offset", pa.int64()),
        ("unit_count", pa.int64()),
        ("commit_log_offset", pa.int64()),
        ("last_store_timestamp", pa.int64()),
    ]
)
"""A row for each run. `commit_log_offset` is the offset of its first message, `last_store_timestamp` is in ms."""
STAGED_ENTRY_DTYPE = np.dtype([("key_hash", ">i4"), ("commit_log_offset", ">i8"), ("store_timestamp", ">i8")])
"""A staged entry; timestamps are in milliseconds."""
STAGED_ENTRY_SIZE = STAGED_ENTRY_DTYPE.itemsize
BATCH_ENTRIES = 1 << 20
"""Entries that are read together."""
_TABLE_SIZE = 32 << 20
"""Bytes of keys and values after which a table is written."""
_AROUND = 32
"""More than the bytes of a key that are neither topic, key nor unique key."""


@dataclass(frozen=True)
class StagedUnits:
    """A file of units. A file without a unit does not exist.

    Runs of queues in `starts` that begin before their commit log offset there are not read.
    """

    location: Location
    units: int
    runs: int
    size: int
    unit_size: int = UNIT_SIZE
    starts: Mapping[Queue, int] = field(default_factory=dict)

    @classmethod
    def write(cls, folder: Location, units: Units, runs: pa.RecordBatch) -> Self:
        """Write a new file: the units of at least one run (`RUN_SCHEMA`), in the order of the runs."""
        directory = pa.BufferOutputStream()
        with pa.ipc.new_stream(directory, RUN_SCHEMA) as stream:
            stream.write_batch(runs)
        content = directory.getvalue()
        # Names are unique, so the file of a task that Spark ran again is never read.
        location = folder / f"{uuid.uuid4().hex}.units"
        # The manifest names the file only after all splits are staged, so neither rename nor flush is needed.
        with location.open_output() as file:
            file.write(units.view(np.uint8).data)
            file.write(content)
        return cls(location, units.size, runs.num_rows, units.nbytes + content.size, units.itemsize)

    def read_runs(self) -> pa.Table:
        """The directory: the columns of `RUN_SCHEMA`, and `first_unit`, the number of a run's first unit."""
        at = self.units * self.unit_size
        with FileReader(self.location) as file:
            content = file.read(at, self.size - at)
        try:
            runs = pa.ipc.open_stream(content).read_all()
        except (pa.ArrowException, OSError) as error:  # Arrow: the stream ends too early
            raise StorageError(f"{self.location} is not complete: run the job again without --resume") from error
        counts = runs["unit_count"].to_numpy() if runs.schema.equals(RUN_SCHEMA) else np.zeros(0, np.int64)
        if (counts.size, int(counts.sum())) != (self.runs, self.units):
            raise StorageError(f"{self.location} has other runs than were staged: run the job again without --resume")
        runs = runs.append_column("first_unit", pa.array(counts.cumsum() - counts))
        if not self.starts:
            return runs
        names = pa.array([f"{queue_id}/{topic}" for topic, queue_id in self.starts])
        of_runs = pc.binary_join_element_wise(runs["queue_id"].cast(pa.string()), runs["topic"], "/")
        place = pc.index_in(of_runs, names).fill_null(-1)
        starts = np.array([*self.starts.values(), 0])[place.to_numpy()]  # the last one is that of all other queues
        return runs.filter(pa.array(runs["commit_log_offset"].to_numpy() >= starts))


@dataclass(frozen=True)
class EntryBatch(ArrayRows):
    """Entries in the order of the log; the three arrays have the same length. Timestamps are in milliseconds."""

    key_hashes: Int32s
    commit_log_offsets: Int64s
    store_timestamps: Int64s

    @classmethod
    def of(cls, entries: Bytes, keep_marks: bool = False) -> Self:
        """The values of staged entries; `keep_marks` leaves marked hashes negative."""
        rows = entries.view(STAGED_ENTRY_DTYPE)
        key_hashes = rows["key_hash"].astype(np.int32)
        if not keep_marks:
            key_hashes ^= key_hashes >> 31
        return cls(key_hashes, rows["commit_log_offset"].astype(np.int64), rows["store_timestamp"].astype(np.int64))


NO_ENTRIES = EntryBatch.of(np.empty(0, np.uint8))


@dataclass(frozen=True)
class StagedEntries:
    """A file of `count` entries; a file without an entry does not exist."""

    location: Location
    count: int

    def count_before(self, commit_log_offset: int) -> int:
        """The number of entries of messages before an offset."""
        if not self.count:
            return 0
        with FileReader(self.location) as file:
            return bisect_left(
                range(self.count),
                commit_log_offset,
                key=lambda number: EntryBatch.of(self.read(file, number, 1)).commit_log_offsets.item(),
            )

    def read(self, file: FileReader, start: int, count: int) -> Bytes:
        """The `count` entries from number `start` on, as they are staged."""
        entries = np.empty(count * STAGED_ENTRY_SIZE, np.uint8)
        if file.read_into(entries.data, start * STAGED_ENTRY_SIZE) < entries.nbytes:
            raise StorageError(f"{self.location} is not complete: run the job again without --resume")
        return entries

    def all(self) -> EntryRange:
        """All entries of the file."""
        return EntryRange(self, 0, self.count)


@dataclass(frozen=True)
class EntryRange:
    """The `count` entries of a staged file from number `start` on."""

    staged: StagedEntries
    start: int
    count: int

    def part(self, start: int, count: int) -> EntryRange:
        """The `count` entries of the range from its entry `start` on."""
        return EntryRange(self.staged, self.start + start, count)

    def read_staged(self, most: int) -> Iterator[Bytes]:
        """The bytes of the entries, in batches of no more than `most` entries."""
        if self.count:
            with FileReader(self.staged.location) as file:
                for start in range(0, self.count, most):
                    yield self.staged.read(file, self.start + start, min(most, self.count - start))

    def read(self, keep_marks: bool = False) -> Iterator[EntryBatch]:
        """The entries, in batches; `keep_marks` leaves marked hashes negative."""
        return (EntryBatch.of(part, keep_marks) for part in self.read_staged(BATCH_ENTRIES))

    def entry(self, number: int) -> tuple[int, int, int]:
        """Key hash, commit log offset and store timestamp of the entry `number` of the range."""
        (batch,) = self.part(number, 1).read()
        return batch.key_hashes.item(), batch.commit_log_offsets.item(), batch.store_timestamps.item()


class StagedEntriesWriter:
    """Writes a file of entries into `folder`. When the writer is closed, `staged` is the whole file."""

    def __init__(self, folder: Location) -> None:
        # Names are unique, so the file of a task that Spark ran again is never read.
        self.staged = StagedEntries(folder / f"{uuid.uuid4().hex}.entries", 0)
        self._stream: NativeFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def add(self, entries: Bytes) -> None:
        """Append staged entries that come next in the log."""
        if not entries.size:
            return
        location = self.staged.location
        if self._stream is None:
            # The manifest names the file only after all splits are staged, so neither rename nor flush is needed.
            self._stream = location.open_output()
        self._stream.write(entries.data)
        self.staged = StagedEntries(location, self.staged.count + entries.size // STAGED_ENTRY_SIZE)


class BatchRun(NamedTuple):
    """The units of one batch consume queue in a split's file of them: the number of the first one, and how many."""

    topic: str
    queue_id: int
    first: int
    unit_count: int


class RecordTable(NamedTuple):
    """A sorted table of index records for RocksDB: its file, and of its messages the last one, and the newest time."""

    name: str
    size: int
    records: int
    last_offset: int
    newest_timestamp: int


class RecordTablesWriter:
    """Writes the index records of the chunks of a split into `folder`; `tables` names what is written.

    Which records a message has says `IndexRocksDBStore.buildIndex`@5.5.0, and `store/index/index_database` has their
    form. A message needs a unique key. Each different piece of KEYS has a record, the tags have one in every version,
    and the unique key itself. Tables have a limited size, because RocksDB needs their records sorted: nothing else
    limits the memory, as a message of 32 KiB can have thousands of keys.
    """

    def __init__(self, folder: Location) -> None:
        self.tables: list[RecordTable] = []
        self._folder = folder
        self._parts: list[pa.Table] = []
        self._size = 0

    def add(self, part: RecordChunk) -> None:
        """Add the records of a chunk."""
        for records in index_records(part):
            self._parts.append(records)
            self._size += records.nbytes
            if self._size >= _TABLE_SIZE:
                self.write()

    def write(self) -> None:
        """Write a table of the records that are in none."""
        if not self._size:
            return
        records, self._parts, self._size = pa.concat_tables(self._parts).combine_chunks(), [], 0
        records = records.sort_by("key")
        keys = records["key"].combine_chunks()
        is_new = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        records = records.filter(pa.array(np.append(True, is_new)))
        # Names are unique, so the file of a task that Spark ran again is never read.
        name = f"{uuid.uuid4().hex}.sst"
        size = write_table((self._folder / name).path, _pairs(records))
        last, newest = (pc.max(records[column]).as_py() for column in ("commit_log_offset", "store_timestamp"))
        self.tables.append(RecordTable(name, size, records.num_rows, last, newest))


def index_records(part: RecordChunk) -> Iterator[pa.Table]:
    """The records of the messages of a chunk, in parts of a limited size; the value of each is its store time."""
    from spark_mq.format.kernels.columns import MessageColumns

    columns = MessageColumns(part.buffer, part.frames)
    times, types = columns.store_timestamp_millis(), part.frames.sys_flag & TRANSACTION_TYPE_MASK
    is_indexed = columns.has_property(UNIQUE_KEY) & (types != TRANSACTION_ROLLBACK_TYPE)
    columns = columns.part(is_indexed & (times >= HOUR) & (part.frames.topic_length > 0))
    frames = columns.frames
    times, offsets = columns.store_timestamp_millis(), part.base + frames.position
    messages = columns.record_batch(["topic", "keys", "tags", "unique_key"])
    begin = _joined(_int64_texts(times // HOUR * HOUR), b"@", messages["topic"], b"@")
    end = _joined(messages["unique_key"], b"@", _int64_texts(offsets))
    counts = 2 + pc.list_value_length(messages["keys"]).fill_null(0).to_numpy()
    around = (frames.topic_length + pc.binary_length(end).to_numpy() + _AROUND).astype(np.int64)
    parts = np.cumsum(counts * around + frames.properties_length) // _TABLE_SIZE
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), frames.size]):
        some, before, after = (of_all.slice(start, stop - start) for of_all in (messages, begin, end))
        of_key = pc.list_parent_indices(some["keys"])
        with_tags = np.flatnonzero(some["tags"].is_valid().to_numpy(zero_copy_only=False))
        keys = [
            _joined(before.take(of_key), b"K@", pc.list_flatten(some["keys"]), b"@", after.take(of_key)),
            _joined(before, b"T@", some["tags"], b"@", after).drop_null(),
            _joined(before, b"U@", after),
        ]
        rows = start + np.concatenate((of_key.to_numpy(), with_tags, np.arange(stop - start)))
        yield pa.table(
            {"key": pa.concat_arrays(keys), "commit_log_offset": offsets[rows], "store_timestamp": times[rows]}
        )


def _pairs(records: pa.Table) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values, as `rocksdict` takes them: one by one."""
    _, ends, texts = pa.concat_arrays(records["key"].chunks).buffers()
    text, values = texts.to_pybytes(), records["store_timestamp"].to_numpy().astype(">i8").view("V8")
    keys = (text[start:stop] for start, stop in pairwise(np.frombuffer(ends, np.int32, values.size + 1).tolist()))
    return zip(keys, values.tolist(), strict=True)


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    texts = [part if isinstance(part, bytes) else part.cast(pa.binary()) for part in parts]
    return pc.binary_join_element_wise(*texts, b"")


def _int64_texts(values: Int64s) -> pa.Array:
    """Each number as eight bytes."""
    return pa.Array.from_buffers(pa.binary(8), values.size, [None, pa.py_buffer(values.astype(">i8"))])


@dataclass
class SplitRow:
    """The result of one split: a task fills it in, and the driver keeps it. Times are in milliseconds.

    The positions are those of the first record or damage, and of the end of the last one; -1 if there is none. Files of
    staged units and entries exist only if they have any. `trailing_messages` follow the message with the last entry.
    """

    segment: int
    split_start: int
    split_stop: int
    first_position: int = -1
    end_position: int = -1
    messages: int = 0
    inner_batches: int = 0
    bytes_read: int = 0
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None
    newest_store_timestamp: int | None = None
    time_steps_back: bool = False
    corrupt: tuple[CorruptRange, ...] = ()
    units_file: str | None = None
    units: int = 0
    runs: int = 0
    units_size: int = 0
    entries_file: str | None = None
    index_entries: int = 0
    trailing_messages: int = 0
    last_unit_offset: int | None = None
    batches_file: str | None = None
    batch_runs: tuple[BatchRun, ...] = ()
    record_tables: tuple[RecordTable, ...] = ()
    unit_size: int = UNIT_SIZE

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The result of these values, with a mapping for each damage. Raises `TypeError` for other fields."""
        if values.keys() != {field.name for field in fields(cls)}:
            raise TypeError(f"{sorted(values)} are not the fields of a split")
        corrupt = tuple(CorruptRange(**damage) for damage in values["corrupt"])
        batch_runs = tuple(BatchRun(*run) for run in values["batch_runs"])
        tables = tuple(RecordTable(*table) for table in values["record_tables"])
        return cls(**{**values, "corrupt": corrupt, "batch_runs": batch_runs, "record_tables": tables})

    @property
    def start(self) -> int:
        """The commit log offset at which the split starts."""
        return self.segment + self.split_start

    def staged_units(self, folder: Location) -> StagedUnits | None:
        """The staged units in the folder of staged files; None without a unit."""
        if self.units_file is None:
            return None
        return StagedUnits(folder / self.units_file, self.units, self.runs, self.units_size, self.unit_size)

    def staged_entries(self, folder: Location) -> StagedEntries:
        """The staged index entries in the folder of staged files."""
        return StagedEntries(folder / (self.entries_file or ""), self.index_entries)
