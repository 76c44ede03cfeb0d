"""Files of extension units, which a broker with `enableConsumeQueueExt` makes.

All units of a queue have one size, so the number of a message in its queue says where its unit is. The log is read a
second time, a task for each segment, which stages tags codes, store times and bit maps. Then a task makes each file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.format.consume_queue import Queue
from spark_mq.format.consume_queue_ext import END_MARK
from spark_mq.indexer.ext_settings import STAGED_EXT_SCHEMA, ExtSettings, StagedExt, Values
from spark_mq.indexer.queue_plan import PlannedQueue, QueuePlan
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.task_items import TaskItems
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.store_paths import CONSUME_QUEUE_EXT
from spark_mq.store.log.commit_log import CommitLog, Segment

_STAGED = "ext"
_DONE_SCHEMA = pa.schema([("file", pa.string())])


def write_extensions(context: JobContext, plan: RebuildPlan, queue_plan: QueuePlan, ext: ExtSettings) -> None:
    """Write the extension files of the planned queues, into the tree that is committed with them."""
    target, folder = context.committer.staging_path(CONSUME_QUEUE_EXT), context.committer.folder / _STAGED
    target.make_folder()
    folder.make_folder()
    segments = CommitLog.open(plan.store).segments
    segment_items, delay_levels = TaskItems.of(segments), plan.settings.delay_levels
    rows = context.rows(
        "stage extensions",
        "segments",
        lambda done: _StageSegment(segment_items, folder, ext, delay_levels, done),
        len(segments),
        STAGED_EXT_SCHEMA,
    )
    staged: dict[Queue, list[StagedExt]] = {}
    for row in (StagedExt(**values) for values in rows.to_pylist()):
        staged.setdefault((row.topic, row.queue_id), []).append(row)
    files = [file for queue in queue_plan.queues for file in _files_of(queue, ext, staged.get(queue.key, []))]
    items = TaskItems.of(files)
    context.rows(
        "write extensions", "files", lambda done: _WriteFile(items, folder, target, ext, done), len(files), _DONE_SCHEMA
    )


@dataclass(frozen=True)
class _ExtFile:
    """One file: its queue, the queue offsets of its units, and the staged values that can be in it."""

    topic: str
    queue_id: int
    number: int
    first_queue_offset: int
    stop_queue_offset: int
    is_last: bool
    staged: tuple[StagedExt, ...]


def _files_of(queue: PlannedQueue, ext: ExtSettings, staged: list[StagedExt]) -> Iterator[_ExtFile]:
    capacity = ext.layout(queue.topic).units_per_file
    count = -(-(queue.queue_max - queue.queue_min) // capacity)
    for number in range(count):
        first = queue.queue_min + number * capacity
        stop = min(first + capacity, queue.queue_max)
        parts = tuple(part for part in staged if part.first < stop and part.last >= first)
        yield _ExtFile(queue.topic, queue.queue_id, number, first, stop, number == count - 1, parts)


@dataclass(frozen=True)
class _StageSegment:
    """As a task: numbers of segments in, rows of `STAGED_EXT_SCHEMA` about their staged values out."""

    segments: TaskItems[Segment]
    folder: Location
    ext: ExtSettings
    delay_levels: str
    done: Location | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for segment in self.segments.each(batches, self.done):
            # This module is loaded on the driver, which must not wait for the kernels.
            from spark_mq.indexer.ext_values import stage_segment

            yield stage_segment(segment, self.folder, self.ext, self.delay_levels)


@dataclass(frozen=True)
class _WriteFile:
    """As a task: numbers of files in, their names out."""

    files: TaskItems[_ExtFile]
    staged: Location
    target: Location
    ext: ExtSettings
    done: Location | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
        for part in file.staged:
            dtype = self.ext.staged_dtype
            with FileReader(self.staged / part.file) as reader:
                values: Values = np.frombuffer(reader.read(part.position, part.count * dtype.itemsize), dtype)
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
