"""Which queue files are written: the offsets of each queue, the range of its files, and where existing files end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from spark_mq.errors import CorruptLogError, UnsafeNameError
from spark_mq.format.consume_queue import UNIT_SIZE, is_live
from spark_mq.indexer.damage import raise_or_report
from spark_mq.indexer.queue.carry_over import Queue
from spark_mq.indexer.queue.existing import ExistingQueues
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.config.topic_name import check_topic_name
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFolder

_WRITE_TASKS = 4
_BYTES_PER_WRITE_TASK = 16 << 20
"""Bytes of units for each further task; a task costs Spark some tens of milliseconds."""

_PLANNED_SCHEMA = (
    "topic STRING, queue_id INT, queue_min BIGINT, queue_max BIGINT, existing_end BIGINT, file_base BIGINT"
)


@dataclass(frozen=True)
class PlannedQueue:
    """A queue that has messages in the log.

    Attributes:
        topic: The topic.
        queue_id: The number of the queue in its topic.
        queue_min: The first queue offset in the log.
        queue_max: The queue offset after the last one in the log.
        existing_end: The queue offset at which the existing files end; 0 if the queue is not continued.
        staged_units: The number of staged units.
        commit_log_offset: The offset of the queue's first message.

    """

    topic: str
    queue_id: int
    queue_min: int
    queue_max: int
    existing_end: int
    staged_units: int
    commit_log_offset: int

    @property
    def key(self) -> Queue:
        """Topic and queue id."""
        return self.topic, self.queue_id

    @property
    def name(self) -> str:
        """The queue's folder below `consumequeue/`: `TOPIC/QUEUE ID`."""
        return f"{self.topic}/{self.queue_id}"


@dataclass(frozen=True)
class QueuePlan:
    """The queues that are written, by topic and queue id.

    Attributes:
        queues: The queues.
        units_per_file: The number of units in a file.
        topics_left_out: Topics whose names are not safe as names of folders; one entry for each of their queues.
        notes: What the report says of these topics.
        corrupt: Queues that the log contradicts.

    """

    queues: tuple[PlannedQueue, ...]
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
        return {queue.key: self._files_of(queue) for queue in self.queues}

    @property
    def tasks(self) -> int:
        """The number of tasks that write the files."""
        files = sum(map(len, self.file_ranges.values()))
        unit_bytes = sum(queue.staged_units for queue in self.queues) * UNIT_SIZE
        return max(1, min(files, _WRITE_TASKS + unit_bytes // _BYTES_PER_WRITE_TASK))

    def assign(self, units: DataFrame) -> DataFrame:
        """The staged runs of the planned queues, with the columns of their queue and the number of their `task`.

        All files are numbered through, so that the files are spread evenly over the tasks.
        """
        files, rows = 0, []
        for queue in self.queues:
            file_range = self._files_of(queue)
            ends = (queue.queue_min, queue.queue_max, queue.existing_end)
            rows.append((*queue.key, *ends, files - file_range.start))
            files += len(file_range)
        planned = units.sparkSession.createDataFrame(rows, _PLANNED_SCHEMA)
        task = (F.col("file_base") + F.col("file_number")) % self.tasks
        return units.join(F.broadcast(planned), ["topic", "queue_id"]).withColumn("task", task.cast("int"))

    def _files_of(self, queue: PlannedQueue) -> range:
        return range(queue.queue_min // self.units_per_file, (queue.queue_max - 1) // self.units_per_file + 1)


def plan_queues(plan: RebuildPlan, existing: ExistingQueues, staged: StagedLog) -> QueuePlan:
    """The plan of every selected queue that has messages in the log.

    Args:
        plan: The plan of the rebuild.
        existing: The queues that exist.
        staged: The staged log.

    Raises:
        UnsafeNameError: The name of a topic would lead out of the output, and the mode is not permissive.
        CorruptLogError: A continued queue ends before its first message in the log, so that it cannot be continued;
            or it ends after its last message, and the mode is not permissive.

    """
    unsafe: list[tuple[str, str]] = []
    rows = []
    for row in _staged_queues(staged.units):
        if not plan.selection.has_queue(row.topic, row.queue_id):
            continue
        reason = _unsafe_name(row.topic, row.commit_log_offset, plan.is_permissive)
        if reason is None:
            rows.append(row)
        else:
            unsafe.append((row.topic, f"left out: {reason}"))
    ends = _existing_ends(plan, existing.continued, rows, staged.end)
    queues = tuple(PlannedQueue(**row.asDict(), existing_end=ends.get((row.topic, row.queue_id), 0)) for row in rows)
    too_long = (queue for queue in queues if queue.existing_end > queue.queue_max)
    return QueuePlan(
        queues,
        plan.settings.queue_file_size // UNIT_SIZE,
        tuple(topic for topic, _ in unsafe),
        tuple(note for _, note in unsafe),
        raise_or_report(map(_longer_than_the_log, too_long), plan.is_permissive),
    )


def _staged_queues(units: DataFrame) -> list[Row]:
    """A row for each queue of the log, by topic and queue id; columns are fields of `PlannedQueue`."""
    rows = (
        units.groupBy("topic", "queue_id")
        .agg(
            F.min("first_queue_offset").alias("queue_min"),
            F.max(F.col("first_queue_offset") + F.col("unit_count")).alias("queue_max"),
            F.sum("unit_count").alias("staged_units"),
            F.min("commit_log_offset").alias("commit_log_offset"),
        )
        .collect()
    )
    return sorted(rows, key=lambda row: (row.topic, row.queue_id))


def _unsafe_name(topic: str, commit_log_offset: int, is_permissive: bool) -> str | None:
    """Why a topic is left out; None if its name is safe. Raises `UnsafeNameError` if the mode is not permissive."""
    try:
        check_topic_name(topic)
    except UnsafeNameError as error:
        reason = f"{error}; first message at commit log offset {commit_log_offset}"
        if not is_permissive:
            raise UnsafeNameError(f"{reason}; --mode permissive leaves the topic out") from error
        return reason
    return None


def _existing_ends(
    plan: RebuildPlan, continued: Mapping[Queue, QueueFolder], rows: Iterable[Row], log_end: int
) -> dict[Queue, int]:
    """The queue offset after the last live unit of each queue that is continued.

    Raises `CorruptLogError` if a queue ends before its first message in the log: the messages between them expired.
    """
    files = FileReaders()
    records = RecordLookup(plan.store, files)
    ends: dict[Queue, int] = {}
    try:
        for row in rows:
            folder = continued.get((row.topic, row.queue_id))
            if folder is None:
                continue
            queue = ConsumeQueue(folder, files)
            end = queue.max_offset(records, log_end)
            ends[row.topic, row.queue_id] = end
            if end < row.queue_min and is_live(queue.units(end - 1, end)).any():
                raise CorruptLogError(
                    f"{folder.location}: queue offsets from {end} to {row.queue_min} have neither a unit nor a "
                    "message: it cannot be continued; --replace starts the queue after them"
                )
    finally:
        files.close()
    return ends


def _longer_than_the_log(queue: PlannedQueue) -> CorruptRange:
    reason = (
        f"the queue's files end at {queue.existing_end}, the log at {queue.queue_max}; --replace rebuilds the queues "
        "from the log"
    )
    return CorruptRange(queue.name, queue.commit_log_offset, 0, "CONTRADICTED_UNITS", reason)
