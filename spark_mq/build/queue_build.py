"""Consume queues out of staged runs: every queue's place, every file's task, and queues that the log does not know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from spark_mq._compat import repartition_by_id
from spark_mq.build.carry_over import Queue, carry_over, lost_offsets
from spark_mq.build.job import Job
from spark_mq.build.staging import UNITS
from spark_mq.errors import UnsafeNameError
from spark_mq.format.consume_queue import DEFAULT_FILE_SIZE, UNIT_SIZE
from spark_mq.store.consumer_offsets import consumed_offsets
from spark_mq.store.corrupt_range import CorruptRange
from spark_mq.store.names import check_topic_name
from spark_mq.store.queue_files import CONSUME_QUEUE, existing_file_size, queue_folders

_WRITE_TASKS = 4
_BYTES_PER_WRITE_TASK = 16 << 20
"""One more task for every so many bytes of units; a task costs Spark some tens of milliseconds."""


class QueueBuild:
    """The consume queues of one job. `file_size`: bytes of a queue file."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._report = job.report
        self.bytes_written = 0
        self._existing = list(queue_folders(job.store / CONSUME_QUEUE))
        self.file_size = (
            job.broker_conf.consume_queue_file_size or existing_file_size(self._existing) or DEFAULT_FILE_SIZE
        )

    def write(self, staged: DataFrame) -> None:
        """Write every queue file, and carry over queues without a live message."""
        next_offsets = self._write(staged.where(F.col("kind") == UNITS))
        report, growing = self._report, self._job.workplace.growing(CONSUME_QUEUE)
        report.carried_over, report.lost_queues = carry_over(self._existing, next_offsets, growing, self.file_size)
        report.lost_queues += lost_offsets(consumed_offsets(self._job.store), next_offsets, report.carried_over)

    def _write(self, runs: DataFrame) -> dict[Queue, int]:
        """Write every queue file; returns the queues' next offsets."""
        from spark_mq.build.queue_writer import WRITTEN_SCHEMA, QueueWriter

        placed, tasks = self._place(runs)
        next_offsets = {(queue.topic, queue.queue_id): queue.queue_max for queue in self._queue_rows}
        if not next_offsets:
            return next_offsets
        growing = self._job.workplace.growing(CONSUME_QUEUE)
        with self._job.progress.stage("write queues", tasks, "tasks") as done:
            writer = QueueWriter(str(growing), self.file_size, done)
            written = (
                repartition_by_id(placed, tasks, F.col("task"))
                .sortWithinPartitions("topic", "queue_id", "file_number", "commit_log_offset")
                .select(
                    "topic",
                    "queue_id",
                    "file_number",
                    "first_queue_offset",
                    "units",
                    "commit_log_offset",
                    "last_store_timestamp",
                    "queue_max",
                )
                .mapInPandas(self._job.places.guard(writer), WRITTEN_SCHEMA)
                .collect()
            )
        report = self._report
        report.queues = len(next_offsets)
        report.files = len(written)
        report.units = sum(file.units for file in written)
        self.bytes_written = sum(file.bytes for file in written)
        self._job.refuse(list(self._holes(written)) + list(self._doubled(written)))
        return next_offsets

    def _place(self, runs: DataFrame) -> tuple[DataFrame, int]:
        """Every queue with its first and next offset and the number of its first file, counted through all queues."""
        end = F.col("first_queue_offset") + F.col("unit_count")
        queues = (
            runs.groupBy("topic", "queue_id")
            .agg(
                F.min("first_queue_offset").alias("queue_min"),
                F.max(end).alias("queue_max"),
                F.sum("unit_count").alias("staged_units"),
                F.min("commit_log_offset").alias("commit_log_offset"),
            )
            .collect()
        )
        queues.sort(key=lambda queue: (queue.topic, queue.queue_id))
        self._queue_rows = [queue for queue in queues if self._is_safe(queue.topic, queue.commit_log_offset)]
        units_per_file = self.file_size // UNIT_SIZE
        files, placed = 0, []
        for queue in self._queue_rows:
            first_file = queue.queue_min // units_per_file
            placed.append((queue.topic, queue.queue_id, queue.queue_max, files - first_file))
            files += (queue.queue_max - 1) // units_per_file - first_file + 1
        schema = "topic STRING, queue_id INT, queue_max BIGINT, file_base BIGINT"
        unit_bytes = sum(queue.staged_units for queue in self._queue_rows) * UNIT_SIZE
        tasks = max(1, min(files, _WRITE_TASKS + unit_bytes // _BYTES_PER_WRITE_TASK))
        placed_runs = runs.join(F.broadcast(self._job.spark.createDataFrame(placed, schema)), ["topic", "queue_id"])
        task = (F.col("file_base") + F.col("file_number")) % tasks
        return placed_runs.withColumn("task", task.cast("int")), tasks

    def _is_safe(self, topic: str, commit_log_offset: int) -> bool:
        try:
            check_topic_name(topic)
        except UnsafeNameError as error:
            reason = f"{error}; first message at commit log offset {commit_log_offset}"
            if not self._job.permissive:
                raise UnsafeNameError(f"{reason}; --mode permissive leaves the topic out") from error
            self._report.notes.append(f"left out: {reason}")
            return False
        return True

    def _holes(self, written: Sequence[Row]) -> Iterator[CorruptRange]:
        """Queues some of whose offsets no message has."""
        placed: dict[Queue, int] = {}
        for file in written:
            queue = (file.topic, file.queue_id)
            placed[queue] = placed.get(queue, 0) + file.units
        for row in self._queue_rows:
            missing = row.queue_max - row.queue_min - placed[row.topic, row.queue_id]
            if missing:
                reason = f"{missing} queue offsets from {row.queue_min} to {row.queue_max} have no message"
                yield CorruptRange(f"{row.topic}/{row.queue_id}", row.commit_log_offset, 0, "MISSING_UNITS", reason)

    def _doubled(self, written: Sequence[Row]) -> Iterator[CorruptRange]:
        """Files in which messages claim a queue offset that an earlier message has."""
        for file in written:
            if file.doubled:
                reason = (
                    f"{file.doubled} messages have a queue offset that an earlier message has: they are in no queue"
                )
                name = f"{file.topic}/{file.queue_id}"
                yield CorruptRange(name, file.first_doubled, 0, "DOUBLED_UNITS", reason)
