"""Consume queues out of staged runs: every queue's place, every file's task, and queues that the log does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from spark_mq._compat import repartition_by_id
from spark_mq.errors import CorruptLogError, OutputExistsError, UnsafeNameError
from spark_mq.format.consume_queue import DEFAULT_FILE_SIZE, UNIT_SIZE, is_live, queue_file_name
from spark_mq.indexer.queue.carry_over import Queue, carry_over, lost_offsets
from spark_mq.indexer.run import Job
from spark_mq.indexer.split_rows import SplitRow
from spark_mq.indexer.staged_rows import UNITS
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.consumer_offsets import consumed_offsets
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.config.topic_name import check_topic_name
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import existing_file_size, queue_folders

_WRITE_TASKS = 4
_MOST_RANGES_SHOWN = 10
_BYTES_PER_WRITE_TASK = 16 << 20
"""One more task for every so many bytes of units; a task costs Spark some tens of milliseconds."""


def queue_file_size(conf: BrokerConf, trees: Iterable[Location]) -> int:
    """Bytes of a queue file: as the broker's settings say, or the files of the first tree that has some."""
    sizes = (existing_file_size(list(queue_folders(tree))) for tree in trees)
    return conf.consume_queue_file_size or next(filter(None, sizes), DEFAULT_FILE_SIZE)


