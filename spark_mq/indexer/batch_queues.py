"""Files of batch consume queues out of a staged log.

A queue has its units one after the other, so the counts of all splits say where each unit is. A task makes each file,
out of the parts of staged files that it names; the first part can be of the last file of a queue that is continued.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from spark_mq.errors import UnsafeNameError
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, BATCH_UNIT_SIZE, BatchUnits, Queue, queue_file_name
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.report import Written
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.config_file import check_topic_name
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE
from spark_mq.store.queue.batch_consume_queue import BatchConsumeQueue
from spark_mq.store.queue.folders import find_batch_file_size


@dataclass(frozen=True)
class BatchPart:
    """Units of one queue in a file: the number of the first one, and how many."""

    file: Location
    first: int
    count: int


@dataclass(frozen=True)
class BatchQueueFile:
    """A file: its queue, its number in the queue, and the staged parts of which it consists."""

    topic: str
    queue_id: int
    number: int
    parts: tuple[BatchPart, ...]

    def path(self, file_size: int) -> str:
        """The path below `batchconsumequeue/`."""
        return f"{self.topic}/{self.queue_id}/{self.number * file_size:020d}"


def staged_parts(staged: StagedLog) -> dict[Queue, list[BatchPart]]:
    """The units of each batch consume queue, in the order of the log."""
    parts = defaultdict[Queue, list[BatchPart]](list)
    for split in staged.splits:
        for run in split.batch_runs:
            file = staged.folder / (split.batches_file or "")
            parts[run.topic, run.queue_id].append(BatchPart(file, run.first, run.unit_count))
    return parts


def read_parts(parts: tuple[BatchPart, ...]) -> BatchUnits:
    """The units of parts."""
    units = np.zeros(sum(part.count for part in parts), BATCH_UNIT_DTYPE)
    memory, at = units.view(np.uint8).data, 0
    for part in parts:
        with FileReader(part.file) as file:
            size = part.count * BATCH_UNIT_SIZE
            file.read_into(memory[at : at + size], part.first * BATCH_UNIT_SIZE)
            at += size
    return units


def batch_files(
    topic: str, queue_id: int, parts: list[BatchPart], capacity: int, continued: BatchConsumeQueue | None
) -> Iterator[BatchQueueFile]:
    """The files of a queue, which have room for `capacity` units each, from the first one with a unit of `parts` on."""
    end = 0 if continued is None else continued.end_position // BATCH_UNIT_SIZE
    number, room, of_file = end // capacity, capacity, list[BatchPart]()
    if continued is not None and end % capacity:
        last = continued.folder.location / queue_file_name(number, capacity * BATCH_UNIT_SIZE)
        parts = [BatchPart(last, 0, end % capacity), *parts]
    for part in parts:
        first, stop = part.first, part.first + part.count
        while first < stop:
            count = min(room, stop - first)
            of_file.append(BatchPart(part.file, first, count))
            first, room = first + count, room - count
            if not room:
                yield BatchQueueFile(topic, queue_id, number, tuple(of_file))
                number, room, of_file = number + 1, capacity, []
    if of_file:
        yield BatchQueueFile(topic, queue_id, number, tuple(of_file))


def write_batch_queues(
    context: JobContext, plan: RebuildPlan, staged: StagedLog, continued: Mapping[Queue, BatchConsumeQueue]
) -> Written:
    """Write the files of all batch consume queues that have a unit in the staged log."""
    size = find_batch_file_size(plan.broker_conf, plan.store).value
    files = list[BatchQueueFile]()
    queues = staged_parts(staged)
    for (topic, queue_id), parts in sorted(queues.items()):
        try:
            check_topic_name(topic)
        except UnsafeNameError as error:
            raise UnsafeNameError(f"{error}; --mode permissive does not leave out batch consume queues") from error
        files += batch_files(topic, queue_id, parts, size // BATCH_UNIT_SIZE, continued.get((topic, queue_id)))
    growing = context.committer.staging_path(BATCH_CONSUME_QUEUE)
    write = partial(_write, size=size, growing=growing)
    context.each("write batch queues", "files", files, write)
    context.committer.keep_only(BATCH_CONSUME_QUEUE, {file.path(size) for file in files}.__contains__)
    ends = {(file.topic, file.queue_id): file.number * size for file in files}
    stale = (
        queue.folder.location / info.base_name
        for name, queue in continued.items()
        for info in queue.folder.files
        if name in ends and int(info.base_name) > ends[name]
    )
    return Written(
        queues=len(queues),
        files=len(files),
        units=sum(part.count for parts in queues.values() for part in parts),
        bytes_written=len(files) * size,
        stale_files=tuple(stale),
    )


def _write(file: BatchQueueFile, size: int, growing: Location) -> None:
    units = read_parts(file.parts)
    modified = int(units["store_timestamp"][-1])
    publish(growing / file.path(size), units.view(np.uint8).data, size, modified)
