"""The extension units of rebuilt queues (`ConsumeQueueExt`@5.3.3), byte for byte as a broker that starts makes them.

All units of a queue have one size, so the number of a message in its queue says where its unit is. The log is read a
second time, a task for each segment, which stages tags codes, store times and bit maps. Then a task makes each file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_mq.filters.arrays import ArrayMessages, matching_mask
from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.bloom_filter import bit_map
from spark_mq.format.consume_queue_ext import END_MARK
from spark_mq.format.java_text import decode_utf8
from spark_mq.indexer.queue.carry_over import Queue
from spark_mq.indexer.queue.ext_settings import ExtSettings
from spark_mq.indexer.queue.plan import PlannedQueue, QueuePlan
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.context import JobContext
from spark_mq.job.task_items import TaskItems
from spark_mq.store.config.store_paths import CONSUME_QUEUE_EXT
from spark_mq.store.log.commit_log import CommitLog, Segment
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.segment_source import SegmentSource

_STAGED = "ext"
_STAGED_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("count", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)
"""A row for each queue of a segment: where its staged values are, and its first and last queue offset there."""
_DONE_SCHEMA = pa.schema([("file", pa.string())])

Values = npt.NDArray[Any]
"""Staged values of messages: `queue_offset`, `tags_code`, `store_timestamp`, `bit_map`."""


def write_extensions(context: JobContext, plan: RebuildPlan, queue_plan: QueuePlan, ext: ExtSettings) -> None:
    """Write the extension files of the planned queues, into the tree that is committed with them."""
    target = context.committer.staging_path(CONSUME_QUEUE_EXT)
    for folder in (target, context.committer.folder / _STAGED):
        folder.filesystem.create_dir(folder.path, recursive=True)
    segments = CommitLog.open(plan.store).segments
    with context.progress.stage("stage extensions", len(segments), "segments") as done:
        stage = _StageSegment(
            TaskItems.of(segments), context.committer.folder / _STAGED, ext, plan.settings.delay_levels, done
        )
        staged: dict[Queue, list[dict[str, Any]]] = {}
        for row in context.tasks.rows(stage, len(segments), _STAGED_SCHEMA).to_pylist():
            staged.setdefault((row["topic"], row["queue_id"]), []).append(row)
    files = [file for queue in queue_plan.queues for file in _files_of(queue, ext, staged.get(queue.key, []))]
    with context.progress.stage("write extensions", len(files), "files") as done:
        write = _WriteFile(TaskItems.of(files), context.committer.folder / _STAGED, target, ext, done)
        context.tasks.rows(write, len(files), _DONE_SCHEMA)


@dataclass(frozen=True)
class _ExtFile:
    """One file: its queue, the numbers of its units, and the staged values that can be in it."""

    topic: str
    queue_id: int
    number: int
    first_queue_offset: int
    stop_queue_offset: int
    is_last: bool
    staged: tuple[tuple[str, int, int], ...]


def _files_of(queue: PlannedQueue, ext: ExtSettings, staged: list[dict[str, Any]]) -> Iterator[_ExtFile]:
    capacity = ext.layout(queue.topic).units_per_file
    count = -(-(queue.queue_max - queue.queue_min) // capacity)
    for number in range(count):
        first = queue.queue_min + number * capacity
        stop = min(first + capacity, queue.queue_max)
        runs = [row for row in staged if row["first"] < stop and row["last"] >= first]
        places = tuple((row["file"], row["position"], row["count"]) for row in runs)
        yield _ExtFile(queue.topic, queue.queue_id, number, first, stop, number == count - 1, places)


@dataclass(frozen=True)
class _StageSegment:
    """The task that stages the values of a segment's messages."""

    segments: TaskItems[Segment]
    folder: Location
    ext: ExtSettings
    delay_levels: str
    done: Location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: numbers of segments in, rows of `_STAGED_SCHEMA` out."""
        for segment in self.segments.each(batches, self.done):
            yield self._stage(segment)

    def _stage(self, segment: Segment) -> pa.RecordBatch:
        from spark_mq.format.kernels.dispatch import parse_delay_levels

        values_of = _Values(self.ext, parse_delay_levels(self.delay_levels))
        parts = [values_of(chunk) for chunk in _chunks(segment)]
        numbers = np.concatenate([number for number, _ in parts]) if parts else np.zeros(0, np.int32)
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        rows = []
        if parts:
            values = np.concatenate([value for _, value in parts])[order]
            file = f"{segment.base:020d}-{uuid.uuid4().hex}"
            publish(self.folder / file, values.tobytes(), values.nbytes)
            ids = values_of.queues.queue_ids()
            for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), numbers.size], strict=True):
                number, offsets = int(numbers[order[start]]), values["queue_offset"][start:stop]
                ends = int(offsets.min()), int(offsets.max())
                place = file, start * values.itemsize, stop - start
                rows.append((values_of.topics[number], int(ids[number]), *place, *ends))
        columns = zip(*rows, strict=True) if rows else [()] * len(_STAGED_SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _STAGED_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_STAGED_SCHEMA)


def _chunks(segment: Segment) -> Iterator[RecordChunk]:
    """The records of a whole segment; damage is skipped, which other stages report."""
    with SegmentSource(segment) as source:
        reader = LiveReader(source) if segment.is_last else RecordReader(source, 0)
        for part in reader.read(segment.data_end):
            if not isinstance(part, CorruptRange):
                yield part


class _Values:
    """The numbers of messages' queues, and the values of their extension units, chunk by chunk."""

    def __init__(self, ext: ExtSettings, delays: Int64s) -> None:
        from spark_mq.format.kernels.dispatch import QueueTable

        self.queues = QueueTable()
        self.topics: list[str] = []
        """The topic of each queue, by its number."""
        self._ext, self._delays = ext, delays
        self._filtered: dict[str, list[int]] = {one.topic: [] for one in ext.filters}
        """The numbers of the queues of each topic that has a filter."""

    def __call__(self, chunk: RecordChunk) -> tuple[npt.NDArray[np.int32], Values]:
        """The numbers and the values of the messages of a chunk that get a unit."""
        from spark_mq.format.kernels.columns import MessageColumns
        from spark_mq.format.kernels.dispatch import dispatch_units, has_unit

        frames = chunk.frames[has_unit(chunk.frames)]
        units = dispatch_units(chunk.buffer, frames, self.queues, self._delays)
        for number in range(len(self.topics), self.queues.count):
            self.topics.append(decode_utf8(self.queues.topic(number)))
            self._filtered.get(self.topics[-1], []).append(number)
        values = np.zeros(frames.size, _staged_dtype(self._ext))
        values["queue_offset"] = units.queue_offset
        values["tags_code"], values["store_timestamp"] = units.tags_code, units.store_timestamp
        for topic, numbers in self._filtered.items():
            at = np.flatnonzero(np.isin(units.queue_number, numbers))
            if at.size:
                messages = MessageColumns(chunk.buffer, chunk.base, frames[at])
                values["bit_map"][at] = _bit_maps(messages, topic, self._ext)
        return units.queue_number, values


