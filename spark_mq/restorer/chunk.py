"""Rows become records, in chunks: some ten megabytes of encoded records each, staged as a few files.

- `NAME.records`: the records, one after the other.
- `NAME.rows`: an Arrow stream, a row of `ChunkRows` for each record.
- `NAME.queues`: an Arrow stream, a row of `QueueCount` for each queue.
- `NAME.starts`: the same with the queue offset of the first message of each queue, written when that is known.
- `NAME.dispatched`: an Arrow stream of the queues that messages of other queues name, and the number of their units.

The files stay out of the JVM, and lists of queues out of the driver's memory. The task that writes a segment reads the
parts that it needs.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import StorageError
from spark_mq.format.array_types import Bytes, Int32s, Int64s
from spark_mq.format.consume_queue import Queue
from spark_mq.io.location import Location
from spark_mq.job.tasks import pickled
from spark_mq.restorer.record_columns import ChunkRows
from spark_mq.restorer.source_columns import EncodingRules

if TYPE_CHECKING:
    from spark_mq.restorer.encode_messages import EncodedMessages

KEPT = -1
"""Instead of the first queue offset of a queue: its messages keep the queue offsets that they have."""
CHUNK_SIZE = 64 << 20
"""Bytes of records after which a chunk ends."""
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 16 << 10, 16 << 20


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

    @property
    def queue(self) -> Queue:
        """Topic and queue id."""
        return self.topic, self.queue_id


@dataclass(frozen=True)
class Chunk:
    """One staged chunk.

    `segments` has, for each segment in order, its first offset, the first row that is in it, and the store time of that
    row; it is empty if offsets are new. `store_hosts` has at most two of the hosts that the messages had. `digest` is
    one of the rows, not of the time of staging. Messages name `dispatched_queues` besides their own.
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
    def write(cls, task: StageTask, partition: int, number: int, parts: _Parts) -> Self:
        """Write a new chunk; sorted by commit log offset if records keep their offsets."""
        # Names are unique, so the file of a task that Spark ran again is never read.
        location = task.folder / f"{uuid.uuid4().hex}.records"
        records, rows, dispatched = np.concatenate(parts.records), ChunkRows.concatenate(parts.rows), parts.dispatched
        segments: tuple[tuple[int, int, int], ...] = ()
        if task.segment_size is not None:
            records, rows = _sorted(records, rows)
            segments = _segments(rows, task.segment_size)
        with location.open_output() as file:  # it need not survive a crash of the machine
            file.write(records.data)
        hosts, digest = tuple(sorted(parts.store_hosts)[:2]), parts.digest.hexdigest()
        size, count = int(records.size), int(rows.store_size.size)
        chunk = cls(partition, number, location, size, count, segments, hosts, digest, len(dispatched))
        if dispatched:
            units = [{"topic": topic, "queue_id": id_, "units": count} for (topic, id_), count in dispatched.items()]
            chunk._write_table("dispatched", pa.Table.from_pylist(units))
        chunk._write_table("rows", pa.table(vars(rows)))
        queued = rows.take(rows.has_unit)
        numbers, after = (
            queued.queue_number,
            np.where(queued.queue_offset < 0, 0, queued.queue_offset + queued.messages),
        )
        last, counts = np.full(len(parts.queues), -1, np.int64), np.zeros(len(parts.queues), np.int64)
        np.maximum.at(last, numbers, after - 1)
        first = last.copy()
        np.minimum.at(first, numbers, queued.queue_offset)
        np.add.at(counts, numbers, queued.messages)
        topics, ids = ([queue[part] for queue in parts.queues] for part in (0, 1))
        names = [field.name for field in fields(QueueCount)]
        chunk._write_table("queues", pa.table([topics, ids, counts, first, last], names))
        return chunk

    def rows(self) -> ChunkRows:
        """The rows."""
        table = self._read_table("rows")
        if table.num_rows != self.messages:
            raise StorageError(f"{self._file('rows')} has {table.num_rows} rows, not {self.messages}: run it again")
        return ChunkRows(**{name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names})

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
        self._write_table("starts", pa.table({"first_queue_offset": pa.array(first_offsets, pa.int64())}))

    def new_queue_offsets(self, rows: ChunkRows) -> Int64s:
        """The queue offset that each record gets: those of a queue follow each other from its start on."""
        starts: Int64s = self._read_table("starts")["first_queue_offset"].to_numpy()
        result = np.zeros(rows.queue_number.size, np.int64)
        order = np.argsort(rows.queue_number, kind="stable")
        order = order[rows.has_unit[order]]
        numbers, messages = rows.queue_number[order], rows.messages[order].astype(np.int64)
        before = messages.cumsum() - messages
        begins = np.flatnonzero(np.diff(numbers, prepend=-1))
        rank = before - np.repeat(before[begins], np.diff(begins, append=order.size))
        first = starts[numbers]
        result[order] = np.where(first == KEPT, rows.queue_offset[order], first + rank)
        return result

    def with_new_bases(self) -> Chunk:
        """The chunk, staged again with new queue offsets in the properties of its inner batches: their sizes change."""
        from spark_mq.format.kernels.inner_batches import put_bases

        rows = self.rows()
        records = np.frombuffer(self.records.read_bytes(), np.uint8)
        records, sizes = put_bases(records, rows.starts, self.new_queue_offsets(rows))
        chunk = replace(self, records=self.records.parent / f"{uuid.uuid4().hex}.records", size=int(records.size))
        with chunk.records.open_output() as file:
            file.write(records.data)
        chunk._write_table("rows", pa.table(vars(replace(rows, store_size=sizes))))
        for kind in ("queues", "starts", "dispatched") if self.dispatched_queues else ("queues", "starts"):
            chunk._write_table(kind, self._read_table(kind))
        return chunk

    def _file(self, kind: str) -> Location:
        return self.records.parent / f"{self.records.name.removesuffix('.records')}.{kind}"

    def _write_table(self, kind: str, table: pa.Table) -> None:
        with self._file(kind).open_output() as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)

    def _read_table(self, kind: str) -> pa.Table:
        location = self._file(kind)
        try:
            with pa.ipc.open_stream(location.read_bytes()) as stream:
                return stream.read_all()
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"{location} is not as this job wrote it: run the job again") from error


