"""Sound queue files, made by tasks: files that have messages in the log, and files that have none."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Units, pre_blank
from spark_mq.format.dispatch import LITE_PREFIX
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.indexer.queue_lives import staged_runs
from spark_mq.indexer.queue_plan import QueuePlan
from spark_mq.indexer.queue_runs import Run, of_runs
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.tasks import TaskRunner
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.queue.consume_queue import ConsumeQueueExt
from spark_mq.verifier.check import CheckedStore
from spark_mq.verifier.log_bounds import LogBounds
from spark_mq.verifier.queue_file import ExpectedFile, UnitPairs
from spark_mq.verifier.queue_task import expected_files, file_range


@dataclass(frozen=True, order=True)
class QueueFileName:
    """A queue file: its queue, and its number in the queue."""

    topic: str
    queue_id: int
    number: int

    @classmethod
    def of(cls, path: str, file_size: int) -> QueueFileName:
        """The file with a path in the store, such as `consumequeue/orders/0/00000000000000000000`."""
        folder, _, name = path.rpartition("/")
        queue, _, queue_id = folder.rpartition("/")
        return cls(queue.removeprefix(f"{CONSUME_QUEUE}/"), int(queue_id), int(name) // file_size)


@dataclass(frozen=True)
class _Writer:
    """Writes sound files into the folder `output`, under their paths in the store."""

    store: Location
    output: Location
    file_size: int
    bounds: LogBounds
    has_extensions: bool

    def write(self, expected: ExpectedFile) -> None:
        """Write one file. The time of an existing file stays."""
        file = self.store / expected.path
        existing, time, tags_codes = np.zeros(0, UNIT_DTYPE), expected.last_store_timestamp, None
        if file.is_file:
            info = file.info()
            time = (info.mtime_ns or 0) // NANOS_PER_MILLI
            with FileReader(file) as reader:
                data = reader.read(0, min(info.size, self.file_size) // UNIT_SIZE * UNIT_SIZE)
            existing = np.frombuffer(data, UNIT_DTYPE)
        if self.has_extensions:
            with closing(FileReaders()) as files:
                tags_codes = ConsumeQueueExt(file.parent, files).resolved(existing)["tags_code"].astype(np.int64)
        units = sound_units(expected, existing, self.bounds, tags_codes)
        publish(self.output / expected.path, units.view(np.uint8).data, self.file_size, time)

    def write_runs(self, runs: Iterator[Run], files: Collection[QueueFileName]) -> Iterator[str]:
        """Write some of the files of runs, which are sorted by file; yields their paths."""
        chosen = (run for run in runs if QueueFileName(run.topic, run.queue_id, run.file_number) in files)
        for expected in expected_files(chosen, self.file_size // UNIT_SIZE):
            self.write(expected)
            yield expected.path


def write_queue_files(
    files: Collection[QueueFileName], checked: CheckedStore, store: Location, output: Location, runner: TaskRunner
) -> None:
    """Write sound queue files into the folder `output`, under their paths in the store."""
    if not files:
        return
    writer = _Writer(store, output, checked.queue_file_size, checked.bounds, checked.has_extensions)
    capacity = checked.queue_file_size // UNIT_SIZE
    with_messages, others = set(), []
    for file in files:
        queue = checked.queues.get((file.topic, file.queue_id))
        if file.number in file_range(queue, capacity):
            with_messages.add(file)
        else:
            name = file.topic, file.queue_id
            others.append(ExpectedFile.without_message(name, file.number, capacity, queue))
    if with_messages:
        names = sorted({(file.topic, file.queue_id) for file in with_messages})
        plan = QueuePlan(tuple(checked.queues[name] for name in names), capacity)
        has_lite_topics = any(topic.startswith(LITE_PREFIX) for topic, _ in names)
        shown_by = store / CONSUME_QUEUE
        runs = staged_runs(runner.tasks, checked.log.staged.units, shown_by=shown_by, has_lite_topics=has_lite_topics)
        work = partial(writer.write_runs, files=with_messages)
        of_runs(runner, "make queue files", runs, plan.assignment(), work)
    if others:
        runner.each("make other queue files", "files", others, writer.write)


def sound_units(expected: ExpectedFile, existing: Units, bounds: LogBounds, tags_codes: Int64s | None = None) -> Units:
    """The units of a sound file, all of them: the inverse of the check of a file (`spark_mq.verifier.queue_file`).

    | queue offset | unit |
    | --- | --- |
    | before the first message of the log | that of the file if its message expired and it is in order, else pre-blank |
    | of a message | the unit of the message |
    | between two messages, without one | that of the file if it is one: the log is damaged there; else pre-blank |
    | after the last message | zeros |

    Args:
        tags_codes: The tags codes of the existing units, or those to which their addresses in `consumequeue_ext` lead.
            A unit whose tags code is right stays as it is; one whose address is wrong gets the tags code itself.
    """
    pairs = UnitPairs(expected, existing, expected.capacity)
    result, have = pairs.want.copy(), pairs.have
    if tags_codes is not None:
        codes = np.zeros(have.size, np.int64)
        codes[: tags_codes.size] = tags_codes[: have.size]
        is_same = pairs.is_same_record & (result["tags_code"] == codes)
        result[is_same] = have[is_same]
    is_expired = _in_order(pairs.offsets, pairs.is_live & (pairs.offsets < bounds.start) & ~pairs.has_message)
    before = pairs.before
    if expected.queue_min is None:
        good = np.flatnonzero(is_expired | pairs.is_pre_blank)
        before = np.arange(have.size) < (good[-1] + 1 if good.size else 0)
    result[before | pairs.inner] = pre_blank(1)
    is_kept = is_expired | (pairs.is_live & bounds.is_lost(pairs.offsets))
    kept = (before & is_kept) | (pairs.inner & pairs.is_live)
    result[kept] = have[kept]
    return result


def _in_order(offsets: Int64s, which: Flags) -> Flags:
    """Those of `which` whose offsets ascend: without the ones that are too large, or without those too small."""
    at = np.flatnonzero(which)
    chosen = offsets[at]
    largest_before = np.concatenate(([-1], np.maximum.accumulate(chosen)[:-1]))
    smallest_after = np.concatenate((np.minimum.accumulate(chosen[::-1])[::-1][1:], [np.iinfo(np.int64).max]))
    best = max((chosen > largest_before, chosen < smallest_after), key=np.count_nonzero)
    result: Flags = np.zeros(which.size, np.bool_)
    result[at[best]] = True
    return result
