"""Rows become records: each partition of the source is encoded, and staged in chunks."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Bytes, Int32s
from spark_mq.format.consume_queue import Queue
from spark_mq.format.record import SYS_FLAG_AT, TRANSACTION_COMMIT_TYPE, TRANSACTION_TYPE_MASK
from spark_mq.io.location import Location
from spark_mq.restorer.chunk import Chunk, ChunkRows
from spark_mq.restorer.encoding_rules import EncodingRules

if TYPE_CHECKING:
    from spark_mq.restorer.encode_messages import EncodedMessages

CHUNK_SIZE = 64 << 20
"""Bytes of records after which a chunk ends."""

_ROWS_AT_ONCE, _BYTES_AT_ONCE = 16 << 10, 16 << 20

CHUNK_SCHEMA = pa.schema([("chunk", pa.string())])
"""The rows of `StageTask`: a `Chunk` each, as JSON."""


@dataclass(frozen=True)
class StageTask:
    """For `mapInArrow`: rows of messages in, a row for each chunk (`CHUNK_SCHEMA`) out.

    Attributes:
        rules: How rows become records.
        segment_size: Bytes of a segment, if records keep their offsets; else None.
        chunk_size: Bytes of records after which a chunk ends.
        has_digest: Whether chunks get a digest of their rows.
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
        yield from map(chunk_row, self.stage(batches, 0 if context is None else context.partitionId()))

    def stage(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[Chunk]:
        """The chunks of one partition, which are written."""
        # This loads numba, which the driver does not need.
        from spark_mq.restorer.encode_messages import encode_messages

        number, first_row, growing = 0, 0, _GrowingChunk()
        for batch in joined(batches):
            growing.add(encode_messages(batch, self.rules, partition, first_row))
            if self.has_digest:
                growing.digest.update(batch.serialize())
            if "store_host" in batch.schema.names:
                growing.store_hosts.update(pc.unique(batch["store_host"].drop_null()).to_pylist())
            first_row += batch.num_rows
            if growing.size >= self.chunk_size:
                yield growing.write(self.folder, (partition, number), self.segment_size)
                number, growing = number + 1, _GrowingChunk()
        if growing.size:
            yield growing.write(self.folder, (partition, number), self.segment_size)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


@dataclass
class _GrowingChunk:
    """The records of a chunk before it is written."""

    data: list[Bytes] = field(default_factory=list)
    rows: list[ChunkRows] = field(default_factory=list)
    queues: dict[Queue, int] = field(default_factory=dict)
    dispatched: Counter[Queue] = field(default_factory=Counter)
    store_hosts: set[str] = field(default_factory=set)
    digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    size: int = 0

    def add(self, messages: EncodedMessages) -> None:
        """Add encoded messages."""
        from spark_mq.format.kernels.big_endian import int32s_at

        numbers: Int32s = np.array(
            [self.queues.setdefault(queue, len(self.queues)) for queue in messages.queues], np.int32
        )
        types = int32s_at(messages.data, messages.positions + SYS_FLAG_AT) & TRANSACTION_TYPE_MASK
        self.data.append(messages.data)
        self.rows.append(
            ChunkRows(
                messages.sizes,
                messages.commit_log_offsets,
                messages.old_queue_offsets,
                numbers[messages.queue_numbers],
                (types == 0) | (types == TRANSACTION_COMMIT_TYPE),
                messages.store_timestamps,
            )
        )
        self.dispatched.update(messages.dispatched)
        self.size += int(messages.data.size)

    def write(self, folder: Location, place: tuple[int, int], segment_size: int | None) -> Chunk:
        """Write the chunk; sorted by commit log offset if records keep their offsets."""
        data, rows = np.concatenate(self.data), ChunkRows.concatenate(self.rows)
        if segment_size is not None and (np.diff(rows.commit_log_offset) < 0).any():
            data, rows = _sorted(data, rows)
        hosts, digest = list(self.store_hosts), self.digest.hexdigest()
        return Chunk.write(folder, place, data, rows, list(self.queues), segment_size, self.dispatched, hosts, digest)


def _sorted(data: Bytes, rows: ChunkRows) -> tuple[Bytes, ChunkRows]:
    from spark_mq.format.kernels.gather import scatter_bytes

    order = np.argsort(rows.commit_log_offset, kind="stable")
    ordered = rows.take(order)
    targets = np.empty(order.size, np.int64)
    targets[order] = ordered.starts[:-1]
    out = np.empty(data.size, np.uint8)
    scatter_bytes(data, rows.starts[:-1], rows.store_size, targets, out)
    return out, ordered


def chunk_row(chunk: Chunk) -> pa.RecordBatch:
    """The row of a chunk, for Spark."""
    text = json.dumps(dataclasses.asdict(dataclasses.replace(chunk, records=chunk.records.uri)))  # type: ignore[arg-type]
    return pa.RecordBatch.from_pydict({"chunk": [text]}, schema=CHUNK_SCHEMA)


def chunk_of_json(text: str) -> Chunk:
    """The chunk of a text."""
    fields = json.loads(text)
    return Chunk(
        **{
            **fields,
            "records": Location.resolve(fields["records"]),
            "segments": tuple(map(tuple, fields["segments"])),
            "store_hosts": tuple(fields["store_hosts"]),
        }
    )
