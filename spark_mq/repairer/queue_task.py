"""Sound queue files, made by tasks: files that have messages in the log, and files that have none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Units, is_live, pre_blank
from spark_mq.indexer.queue_plan import PlannedQueue, QueuePlan
from spark_mq.indexer.queue_runs import Run, runs_in
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.task_items import TaskItems
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.queue.consume_queue import ConsumeQueueExt
from spark_mq.verifier.check import CheckEvidence
from spark_mq.verifier.log_bounds import LogBounds, Which
from spark_mq.verifier.queue_file import ExpectedFile
from spark_mq.verifier.queue_task import expected_files
from spark_mq.verifier.sink import SUMMARY_SCHEMA, TaskRunner, summary_batch


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
class QueueFileWriter:
    """Writes sound files into a folder.

    Attributes:
        output: The folder that gets the files, under their paths in the store.
        bounds: Start and end of the log.
        has_extensions: Whether tags codes can be addresses in `consumequeue_ext`.
    """

    store: Location
    output: Location
    file_size: int
    bounds: LogBounds
    has_extensions: bool

    def write(self, expected: ExpectedFile) -> str:
        """Write one file; returns its path in the store. The time of an existing file stays."""
        existing, modified = self._read(self.store / expected.path)
        units = sound_units(expected, existing, self.bounds, self._tags_codes(expected, existing))
        time = expected.last_store_timestamp if modified is None else modified
        publish(self.output / expected.path, units.view(np.uint8).data, self.file_size, time)
        return expected.path

    def _tags_codes(self, expected: ExpectedFile, existing: Units) -> Int64s | None:
        """The tags codes of existing units, or those to which addresses lead; None if the store has no extensions."""
        if not self.has_extensions:
            return None
        with closing(FileReaders()) as files:
            ext = ConsumeQueueExt.beside((self.store / expected.path).parent, files)
            return ext.resolved(existing)["tags_code"].astype(np.int64)

    def _read(self, file: Location) -> tuple[Units, int | None]:
        """The whole units of a file, and its modification time in milliseconds; None without a file."""
        info = file.info()
        if not file.is_file:
            return np.zeros(0, UNIT_DTYPE), None
        with FileReader(file) as reader:
            data = reader.read(0, min(info.size, self.file_size) // UNIT_SIZE * UNIT_SIZE)
        return np.frombuffer(data, UNIT_DTYPE), (info.mtime_ns or 0) // 1_000_000


@dataclass(frozen=True)
class _FilesOfRuns:
    """As a task: runs sorted by file and then by commit log offset in, the paths of the written files out."""

    writer: QueueFileWriter
    files: frozenset[QueueFileName]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        capacity = self.writer.file_size // UNIT_SIZE
        chosen = filter(self._is_chosen, runs_in(batches))
        yield summary_batch(json.dumps([self.writer.write(file) for file in expected_files(chosen, capacity)]))

    def _is_chosen(self, run: Run) -> bool:
        return QueueFileName(run.topic, run.queue_id, run.file_number) in self.files


@dataclass(frozen=True)
class _OtherFiles:
    """As a task: numbers of files without messages in, the paths of the written files out."""

    writer: QueueFileWriter
    files: TaskItems[ExpectedFile]
    done: Location | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in self.files.each(batches, self.done):
            yield summary_batch(json.dumps([self.writer.write(file)]))


def write_queue_files(
    files: Sequence[QueueFileName], evidence: CheckEvidence, store: Location, output: Location, runner: TaskRunner
) -> list[str]:
    """Write sound queue files into a folder.

    Args:
        evidence: What a check of the store read.
        output: The folder that gets the files, under their paths in the store.
        runner: Where tasks run.

    Returns:
        The paths of the files in the store.
    """
    if not files or evidence.staged is None:
        return []
    writer = QueueFileWriter(store, output, evidence.queue_file_size, evidence.bounds, evidence.has_extensions)
    capacity = evidence.queue_file_size // UNIT_SIZE
    queues = {(queue.topic, queue.queue_id): queue for queue in evidence.queues}
    with_messages, others = [], []
    for file in files:
        queue = queues.get((file.topic, file.queue_id))
        low, high = (None, None) if queue is None else (queue.queue_min, queue.queue_max)
        if low is not None and high is not None and low // capacity <= file.number <= (high - 1) // capacity:
            with_messages.append(file)
        else:
            others.append(ExpectedFile(file.topic, file.queue_id, file.number, capacity, low, high, 0))
    written: list[str] = []
    if with_messages:
        chosen = {(file.topic, file.queue_id) for file in with_messages}
        planned = [PlannedQueue(**vars(queues[name]), existing_end=0) for name in sorted(chosen)]
        plan = QueuePlan(tuple(planned), capacity)
        task = _FilesOfRuns(writer, frozenset(with_messages))
        runs = runner.runs(evidence.staged.units)
        for row in runner.summaries(runs, plan.assignment(), task, "make queue files"):
            written += json.loads(row)
    if others:
        items = TaskItems.of(others)
        table = runner.rows(
            "make other queue files",
            "files",
            lambda done: _OtherFiles(writer, items, done),
            len(others),
            SUMMARY_SCHEMA,
        )
        for row in table["summary"].to_pylist():
            written += json.loads(row)
    return sorted(written)


def sound_units(expected: ExpectedFile, existing: Units, bounds: LogBounds, tags_codes: Int64s | None = None) -> Units:
    """The units of a sound file, all of them: the inverse of the check of a file (`spark_mq.verifier.queue_file`).

    | queue offset | unit |
    | --- | --- |
    | before the first message of the log | that of the file if its message expired and it is in order, else pre-blank |
    | of a message | the unit of the message |
    | between two messages, without one | that of the file if it is one: the log is damaged there; else pre-blank |
    | after the last message | zeros |

    Args:
        expected: The units that the log has for the file.
        bounds: Start and end of the log.
        tags_codes: The tags codes of the existing units, or those to which their addresses in `consumequeue_ext` lead.
            A unit whose tags code is right stays as it is; one whose address is wrong gets the tags code itself.
    """
    have = _of_size(existing, expected.capacity)
    result = _of_size(expected.units, expected.capacity).copy()
    for queue_offsets, units in expected.doubled:
        # A queue that was deleted and created again has the later one of two messages.
        at = queue_offsets - expected.start
        is_later = _bytes_of(units) == _bytes_of(have[at])
        result[at[is_later]] = units[is_later]
    has_message = result["store_size"] != 0
    if tags_codes is not None:
        codes = np.zeros(have.size, np.int64)
        codes[: tags_codes.size] = tags_codes[: have.size]
        is_same = (result["commit_log_offset"] == have["commit_log_offset"]) & has_message
        is_same &= (result["store_size"] == have["store_size"]) & (result["tags_code"] == codes)
        result[is_same] = have[is_same]
    live = is_live(have)
    offsets = have["commit_log_offset"].astype(np.int64)
    is_expired = _in_order(offsets, live & (offsets < bounds.start) & ~has_message)
    numbers = expected.start + np.arange(have.size)
    if expected.queue_min is None or expected.queue_max is None:
        good = is_expired | _is_pre_blank(have)
        stop = int(np.flatnonzero(good)[-1]) + 1 if good.any() else 0
        before = np.arange(have.size) < stop
        inner: Which = np.zeros(have.size, np.bool_)
    else:
        before = ~has_message & (numbers < expected.queue_min)
        inner = ~has_message & (numbers >= expected.queue_min) & (numbers < expected.queue_max)
    result[before | inner] = pre_blank(1)
    kept = (before & (is_expired | (live & bounds.is_lost(offsets)))) | (inner & live)
    result[kept] = have[kept]
    return result


def _in_order(offsets: np.ndarray[tuple[int], np.dtype[np.int64]], which: Which) -> Which:
    """Those of `which` whose offsets ascend: without the ones that are too large, or without those too small."""
    at = np.flatnonzero(which)
    chosen = offsets[at]
    largest_before = np.concatenate(([-1], np.maximum.accumulate(chosen)[:-1]))
    smallest_after = np.concatenate((np.minimum.accumulate(chosen[::-1])[::-1][1:], [np.iinfo(np.int64).max]))
    choices = [chosen > largest_before, chosen < smallest_after]
    best = max(choices, key=np.count_nonzero)
    result: Which = np.zeros(which.size, np.bool_)
    result[at[best]] = True
    return result


def _is_pre_blank(units: Units) -> Which:
    which: Which = _bytes_of(units) == _bytes_of(pre_blank(1))
    return which


def _bytes_of(units: Units) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.ascontiguousarray(units).view((np.void, UNIT_SIZE))


def _of_size(units: Units, size: int) -> Units:
    if units.size >= size:
        return units[:size]
    padded = np.zeros(size, UNIT_DTYPE)
    padded[: units.size] = units
    return padded
