"""Files of extension units, which a broker with `enableConsumeQueueExt` makes.

All units of a queue have one size, so the number of a message in its queue says where its unit is. The log is read a
second time, a task for each segment, which stages tags codes, store times and bit maps. Then a task makes each file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from spark_mq.format.consume_queue import Queue
from spark_mq.format.consume_queue_ext import END_MARK
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.indexer.ext_settings import ExtSettings, StagedExt, Values
from spark_mq.indexer.queue_plan import PlannedQueue, QueuePlan
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.store_paths import CONSUME_QUEUE_EXT
from spark_mq.store.log.commit_log import CommitLog, Segment

_STAGED = "ext"


def write_extensions(context: JobContext, plan: RebuildPlan, queue_plan: QueuePlan, ext: ExtSettings) -> None:
    """Write the extension files of the planned queues, into the tree that is committed with them."""
    target, folder = context.committer.staging_path(CONSUME_QUEUE_EXT), context.committer.folder / _STAGED
    target.make_folder()
    folder.make_folder()
    stage = partial(_stage_segment, folder=folder, ext=ext, delay_levels=plan.settings.delay_levels)
    staged = defaultdict[Queue, list[StagedExt]](list)
    for rows in context.each("stage extensions", "segments", CommitLog.open(plan.store).segments, stage):
        for row in rows:
            staged[row.topic, row.queue_id].append(row)
    # The broker gives no extension units to light message queues (`ConsumeQueue.doDispatchLmqQueue`@5.3.3).
    queues = [queue for queue in queue_plan.queues if not queue.topic.startswith(LIGHT_PREFIX)]
    files = [file for queue in queues for file in _files_of(queue, ext, staged[queue.key])]
    context.each("write extensions", "files", files, partial(_write_file, staged=folder, target=target, ext=ext))


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


def _stage_segment(segment: Segment, folder: Location, ext: ExtSettings, delay_levels: str) -> list[StagedExt]:
    # This module is loaded on the driver, which must not wait for the kernels.
    from spark_mq.indexer.ext_values import stage_segment

    return stage_segment(segment, folder, ext, delay_levels)


def _write_file(file: _ExtFile, staged: Location, target: Location, ext: ExtSettings) -> None:
    content, modified = _content(file, staged, ext)
    name = f"{file.number * ext.file_size:020d}"
    publish(target / file.topic / str(file.queue_id) / name, content, ext.file_size, modified)


def _content(file: _ExtFile, staged: Location, ext: ExtSettings) -> tuple[bytes, int]:
    """The units of a file, its end mark if another file follows, and the last store time."""
    layout = ext.layout(file.topic)
    units = np.zeros(file.stop_queue_offset - file.first_queue_offset, layout.dtype)
    # A queue offset without a message has a unit, too: a broker takes zeros for the end of the extension.
    units["size"], units["bit_map_size"] = layout.unit_size, units["bit_map"].shape[1]
    taken = np.zeros(units.size, np.bool_)
    modified = 0
    for part in file.staged:
        dtype = ext.staged_dtype
        with FileReader(staged / part.file) as reader:
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
