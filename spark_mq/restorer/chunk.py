"""A chunk: some ten megabytes of encoded records, staged as a few files.

- `NAME.records`: the records, one after the other.
- `NAME.rows`: an Arrow stream of `ROW_SCHEMA`, a row for each record.
- `NAME.queues`: an Arrow stream of `QUEUE_SCHEMA`, a row for each queue.
- `NAME.starts`: the same with the queue offset of the first message of each queue, written when that is known.
- `NAME.dispatched`: an Arrow stream of `DISPATCHED_SCHEMA`, written if there is a row.

The files stay out of the JVM, and lists of queues out of the driver's memory. The task that writes a segment reads the
parts that it needs.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.errors import StorageError
from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s
from spark_mq.format.consume_queue import Queue
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish

ROW_SCHEMA = pa.schema(
    [
        ("store_size", pa.int32()),
        ("commit_log_offset", pa.int64()),
        ("queue_offset", pa.int64()),
        ("queue_number", pa.int32()),
        ("has_unit", pa.bool_()),
        ("store_timestamp", pa.int64()),
    ]
)
"""The columns of a record: its size, the offsets that it had in its source (-1 for none), the number of its queue in
the chunk, whether a consume queue has it, and its store time in milliseconds.

No queue has a prepared or rolled back message. Its queue offset is 0 (`MessageExtEncoder.encode`,
`CommitLogDispatcherBuildConsumeQueue`@5.3.3)."""

QUEUE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("messages", pa.int64()),
        ("first_queue_offset", pa.int64()),
        ("last_queue_offset", pa.int64()),
    ]
)
"""The columns of a queue: its messages in the chunk, and the smallest and largest queue offset that they had (-1 for
none)."""

DISPATCHED_SCHEMA = pa.schema([("topic", pa.string()), ("queue_id", pa.int32()), ("units", pa.int64())])
"""The columns of a queue that messages of other queues name, and the number of its units that they have."""

_START_SCHEMA = pa.schema([("first_queue_offset", pa.int64())])


@dataclass(frozen=True)
class ChunkRows:
    """The rows of a chunk as arrays, in the order of its records."""

    store_size: Int32s
    commit_log_offset: Int64s
    queue_offset: Int64s
    queue_number: Int32s
    has_unit: Flags
    store_timestamp: Int64s

    @property
    def starts(self) -> Int64s:
        """The position of each record in the chunk's bytes, and the end of the last one."""
        starts = np.zeros(self.store_size.size + 1, np.int64)
        np.cumsum(self.store_size, out=starts[1:])
        return starts

    def take(self, order: Int64s) -> ChunkRows:
        """The rows in another order."""
        return ChunkRows(*(getattr(self, name)[order] for name in ROW_SCHEMA.names))

    @classmethod
    def concatenate(cls, parts: Sequence[ChunkRows]) -> ChunkRows:
        """The rows of several parts, one after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ROW_SCHEMA.names))


@dataclass(frozen=True)
class QueueCount:
    """The messages of one queue in a chunk: their number, and the smallest and largest queue offset that they had.

    These are -1 if there are no messages, or if their rows have no queue offset.
    """

    topic: str
    queue_id: int
    messages: int
    first_queue_offset: int
    last_queue_offset: int


@dataclass(frozen=True)
class Chunk:
    """One staged chunk.

    Attributes:
        segments: For each segment that has records of the chunk, in order: its first offset, the first row that is in
            it, and the store time of that row. Empty if offsets are new.
        store_hosts: The store hosts that the messages had in their source, as text; of more than two, two.
        digest: A digest of the rows that became the records, which does not depend on when they were staged.
        dispatched_queues: The number of queues that the messages name besides their own.
    """

    partition: int
    number: int
    records: Location
    size: int
    messages: int
    segments: tuple[tuple[int, int, int], ...]
    store_hosts: tuple[str, ...] = ()
    digest: str = ""
    dispatched_queues: int = 0

    @classmethod
    def write(
        cls,
        folder: Location,
        place: tuple[int, int],
        data: Bytes,
        rows: ChunkRows,
        queues: Sequence[Queue],
        segment_size: int | None,
        dispatched: Mapping[Queue, int],
        store_hosts: Sequence[str] = (),
        digest: str = "",
    ) -> Chunk:
        """Write a new chunk into a folder.

        Args:
            place: The partition, and the number of the chunk in it.
            data: The records; sorted by commit log offset if `segment_size` is given.
            segment_size: Bytes of a segment, if records keep their offsets.
            dispatched: The units that the messages have in other queues, by queue.
            digest: A digest of the rows that became the records.
        """
        # Names are unique, so the file of a task that Spark ran again is never read.
        records = folder / f"{uuid.uuid4().hex}.records"
        _write(records, data.data)
        segments = () if segment_size is None else _segments(rows, segment_size)
        hosts = tuple(sorted(store_hosts)[:2])
        chunk = cls(
            *place, records, int(data.size), int(rows.store_size.size), segments, hosts, digest, len(dispatched)
        )
        if dispatched:
            units = [(*queue, count) for queue, count in dispatched.items()]
            chunk._write_table("dispatched", pa.table(list(zip(*units, strict=True)), schema=DISPATCHED_SCHEMA))
        chunk._write_table("rows", pa.table([getattr(rows, name) for name in ROW_SCHEMA.names], schema=ROW_SCHEMA))
        queued = rows.has_unit
        last = np.full(len(queues), -1, np.int64)
        np.maximum.at(last, rows.queue_number[queued], rows.queue_offset[queued])
        first = last.copy()
        np.minimum.at(first, rows.queue_number[queued], rows.queue_offset[queued])
        topics, ids = ([queue[part] for queue in queues] for part in (0, 1))
        counts = np.bincount(rows.queue_number[queued], minlength=len(queues))
        chunk._write_table("queues", pa.table([topics, ids, counts, first, last], schema=QUEUE_SCHEMA))
        return chunk

    def rows(self) -> ChunkRows:
        """The rows."""
        table = self._read_table("rows")
        if table.num_rows != self.messages:
            raise StorageError(f"{self._file('rows')} has {table.num_rows} rows, not {self.messages}: run it again")
        return ChunkRows(*(table[name].to_numpy(zero_copy_only=False) for name in ROW_SCHEMA.names))

    def store_sizes(self) -> Int32s:
        """Bytes of each record."""
        return self.rows().store_size

    def queues(self) -> list[QueueCount]:
        """The messages of each queue; `queue_number` of a row is an index into the list."""
        return [QueueCount(**row) for row in self._read_table("queues").to_pylist()]

    def dispatched(self) -> dict[Queue, int]:
        """The units that the messages have in queues besides their own, by queue."""
        rows = self._read_table("dispatched").to_pylist() if self.dispatched_queues else []
        return {(row["topic"], row["queue_id"]): row["units"] for row in rows}

    def put_queue_starts(self, first_offsets: Sequence[int]) -> None:
        """Write the queue offset of the first message of each queue."""
        self._write_table("starts", pa.table([pa.array(first_offsets, pa.int64())], schema=_START_SCHEMA))

    def queue_starts(self) -> Int64s:
        """The queue offset of the first message of each queue (`put_queue_starts`)."""
        starts: Int64s = self._read_table("starts")["first_queue_offset"].to_numpy()
        return starts

    def open(self) -> FileReader:
        """The file of the records, of which any range can be read."""
        return FileReader(self.records)

    def _file(self, kind: str) -> Location:
        return self.records.parent / f"{self.records.name.removesuffix('.records')}.{kind}"

    def _write_table(self, kind: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        _write(self._file(kind), memoryview(sink.getvalue()))

    def _read_table(self, kind: str) -> pa.Table:
        location = self._file(kind)
        try:
            with pa.ipc.open_stream(location.read_bytes()) as stream:
                return stream.read_all()
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"{location} is not as this job wrote it: run the job again") from error


def _write(location: Location, content: memoryview) -> None:
    """Write a file of the job; on a local filesystem it need not survive a crash of the machine."""
    if not location.is_local:
        publish(location, content, content.nbytes)
        return
    with location.open_output() as file:
        file.write(content)


def _segments(rows: ChunkRows, segment_size: int) -> tuple[tuple[int, int, int], ...]:
    bases = rows.commit_log_offset // segment_size * segment_size
    first = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(np.diff(bases)) + 1))
    return tuple(zip(bases[first].tolist(), first.tolist(), rows.store_timestamp[first].tolist(), strict=True))