class QueueBuild:
    """The consume queues of one job. `file_size`: bytes of a queue file.

    Raises `OutputExistsError` where files that are to be continued have another size.
    """

    def __init__(self, job: Job, file_size: int) -> None:
        self._job = job
        self._report = job.report
        self.file_size = file_size
        self.bytes_written = 0
        self._existing = list(queue_folders(job.store / CONSUME_QUEUE))
        target = job.committer.target(CONSUME_QUEUE)
        is_continued = CONSUME_QUEUE in job.continued
        self._continued = {(one.topic, one.queue_id): one for one in queue_folders(target)} if is_continued else {}
        self._check_sizes()

    def _check_sizes(self) -> None:
        for folder in self._continued.values():
            for info in folder.files:
                if info.size != self.file_size:
                    raise OutputExistsError(
                        f"{folder.location / info.base_name} has {info.size} bytes, which cannot be continued with "
                        f"files of {self.file_size}: give the broker's settings (--broker-conf), or --replace"
                    )

    def write(self, staged: DataFrame, rows: Sequence[SplitRow]) -> None:
        """Write every queue file, and carry over queues without a live message; `rows` in the order of the log."""
        self._log_start = rows[0].segment
        self._log_end = rows[-1].segment + max(row.end_position for row in rows if row.segment == rows[-1].segment)
        next_offsets = self._write(staged.where(F.col("kind") == UNITS))
        report, growing = self._report, self._job.committer.staging_path(CONSUME_QUEUE)
        dead = [one for one in self._existing if (one.topic, one.queue_id) not in self._continued]
        report.carried_over, report.lost_queues = carry_over(dead, next_offsets, growing, self.file_size)
        report.carried_over += [f"{topic}/{id_}" for topic, id_ in self._continued if (topic, id_) not in next_offsets]
        self._job.committer.keep_only(CONSUME_QUEUE, self._is_planned)
        report.lost_queues += lost_offsets(consumed_offsets(self._job.store), next_offsets, report.carried_over)

    def _write(self, runs: DataFrame) -> dict[Queue, int]:
        """Write every queue file; returns the queues' next offsets."""
        from spark_mq.indexer.queue.writer import WRITTEN_SCHEMA, QueueWriter

        placed, tasks = self._place(runs)
        next_offsets = {(queue.topic, queue.queue_id): queue.queue_max for queue in self._queue_rows}
        if not next_offsets:
            return next_offsets
        committer = self._job.committer
        continued = str(committer.target(CONSUME_QUEUE)) if self._continued else None
        with self._job.progress.stage("write queues", tasks, "tasks") as done:
            writer = QueueWriter(
                str(committer.staging_path(CONSUME_QUEUE)),
                continued,
                self.file_size,
                self._log_start,
                self._job.is_resumed,
                done,
            )
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
                    "queue_min",
                    "queue_max",
                    "existing_end",
                )
                .mapInPandas(self._job.places.wrap(writer), WRITTEN_SCHEMA)
                .collect()
            )
        report = self._report
        report.queues = len(next_offsets)
        report.files = len(written)
        report.units = sum(file.units for file in written)
        self._count_continued(written)
        self.bytes_written = sum(file.bytes for file in written)
        self._job.refuse([*self._holes(written), *self._doubled(written), *self._contradicted(written)])
        return next_offsets

    def _count_continued(self, written: Sequence[Row]) -> None:
        """Count the files that were there: in the tree that is continued, or because a killed job wrote them."""
        from spark_mq.indexer.queue.writer import COMPLETED, STAGED

        states = Counter(file.state for file in written)
        there = sum(len(folder.files) for folder in self._continued.values())
        self._report.files_completed += states[COMPLETED]
        self._report.files_untouched += there - states[COMPLETED] + states[STAGED] - len(self.stale_files())

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
        self._first_offsets = {f"{one.topic}/{one.queue_id}": one.commit_log_offset for one in queues}
        self._queue_rows = [queue for queue in queues if self._is_safe(queue.topic, queue.commit_log_offset)]
        existing_ends = self._existing_ends()
        units_per_file = self.file_size // UNIT_SIZE
        files, placed = 0, []
        self._file_ranges: dict[Queue, range] = {}
        for queue in self._queue_rows:
            key = (queue.topic, queue.queue_id)
            file_range = range(queue.queue_min // units_per_file, (queue.queue_max - 1) // units_per_file + 1)
            ends = (queue.queue_min, queue.queue_max, existing_ends.get(key, 0))
            placed.append((*key, *ends, files - file_range.start))
            files += file_range.stop - file_range.start
            self._file_ranges[key] = file_range
        schema = "topic STRING, queue_id INT, queue_min BIGINT, queue_max BIGINT, existing_end BIGINT, file_base BIGINT"
        unit_bytes = sum(queue.staged_units for queue in self._queue_rows) * UNIT_SIZE
        tasks = max(1, min(files, _WRITE_TASKS + unit_bytes // _BYTES_PER_WRITE_TASK))
        placed_runs = runs.join(F.broadcast(self._job.spark.createDataFrame(placed, schema)), ["topic", "queue_id"])
        task = (F.col("file_base") + F.col("file_number")) % tasks
        return placed_runs.withColumn("task", task.cast("int")), tasks

    def _existing_ends(self) -> dict[Queue, int]:
        """The queue offset behind the last live unit of each queue that is continued.

        Raises `CorruptLogError` where a queue ends before its first message in the log: what was between expired.
        """
        files = FileReaders()
        records = RecordLookup(self._job.store, files)
        ends: dict[Queue, int] = {}
        contradictions = []
        for row in self._queue_rows:
            folder = self._continued.get((row.topic, row.queue_id))
            if folder is None:
                continue
            queue = ConsumeQueue(folder, files)
            end = queue.max_offset(records, self._log_end)
            ends[row.topic, row.queue_id] = end
            if end < row.queue_min and is_live(queue.units(end - 1, end)).any():
                raise CorruptLogError(
                    f"{folder.location}: queue offsets from {end} to {row.queue_min} have neither a unit nor a "
                    "message: it cannot be continued; --replace begins it behind them"
                )
            if end > row.queue_max:
                reason = f"the queue's files end at {end}, the log at {row.queue_max}; --replace makes the queues anew"
                name = f"{row.topic}/{row.queue_id}"
                contradictions.append(CorruptRange(name, row.commit_log_offset, 0, "CONTRADICTED_UNITS", reason))
        files.close()
        self._job.refuse(contradictions)
        return ends

    def stale_files(self) -> list[Location]:
        """Files of continued queues that lie behind the queue's end: what units they hold are stale."""
        return [
            folder.location / info.base_name
            for queue, folder in self._continued.items()
            for info in folder.files
            if queue in self._file_ranges and int(info.base_name) // self.file_size >= self._file_ranges[queue].stop
        ]

    def _is_planned(self, path: str) -> bool:
        """Whether this job writes the file TOPIC/QUEUE/NAME."""
        queue, _, name = path.rpartition("/")
        topic, _, queue_id = queue.rpartition("/")
        if queue in self._report.carried_over:
            return True
        files = self._file_ranges.get((topic, int(queue_id)), range(0))
        return name.isdigit() and int(name) // self.file_size in files

    def _is_safe(self, topic: str, commit_log_offset: int) -> bool:
        try:
            check_topic_name(topic)
        except UnsafeNameError as error:
            reason = f"{error}; first message at commit log offset {commit_log_offset}"
            if not self._job.permissive:
                raise UnsafeNameError(f"{reason}; --mode permissive leaves the topic out") from error
            self._report.notes.append(f"left out: {reason}")
            self._report.topics_left_out.append(topic)
            return False
        return True

    def _holes(self, written: Sequence[Row]) -> Iterator[CorruptRange]:
        """Queues that have queue offsets without a message, and which those are."""
        files: dict[Queue, list[Row]] = {}
        for file in written:
            files.setdefault((file.topic, file.queue_id), []).append(file)
        for row in self._queue_rows:
            of_queue = sorted(files[row.topic, row.queue_id], key=lambda file: int(file.file_number))
            count = row.queue_max - row.queue_min - sum(file.units for file in of_queue)
            if count:
                missing = missing_ranges(of_queue, self.file_size // UNIT_SIZE)
                name = f"{row.topic}/{row.queue_id}"
                yield CorruptRange(name, row.commit_log_offset, 0, "MISSING_UNITS", missing_text(missing, count))

    def _contradicted(self, written: Sequence[Row]) -> Iterator[CorruptRange]:
        """Files that were continued, and hold units that the log contradicts."""
        for file in written:
            if file.contradicted:
                reason = (
                    f"{file.contradicted} units of {queue_file_name(file.file_number, self.file_size)} are not what "
                    f"the log says, the first names commit log offset {file.first_contradicted}; --replace makes the "
                    "queues new from the log"
                )
                name = f"{file.topic}/{file.queue_id}"
                yield CorruptRange(name, file.first_contradicted, 0, "CONTRADICTED_UNITS", reason)

    def _doubled(self, written: Sequence[Row]) -> Iterator[CorruptRange]:
        """Files in which messages claim a queue offset that an earlier message has."""
        for file in written:
            if file.doubled:
                reason = (
                    f"{file.doubled} messages have a queue offset that an earlier message has, the first of them "
                    f"queue offset {file.first_doubled}: they are in no queue"
                )
                name = f"{file.topic}/{file.queue_id}"
                yield CorruptRange(name, self._first_offsets[name], 0, "DOUBLED_UNITS", reason)


def missing_ranges(files: Sequence[Row], units_per_file: int) -> list[range]:
    """The queue offsets of one queue that have no message, as ranges that do not touch; of many only the first.

    Args:
        files: The queue's rows of `WRITTEN_SCHEMA`, by file number; a file without any unit has none.
        units_per_file: How many units a file has room for.

    """
    found: list[range] = []
    end = files[0].file_number * units_per_file
    for file in files:
        start = file.file_number * units_per_file
        ranges = [range(end, start), *map(range, file.missing_starts, file.missing_stops)]
        for missing in filter(None, ranges):
            if found and found[-1].stop == missing.start:
                found[-1] = range(found[-1].start, missing.stop)
            else:
                found.append(missing)
        end = start + units_per_file
    return found


def missing_text(missing: Sequence[range], count: int) -> str:
    """What is said of queue offsets without a message.

    Args:
        missing: The first of them, as ranges.
        count: How many there are in all.

    """
    shown = missing[:_MOST_RANGES_SHOWN]
    texts = [str(one.start) if len(one) == 1 else f"{one.start} to {one.stop - 1}" for one in shown]
    if count == 1:
        return f"queue offset {texts[0]} has no message"
    rest = count - sum(map(len, shown))
    more = f" and {rest} more" if rest else ""
    return f"queue offsets {', '.join(texts)}{more} have no message ({count} in all)"