def _sorted(data: Bytes, rows: ChunkRows) -> tuple[Bytes, ChunkRows]:
    if not (np.diff(rows.commit_log_offset) < 0).any():
        return data, rows
    from spark_mq.format.kernels.gather import scatter_bytes

    order = np.argsort(rows.commit_log_offset, kind="stable")
    ordered = rows.take(order)
    targets = np.empty(order.size, np.int64)
    targets[order] = ordered.starts[:-1]
    out = np.empty(data.size, np.uint8)
    scatter_bytes(data, rows.starts[:-1], rows.store_size, targets, out)
    return out, ordered


def _segments(rows: ChunkRows, segment_size: int) -> tuple[tuple[int, int, int], ...]:
    bases = rows.commit_log_offset // segment_size * segment_size
    first = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(np.diff(bases)) + 1))
    return tuple(zip(bases[first].tolist(), first.tolist(), rows.store_timestamp[first].tolist(), strict=True))


@dataclass
class _Parts:
    records: list[Bytes] = field(default_factory=list)
    rows: list[ChunkRows] = field(default_factory=list)
    queues: dict[Queue, int] = field(default_factory=dict)
    dispatched: Counter[Queue] = field(default_factory=Counter)
    store_hosts: set[str] = field(default_factory=set)
    digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    size: int = 0

    def add(self, messages: EncodedMessages) -> None:
        numbers = [self.queues.setdefault(queue, len(self.queues)) for queue in messages.queues]
        queue_number: Int32s = np.array(numbers, np.int32)[messages.rows.queue_number]
        self.records.append(messages.data)
        self.rows.append(replace(messages.rows, queue_number=queue_number))
        self.dispatched.update(messages.dispatched)
        self.size += int(messages.data.size)


@dataclass(frozen=True)
class StageTask:
    """For `mapInArrow`: rows of messages in, chunks out (`RESULTS`).

    `segment_size` is None if records get new offsets. With `has_digest`, chunks get a digest of their rows.
    """

    rules: EncodingRules
    folder: Location
    segment_size: int | None
    chunk_size: int = CHUNK_SIZE
    has_digest: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the chunks of a partition."""
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from pickled(self.stage(batches, 0 if context is None else context.partitionId()))

    def stage(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[Chunk]:
        """The chunks of one partition, which are written."""
        # This loads numba, which the driver does not need.
        from spark_mq.restorer.encode_messages import encode_messages

        number, first_row, parts = 0, 0, _Parts()
        for batch in _joined(batches):
            parts.add(encode_messages(batch, self.rules, partition, first_row))
            if self.has_digest:
                parts.digest.update(batch.serialize())
            if "store_host" in batch.schema.names:
                parts.store_hosts.update(pc.unique(batch["store_host"].drop_null()).to_pylist())
            first_row += batch.num_rows
            if parts.size >= self.chunk_size:
                yield Chunk.write(self, partition, number, parts)
                number, parts = number + 1, _Parts()
        if parts.size:
            yield Chunk.write(self, partition, number, parts)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches that are worth their encoding, whatever size Spark's batches have."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, rows, size = [], 0, 0
    if rows:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
