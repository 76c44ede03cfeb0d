"""Files of batch consume queues out of a staged log.

A queue has its units one after the other, so the counts of all splits say where each unit is. A task makes each file,
out of the parts of staged files that it names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from spark_mq.errors import UnsafeNameError
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, BATCH_UNIT_SIZE, BatchUnits, Queue
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.config_file import check_topic_name
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE
from spark_mq.store.queue.folders import find_batch_file_size


@dataclass(frozen=True)
class BatchPart:
    """Units of one queue in a staged file: the number of the first one, and how many."""

    file: str
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
            parts[run.topic, run.queue_id].append(BatchPart(split.batches_file or "", run.first, run.unit_count))
    return parts


def read_parts(parts: tuple[BatchPart, ...], folder: Location) -> BatchUnits:
    """The units of staged parts; `folder` is that of staged files."""
    units = np.zeros(sum(part.count for part in parts), BATCH_UNIT_DTYPE)
    memory, at = units.view(np.uint8).data, 0
    for part in parts:
        with FileReader(folder / part.file) as file:
            size = part.count * BATCH_UNIT_SIZE
            file.read_into(memory[at : at + size], part.first * BATCH_UNIT_SIZE)
            at += size
    return units


def batch_files(topic: str, queue_id: int, parts: list[BatchPart], capacity: int) -> Iterator[BatchQueueFile]:
    """The files of a queue, which have room for `capacity` units each."""
    number, room, of_file = 0, capacity, list[BatchPart]()
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


@dataclass(frozen=True)
class BatchResult:
    """What was written of batch consume queues."""

    queues: int = 0
    files: int = 0
    units: int = 0
    bytes_written: int = 0


def write_batch_queues(context: JobContext, plan: RebuildPlan, staged: StagedLog) -> BatchResult:
    """Write the files of all batch consume queues."""
    size = find_batch_file_size(plan.broker_conf, plan.store).value
    files = list[BatchQueueFile]()
    queues = staged_parts(staged)
    for (topic, queue_id), parts in sorted(queues.items()):
        try:
            check_topic_name(topic)
        except UnsafeNameError as error:
            raise UnsafeNameError(f"{error}; --mode permissive does not leave out batch consume queues") from error
        files += batch_files(topic, queue_id, parts, size // BATCH_UNIT_SIZE)
    growing = context.committer.staging_path(BATCH_CONSUME_QUEUE)
    write = partial(_write, size=size, staged=staged.folder, growing=growing)
    context.each("write batch queues", "files", files, write)
    context.committer.keep_only(BATCH_CONSUME_QUEUE, {file.path(size) for file in files}.__contains__)
    units = sum(part.count for file in files for part in file.parts)
    return BatchResult(len(queues), len(files), units, len(files) * size)


def _write(file: BatchQueueFile, size: int, staged: Location, growing: Location) -> None:
    units = read_parts(file.parts, staged)
    modified = int(units["store_timestamp"][-1])
    publish(growing / file.path(size), units.view(np.uint8).data, size, modified)
