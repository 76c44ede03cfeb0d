"""Staged splits: a row for each (`SplitRow`), a file of its units in runs by queue, and a file of its index entries.

Units and entries are numerous (twenty bytes each), so they stay out of the JVM: a task writes the file, and the tasks
that write queue files and index files read the parts that they need. Spark only gets the row.

A *run* is consecutive queue offsets of one queue file, in the order of the log; its 20-byte units are ready to be
written. After the units of all runs, the file has their directory: an Arrow stream of `RUN_SCHEMA`, in the same order.

The entries are in the order of the log, in chunks of `CHUNK_ENTRIES`, of which the last one is shorter. A chunk is
three arrays, one after the other. So writers and readers need the memory of a few chunks only, however many keys the
messages of a split have. A hash can be marked: all of its bits are inverted, so it is negative. It is the hash of tags,
of which something else says whether a broker put the entry (`indexer.tag_entries`). Who does not ask for marks gets the
hash itself.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyarrow import NativeFile

from spark_mq.errors import StorageError
from spark_mq.format.array_types import Flags, Int32s, Int64s
from spark_mq.format.consume_queue import UNIT_SIZE, Units
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.log.segment_files import CorruptRange

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
CHUNK_ENTRIES = 1 << 20
STAGED_ENTRY_SIZE = 20


@dataclass(frozen=True)
class StagedUnits:
    """A file of units. A file without a unit does not exist."""

    location: Location
    units: int
    runs: int
    size: int

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
        return cls(location, units.size, runs.num_rows, units.nbytes + content.size)

    def read_runs(self) -> pa.Table:
        """The directory: the columns of `RUN_SCHEMA`, and `first_unit`, the number of a run's first unit."""
        at = self.units * UNIT_SIZE
        with FileReader(self.location) as file:
            content = file.read(at, self.size - at)
        try:
            runs = pa.ipc.open_stream(content).read_all()
        except (pa.ArrowException, OSError) as error:  # Arrow: the stream ends too early
            raise StorageError(f"{self.location} is not complete: run the job again without --resume") from error
        counts = runs["unit_count"].to_numpy() if runs.schema.equals(RUN_SCHEMA) else np.zeros(0, np.int64)
        if (counts.size, int(counts.sum())) != (self.runs, self.units):
            raise StorageError(f"{self.location} has other runs than were staged: run the job again without --resume")
        return runs.append_column("first_unit", pa.array(counts.cumsum() - counts))

    def has_directory(self) -> bool:
        """Whether the file, which has its size, ends with the directory that it was written with."""
        try:
            self.read_runs()
        except StorageError:
            return False
        return True


@dataclass(frozen=True)
class EntryBatch:
    """Entries in the order of the log; the three arrays have the same length. Timestamps are in milliseconds."""

    key_hashes: Int32s
    commit_log_offsets: Int64s
    store_timestamps: Int64s

    @classmethod
    def joined(cls, parts: Sequence[EntryBatch]) -> EntryBatch:
        """The entries of all parts."""
        none = (np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
        columns = ((part.key_hashes, part.commit_log_offsets, part.store_timestamps) for part in parts)
        return cls(*map(np.concatenate, zip(none, *columns, strict=True)))

    def at(self, which: slice | Flags | Int64s) -> EntryBatch:
        """Some of the entries."""
        return EntryBatch(self.key_hashes[which], self.commit_log_offsets[which], self.store_timestamps[which])


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
                key=lambda number: int(self.read_part(file, number, 1).commit_log_offsets[0]),
            )

    def read_part(self, file: FileReader, start: int, count: int, keep_marks: bool = False) -> EntryBatch:
        """The `count` entries from number `start` on, which are in one chunk."""
        at = start % CHUNK_ENTRIES
        chunk = start - at
        size = min(CHUNK_ENTRIES, self.count - chunk)
        hashes_at = chunk * STAGED_ENTRY_SIZE
        hashes = file.read(hashes_at + 4 * at, 4 * count)
        offsets = file.read(hashes_at + 4 * size + 8 * at, 8 * count)
        timestamps = file.read(hashes_at + 12 * size + 8 * at, 8 * count)
        key_hashes = np.frombuffer(hashes, np.int32)
        if not keep_marks:
            key_hashes = key_hashes ^ (key_hashes >> 31)
        return EntryBatch(key_hashes, np.frombuffer(offsets, np.int64), np.frombuffer(timestamps, np.int64))

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

    def read(self, keep_marks: bool = False) -> Iterator[EntryBatch]:
        """The entries, in batches of no more than a chunk; `keep_marks` leaves marked hashes negative."""
        start, stop = self.start, self.start + self.count
        if start >= stop:
            return
        with FileReader(self.staged.location) as file:
            while start < stop:
                count = min(stop, start - start % CHUNK_ENTRIES + CHUNK_ENTRIES) - start
                yield self.staged.read_part(file, start, count, keep_marks)
                start += count

    def entry(self, number: int) -> tuple[int, int, int]:
        """Key hash, commit log offset and store timestamp of the entry `number` of the range."""
        (batch,) = self.part(number, 1).read()
        return int(batch.key_hashes[0]), int(batch.commit_log_offsets[0]), int(batch.store_timestamps[0])


class StagedEntriesWriter:
    """Writes a file of entries into `folder`. When the writer is closed, `staged` is the whole file."""

    def __init__(self, folder: Location) -> None:
        # Names are unique, so the file of a task that Spark ran again is never read.
        self.staged = StagedEntries(folder / f"{uuid.uuid4().hex}.entries", 0)
        self._stream: NativeFile | None = None
        self._parts: list[EntryBatch] = []
        self._waiting = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write(self._waiting)
        if self._stream is not None:
            self._stream.close()

    def add(self, entries: EntryBatch) -> None:
        """Append entries that come next in the log."""
        self._parts.append(entries)
        self._waiting += entries.key_hashes.size
        if self._waiting >= CHUNK_ENTRIES:
            self._write(self._waiting - self._waiting % CHUNK_ENTRIES)

    def _write(self, count: int) -> None:
        if not count:
            return
        waiting = EntryBatch.joined(self._parts)
        location = self.staged.location
        if self._stream is None:
            # The manifest names the file only after all splits are staged, so neither rename nor flush is needed.
            self._stream = location.open_output()
        for start in range(0, count, CHUNK_ENTRIES):
            chunk = waiting.at(slice(start, min(start + CHUNK_ENTRIES, count)))
            for array in (chunk.key_hashes, chunk.commit_log_offsets, chunk.store_timestamps):
                self._stream.write(array.data)
        self.staged = StagedEntries(location, self.staged.count + count)
        self._parts = [waiting.at(slice(count, self._waiting))]
        self._waiting -= count


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

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The result of these values, with a mapping for each damage. Raises `TypeError` for other fields."""
        if values.keys() != {field.name for field in fields(cls)}:
            raise TypeError(f"{sorted(values)} are not the fields of a split")
        corrupt = tuple(CorruptRange(**damage) for damage in values["corrupt"])
        return cls(**{**values, "corrupt": corrupt})

    @property
    def start(self) -> int:
        """The commit log offset at which the split starts."""
        return self.segment + self.split_start

    def staged_units(self, folder: Location) -> StagedUnits | None:
        """The staged units in the folder of staged files; None without a unit."""
        if self.units_file is None:
            return None
        return StagedUnits(folder / self.units_file, self.units, self.runs, self.units_size)

    def staged_entries(self, folder: Location) -> StagedEntries:
        """The staged index entries in the folder of staged files."""
        return StagedEntries(folder / (self.entries_file or ""), self.index_entries)