def _bit_maps(messages: Any, topic: str, ext: ExtSettings) -> Bytes:
    """The bit maps of messages of one topic, a row each."""
    size = messages.frames.size
    properties = ArrayMessages(size, lambda name: messages.property_text(name.encode("ascii")))
    found = np.zeros((size, ext.bit_count // 8), np.uint8)
    for one in ext.filters_of(topic):
        if one.condition is not None:
            bits = np.frombuffer(bit_map(one.bit_positions or (), ext.bit_count), np.uint8)
            found[matching_mask(one.condition, properties)] |= bits
    return found


def _staged_dtype(ext: ExtSettings) -> np.dtype[Any]:
    names = [("queue_offset", np.int64), ("tags_code", np.int64), ("store_timestamp", np.int64)]
    return np.dtype([*names, ("bit_map", np.uint8, (ext.bit_count // 8 if ext.filters else 0,))])


@dataclass(frozen=True)
class _WriteFile:
    """The task that writes a file."""

    files: TaskItems[_ExtFile]
    staged: Location
    target: Location
    ext: ExtSettings
    done: Location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: numbers of files in, their names out."""
        for file in self.files.each(batches, self.done):
            name = f"{file.number * self.ext.file_size:020d}"
            content, modified = self._content(file)
            publish(self.target / file.topic / str(file.queue_id) / name, content, self.ext.file_size, modified)
            yield pa.RecordBatch.from_pydict({"file": [name]}, schema=_DONE_SCHEMA)

    def _content(self, file: _ExtFile) -> tuple[bytes, int]:
        """The units of a file, its end mark if another file follows, and the last store time."""
        layout = self.ext.layout(file.topic)
        units = np.zeros(file.stop_queue_offset - file.first_queue_offset, layout.dtype)
        # A queue offset without a message has a unit, too: a broker takes zeros for the end of the extension.
        units["size"], units["bit_map_size"] = layout.unit_size, units["bit_map"].shape[1]
        taken = np.zeros(units.size, np.bool_)
        modified = 0
        for name, position, count in file.staged:
            values = self._read(name, position, count)
            at = values["queue_offset"] - file.first_queue_offset
            inside = np.flatnonzero((at >= 0) & (at < units.size))
            # The first message with a queue offset gets it, as in the queue.
            inside = inside[np.unique(at[inside], return_index=True)[1]]
            inside = inside[~taken[at[inside]]]
            for field in ("tags_code", "store_timestamp"):
                units[field][at[inside]] = values[field][inside]
            if units["bit_map"].shape[1]:
                units["bit_map"][at[inside]] = values["bit_map"][inside]
            taken[at[inside]] = True
            modified = max(modified, int(values["store_timestamp"][inside].max(initial=0)))
        mark = b"" if file.is_last else END_MARK.to_bytes(2, "big", signed=True)
        return units.tobytes() + mark, modified

    def _read(self, name: str, position: int, count: int) -> Values:
        dtype = _staged_dtype(self.ext)
        with FileReader(self.staged / name) as reader:
            return np.frombuffer(reader.read(position, count * dtype.itemsize), dtype)
