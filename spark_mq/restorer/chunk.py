"""A chunk: some ten megabytes of encoded records, staged as two files.

`NAME.records` has the records, one after the other. `NAME.rows` is an Arrow stream of `ROW_SCHEMA`, a row for each
record. The files stay out of the JVM: the task that writes a segment reads the parts that it needs.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.errors import StorageError
from spark_mq.format.array_types import Bytes, Int32s, Int64s
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location

ROW_SCHEMA = pa.schema(
    [
        ("store_size", pa.int32()),
        ("commit_log_offset", pa.int64()),
        ("queue_offset", pa.int64()),
        ("queue_number", pa.int32()),
        ("store_timestamp", pa.int64()),
    ]
)
"""The columns of a record: its size, the offsets that it had in its source (-1 for none), the number of its queue in
`Chunk.queues`, and its store time in milliseconds."""

Queue = tuple[str, int]


@dataclass(frozen=True)
class ChunkRows:
    """The rows of a chunk as arrays, in the order of its records."""

    store_size: Int32s
    commit_log_offset: Int64s
    queue_offset: Int64s
    queue_number: Int32s
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
    """The messages of one queue in a chunk: their number, and the largest queue offset that they had (-1 for none)."""

    topic: str
    queue_id: int
    messages: int
    last_queue_offset: int


@dataclass(frozen=True)
class Chunk:
    """One staged chunk.

    Attributes:
        partition: The partition of the rows.
        number: The number of the chunk in its partition.
        records: The file of the records.
        size: Bytes of the records.
        messages: The number of records.
        queues: The messages of each queue; `queue_number` of a row is an index into it.
        segments: For each segment that has records of the chunk, in order: its first offset, the first row that is in
            it, and the store time of that row. Empty if offsets are new.
        last_store_timestamp: The latest store time in milliseconds.

    """

    partition: int
    number: int
    records: Location
    size: int
    messages: int
    queues: tuple[QueueCount, ...]
    segments: tuple[tuple[int, int, int], ...]
    last_store_timestamp: int

    @classmethod
    def write(
        cls,
        folder: Location,
        place: tuple[int, int],
        data: Bytes,
        rows: ChunkRows,
        queues: Sequence[Queue],
        segment_size: int | None,
    ) -> Chunk:
        """Write a new chunk into a folder.

        Args:
            folder: The folder, which exists.
            place: The partition, and the number of the chunk in it.
            data: The records; sorted by commit log offset if `segment_size` is given.
            rows: Their rows, at least one.
            queues: The queues by number.
            segment_size: Bytes of a segment, if records keep their offsets.

        """
        records = folder / f"{uuid.uuid4().hex}.records"
        with records.filesystem.open_output_stream(records.path) as file:
            file.write(data.data)
        batch = pa.RecordBatch.from_arrays([getattr(rows, name) for name in ROW_SCHEMA.names], schema=ROW_SCHEMA)
        with (
            _rows_of(records).filesystem.open_output_stream(_rows_of(records).path) as file,
            pa.ipc.new_stream(file, ROW_SCHEMA) as stream,
        ):
            stream.write_batch(batch)
        counts = np.bincount(rows.queue_number, minlength=len(queues)).tolist()
        last = np.full(len(queues), -1, np.int64)
        np.maximum.at(last, rows.queue_number, rows.queue_offset)
        return cls(
            *place,
            records,
            int(data.size),
            int(rows.store_size.size),
            tuple(
                QueueCount(topic, id_, count, offset)
                for (topic, id_), count, offset in zip(queues, counts, last.tolist(), strict=True)
            ),
            () if segment_size is None else _segments(rows, segment_size),
            int(rows.store_timestamp.max()),
        )

    def read_rows(self) -> ChunkRows:
        """The rows.

        Raises:
            StorageError: The file is not as it was written.

        """
        location = _rows_of(self.records)
        try:
            with location.filesystem.open_input_stream(location.path) as file, pa.ipc.open_stream(file) as stream:
                table = stream.read_all()
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"{location} is not as this job wrote it: run the job again") from error
        if table.num_rows != self.messages:
            raise StorageError(f"{location} has {table.num_rows} rows instead of {self.messages}: run the job again")
        return ChunkRows(*(table[name].to_numpy() for name in ROW_SCHEMA.names))

    def open(self) -> FileReader:
        """The file of the records, of which any range can be read."""
        return FileReader(self.records)


def _rows_of(records: Location) -> Location:
    return records.parent / f"{records.name.removesuffix('.records')}.rows"


def _segments(rows: ChunkRows, segment_size: int) -> tuple[tuple[int, int, int], ...]:
    bases = rows.commit_log_offset // segment_size * segment_size
    first = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(np.diff(bases)) + 1))
    return tuple(zip(bases[first].tolist(), first.tolist(), rows.store_timestamp[first].tolist(), strict=True))
