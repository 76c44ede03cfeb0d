"""Which queues are written, where each begins and ends, and what existing files say of them.

A broker keeps the last file of a queue whose units are all expired, and continues to number messages from its end. The
log has no message of such a queue. So the existing files are copied. If there are none, the offsets of consumers show
the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_mq.errors import CorruptLogError, OutputExistsError, StorageError, UnsafeNameError
from spark_mq.format.consume_queue import UNIT_SIZE, Queue, is_live
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.indexer.queue_runs import Assignment, StagedQueue
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.report import raise_or_report
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.config.config_file import check_topic_name
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFolder, queue_folders
from spark_mq.store.queue.queue_database import queue_tree

_WRITE_TASKS = 4
_BYTES_PER_WRITE_TASK = 16 << 20
"""Bytes of units for each further task; a task costs Spark some tens of milliseconds."""


def carry_over(
    existing: Iterable[QueueFolder], live: Mapping[Queue, int], folder: Location, file_size: int
) -> tuple[list[str], list[str]]:
    """Copy the files of queues without a live message into a `consumequeue` folder, with their file times.

    Returns the names of the queues, and a text for each queue whose files have another size and are left out.
    """
    copied, lost = [], []
    for queue in existing:
        if (queue.topic, queue.queue_id) in live:
            continue
        name = f"{queue.topic}/{queue.queue_id}"
        if any(info.size != file_size for info in queue.files):
            lost.append(f"{name}: its files have another size than {file_size} bytes and were left out")
            continue
        for info in queue.files:
            content = (queue.location / info.base_name).read_bytes()
            publish(folder / name / info.base_name, content, len(content), (info.mtime_ns or 0) // NANOS_PER_MILLI)
        copied.append(name)
    return copied, lost


@dataclass(frozen=True)
class ExistingQueues:
    """The selected queues of the store, and those of the output whose files are continued."""

    of_store: tuple[QueueFolder, ...]
    continued: Mapping[Queue, QueueFolder]


def find_existing_queues(plan: RebuildPlan, output: Location) -> ExistingQueues:
    """The queues of the store, and those in `output` that are continued."""
    of_store = _selected(plan, plan.store)
    of_output = _selected(plan, output) if plan.selection.queue_tree in plan.continued else ()
    file_size = plan.settings.queue_file_size
    for folder in of_output:
        for info in folder.files:
            if info.size != file_size:
                raise OutputExistsError(
                    f"{folder.location / info.base_name} has {info.size} bytes, which cannot be continued with "
                    f"files of {file_size}: give the broker's settings (--broker-conf), or --replace"
                )
    return ExistingQueues(of_store, {(folder.topic, folder.queue_id): folder for folder in of_output})


def _selected(plan: RebuildPlan, store: Location) -> tuple[QueueFolder, ...]:
    try:
        folders = queue_folders(queue_tree(store, plan.settings.queue_file_size))
    except StorageError:  # a database that does not open: the log has the messages
        return ()
    return tuple(folder for folder in folders if plan.selection.has_queue(folder.topic, folder.queue_id))


_NUMBERS = ("queue_min", "queue_max", "existing_end")
_ASSIGNED = {"topic": pa.string(), "queue_id": pa.int32(), **dict.fromkeys(_NUMBERS, pa.int64())}
"""The columns of `Assignment.queues` that are fields of a queue."""


@dataclass(frozen=True)
class QueuePlan:
    """The queues that are written, by topic and queue id.

    `topics_left_out` has an entry for each queue of a topic whose name is not safe as that of a folder.
    """

    queues: tuple[StagedQueue, ...]
    units_per_file: int
    topics_left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    corrupt: tuple[CorruptRange, ...] = ()

    @property
    def next_offsets(self) -> dict[Queue, int]:
        """The next queue offset of each queue."""
        return {queue.key: queue.queue_max for queue in self.queues}

    @property
    def file_ranges(self) -> dict[Queue, range]:
        """The numbers of the files of each queue that contain messages of the log."""
        size = self.units_per_file
        return {queue.key: range(queue.queue_min // size, (queue.queue_max - 1) // size + 1) for queue in self.queues}

    def assignment(self) -> Assignment:
        """Which task writes the runs of each queue. Files are numbered through, so they are spread evenly."""
        files, file_bases = 0, []
        for file_range in self.file_ranges.values():
            file_bases.append(files - file_range.start)
            files += len(file_range)
        columns = {
            name: pa.array([getattr(queue, name) for queue in self.queues], kind) for name, kind in _ASSIGNED.items()
        }
        queues = pa.table({**columns, "file_base": pa.array(file_bases, pa.int64())})
        unit_bytes = sum(queue.staged_units for queue in self.queues) * UNIT_SIZE
        return Assignment(queues, max(1, min(files, _WRITE_TASKS + unit_bytes // _BYTES_PER_WRITE_TASK)))


def plan_queues(
    plan: RebuildPlan, existing: ExistingQueues, staged_queues: Iterable[StagedQueue], log_end: int
) -> QueuePlan:
    """The plan of every selected queue with messages in the log; units can lead to messages up to `log_end`."""
    unsafe: list[tuple[str, str]] = []
    kept = []
    for queue in staged_queues:
        if not plan.selection.has_queue(queue.topic, queue.queue_id):
            continue
        try:
            check_topic_name(queue.topic)
        except UnsafeNameError as error:
            reason = f"{error}; first message at commit log offset {queue.commit_log_offset}"
            if not plan.is_permissive:
                raise UnsafeNameError(f"{reason}; --mode permissive leaves the topic out") from error
            unsafe.append((queue.topic, f"left out: {reason}"))
        else:
            kept.append(queue)
    ends = _existing_ends(plan, existing.continued, kept, log_end)
    queues = tuple(replace(queue, existing_end=ends.get(queue.key, 0)) for queue in kept)
    too_long = (_longer_than_the_log(queue) for queue in queues if queue.existing_end > queue.queue_max)
    return QueuePlan(
        queues,
        plan.settings.queue_file_size // UNIT_SIZE,
        tuple(topic for topic, _ in unsafe),
        tuple(note for _, note in unsafe),
        raise_or_report(too_long, plan.is_permissive),
    )


def _existing_ends(
    plan: RebuildPlan, continued: Mapping[Queue, QueueFolder], staged_queues: Iterable[StagedQueue], log_end: int
) -> dict[Queue, int]:
    """The queue offset after the last live unit of each queue that is continued.

    Raises `CorruptLogError` if a queue ends before its first message in the log: the messages between them expired.
    """
    ends: dict[Queue, int] = {}
    with closing(FileReaders()) as files:
        records = RecordLookup(plan.store, files)
        for staged in staged_queues:
            folder = continued.get(staged.key)
            if folder is None:
                continue
            queue = ConsumeQueue(folder, files)
            end = ends[staged.key] = queue.max_offset(records, log_end)
            if end < staged.queue_min and is_live(queue.units(end - 1, end)).any():
                raise CorruptLogError(
                    f"{folder.location}: queue offsets from {end} to {staged.queue_min} have neither a unit nor a "
                    "message: it cannot be continued; --replace starts the queue after them"
                )
    return ends


def _longer_than_the_log(queue: StagedQueue) -> CorruptRange:
    reason = (
        f"the queue's files end at {queue.existing_end}, the log at {queue.queue_max}; --replace rebuilds the queues "
        "from the log"
    )
    return CorruptRange(queue.name, queue.commit_log_offset, 0, "CONTRADICTED_UNITS", reason)
