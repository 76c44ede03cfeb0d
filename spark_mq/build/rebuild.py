"""The main job: consume queues rebuilt from the commit log, whole files, in a few Spark stages.

1. dispatch: each split is read once and becomes staged runs of units (`dispatch`, staged as Parquet).
2. judge: did the splits fit together (`seams`)? Segments that did not are read again. Damage stops the job, or is
   reported.
3. place: every queue's first and last offset; every file gets a task.
4. write: runs are sent to their file's task, which assembles and writes it (`queue_writer`).
5. publish: queues without a live message are carried over, and the tree is put in place (`workplace`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq._compat import repartition_by_id
from spark_mq.build.carry_over import Queue, carry_over, lost_offsets
from spark_mq.build.dispatch_rows import SplitRow
from spark_mq.build.progress import Progress, mark_done
from spark_mq.build.report import RebuildReport
from spark_mq.build.seams import segments_to_read_again
from spark_mq.build.session import job_session, spark_path
from spark_mq.build.shared_places import SharedPlaces
from spark_mq.build.staging import SPLIT, STAGED_SCHEMA, UNITS
from spark_mq.build.workplace import Workplace
from spark_mq.errors import CorruptLogError, EmptyStoreError, OptionError, UnsafeNameError
from spark_mq.format.consume_queue import DEFAULT_FILE_SIZE, UNIT_SIZE
from spark_mq.store.broker_conf import BrokerConf
from spark_mq.store.commit_log import CommitLog
from spark_mq.store.consumer_offsets import consumed_offsets
from spark_mq.store.corrupt_range import CorruptRange
from spark_mq.store.filesystem import Location
from spark_mq.store.names import check_topic_name
from spark_mq.store.queue_files import CONSUME_QUEUE, existing_file_size, queue_folders
from spark_mq.store.splits import DEFAULT_SPLIT_SIZE, Split, plan_splits
from spark_mq.store.store_kind import refuse_rocksdb, rocksdb_notes

FAILFAST = "failfast"
PERMISSIVE = "permissive"

_WRITE_TASKS = 4
_BYTES_PER_WRITE_TASK = 16 << 20
"""One more task for every so many bytes of units; a task costs Spark some tens of milliseconds."""


def rebuild(
    spark: SparkSession,
    store: str,
    output: str | None = None,
    *,
    only: str = CONSUME_QUEUE,
    broker_conf: str | None = None,
    mode: str = FAILFAST,
    replace: bool = False,
    split_size: int = DEFAULT_SPLIT_SIZE,
    progress: Callable[[str], None] | None = None,
) -> RebuildReport:
    """Rebuild `consumequeue/` of the store directory `store`, below `output` (by default in the store itself).

    The files are byte for byte those that a broker makes of the same log. `broker_conf` names the broker's settings
    (queue file size, delay levels); without it the size of existing queue files counts, else 6,000,000 bytes.
    `mode` `failfast` stops at damage, `permissive` skips and reports it. `replace` allows an existing tree to be
    replaced, which happens when the new one is complete. `progress` gets a line now and then.

    Raises `StoreNotFoundError`, `UnsupportedStoreError`, `EmptyStoreError`, `OutputExistsError`, `CorruptLogError`
    (failfast), `UnsafeNameError` (failfast), `NotSharedError` (a task does not see the store or the output that the
    driver sees) and `OptionError`.
    """
    _check_choice("--only", only, (CONSUME_QUEUE,))
    _check_choice("--mode", mode, (FAILFAST, PERMISSIVE))
    with job_session(spark) as session:
        return _Rebuild(session, store, output, broker_conf, mode == PERMISSIVE, split_size).run(replace, progress)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise OptionError(f"{name} {value!r} is none of {', '.join(choices)}")


@dataclass(frozen=True)
class _DispatchTask:
    """For `mapInArrow`: numbers of splits in, staged rows out."""

    splits: tuple[Split, ...]
    file_size: int
    delay_levels: str
    exact: bool
    done: Location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_mq.build.dispatch import dispatch_split
        from spark_mq.format.dispatch import parse_delay_levels

        delay_millis = parse_delay_levels(self.delay_levels)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from dispatch_split(self.splits[number], self.file_size, delay_millis, self.exact)
                mark_done(self.done, str(number))


class _Rebuild:
    """One run of the job."""

    def __init__(
        self,
        spark: SparkSession,
        store: str,
        output: str | None,
        broker_conf: str | None,
        permissive: bool,
        split_size: int,
    ) -> None:
        self._spark = spark
        self._store = Location.resolve(store)
        self._workplace = Workplace(Location.resolve(output) if output else self._store, CONSUME_QUEUE)
        self._conf = BrokerConf.load(Location.resolve(broker_conf)) if broker_conf else BrokerConf({})
        self._permissive = permissive
        self._split_size = split_size
        self._report = RebuildReport(store=str(self._store), output=str(self._workplace.output))

    def run(self, replace: bool, say: Callable[[str], None] | None) -> RebuildReport:
        started = time.monotonic()
        log = CommitLog.open(self._store)
        if not log.segments:
            raise EmptyStoreError(f"{log.location} holds no record: there is nothing to rebuild from")
        self._refuse(log.gaps)
        refuse_rocksdb(self._workplace.target)
        self._workplace.prepare(replace)
        try:
            self._places = SharedPlaces.seen(log, self._workplace.folder)
            self._progress = Progress(self._workplace.folder / "progress", say)
            self._existing = list(queue_folders(self._store / CONSUME_QUEUE))
            self._file_size = (
                self._conf.consume_queue_file_size or existing_file_size(self._existing) or DEFAULT_FILE_SIZE
            )
            staged = self._dispatch(log)
            next_offsets = self._write(staged)
            self._carry_over(next_offsets)
            self._workplace.publish()
        except BaseException:
            self._workplace.discard()
            raise
        self._report.log_bytes = sum(segment.data_end for segment in log.segments)
        self._report.seconds = round(time.monotonic() - started, 3)
        self._report.stages = self._progress.seconds
        self._note()
        return self._report

    def _refuse(self, corrupt: Sequence[CorruptRange]) -> None:
        """Stop at damage, or take it into the report."""
        self._report.corrupt += corrupt
        if corrupt and not self._permissive:
            more = f" ({len(corrupt)} such places in all)" if len(corrupt) > 1 else ""
            raise CorruptLogError(f"{corrupt[0].describe()}{more}; --mode permissive skips and reports what is damaged")

    def _dispatch(self, log: CommitLog) -> DataFrame:
        """Stage the whole log; returns the staged runs of units."""
        staged = self._stage("dispatch", plan_splits(log, self._split_size), exact=False)
        rows = self._split_rows(staged)
        again = segments_to_read_again(rows, log.segments[-1].base)
        if again:
            whole = [Split(segment, 0, segment.data_end) for segment in log.segments if segment.base in again]
            exact = self._stage("dispatch again", whole, exact=True)
            staged = staged.where(~F.col("segment").isin(again)).unionByName(exact)
            self._report.bytes_read += sum(row.bytes_read for row in rows if row.segment in again)
            rows = self._split_rows(staged)
        self._report.messages = sum(row.messages for row in rows)
        self._report.bytes_read += sum(row.bytes_read for row in rows)
        self._inner_batches = sum(row.inner_batches for row in rows)
        self._refuse([corrupt for row in rows for corrupt in row.corrupt])
        return staged.where(F.col("kind") == UNITS)

    def _stage(self, name: str, splits: Sequence[Split], exact: bool) -> DataFrame:
        delay_levels = self._conf.message_delay_level or _default_delay_levels()
        path = spark_path(self._workplace.folder / name.replace(" ", "-"))
        schema = from_arrow_schema(STAGED_SCHEMA)
        with self._progress.stage(name, len(splits), "splits") as done:
            task = _DispatchTask(tuple(splits), self._file_size, delay_levels, exact, done)
            numbers = self._spark.range(0, len(splits), 1, len(splits))
            rows = numbers.mapInArrow(self._places.guard(task), schema)
            rows.write.option("compression", "none").option("parquet.enable.dictionary", "false").parquet(path)
        return self._spark.read.schema(schema).parquet(path)

    def _split_rows(self, staged: DataFrame) -> list[SplitRow]:
        names = list(SplitRow.__dataclass_fields__)
        rows = staged.where(F.col("kind") == SPLIT).select(names).collect()
        return sorted((SplitRow.of(row) for row in rows), key=lambda row: (row.segment, row.split_start))

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
        units_per_file = self._file_size // UNIT_SIZE
        files, placed = 0, []
        for queue in self._queue_rows:
            first_file = queue.queue_min // units_per_file
            placed.append((queue.topic, queue.queue_id, queue.queue_max, files - first_file))
            files += (queue.queue_max - 1) // units_per_file - first_file + 1
        schema = "topic STRING, queue_id INT, queue_max BIGINT, file_base BIGINT"
        unit_bytes = sum(queue.staged_units for queue in self._queue_rows) * UNIT_SIZE
        tasks = max(1, min(files, _WRITE_TASKS + unit_bytes // _BYTES_PER_WRITE_TASK))
        placed_runs = runs.join(F.broadcast(self._spark.createDataFrame(placed, schema)), ["topic", "queue_id"])
        task = (F.col("file_base") + F.col("file_number")) % tasks
        return placed_runs.withColumn("task", task.cast("int")), tasks

    def _is_safe(self, topic: str, commit_log_offset: int) -> bool:
        try:
            check_topic_name(topic)
        except UnsafeNameError as error:
            reason = f"{error}; first message at commit log offset {commit_log_offset}"
            if not self._permissive:
                raise UnsafeNameError(f"{reason}; --mode permissive leaves the topic out") from error
            self._report.notes.append(f"left out: {reason}")
            return False
        return True

    def _write(self, runs: DataFrame) -> dict[Queue, int]:
        """Write every queue file; returns the queues' next offsets."""
        from spark_mq.build.queue_writer import WRITTEN_SCHEMA, QueueWriter

        placed, tasks = self._place(runs)
        next_offsets = {(queue.topic, queue.queue_id): queue.queue_max for queue in self._queue_rows}
        if not next_offsets:
            return next_offsets
        growing = self._workplace.growing
        with self._progress.stage("write", tasks, "tasks") as done:
            writer = QueueWriter(str(growing), self._file_size, done)
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
                .mapInPandas(self._places.guard(writer), WRITTEN_SCHEMA)
                .collect()
            )
        report = self._report
        report.queues = len(next_offsets)
        report.files = len(written)
        report.units = sum(file.units for file in written)
        report.bytes_written = sum(file.bytes for file in written)
        self._refuse(list(self._holes(written)) + list(self._doubled(written)))
        return next_offsets

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

    def _carry_over(self, next_offsets: dict[Queue, int]) -> None:
        report = self._report
        growing = self._workplace.growing
        report.carried_over, report.lost_queues = carry_over(self._existing, next_offsets, growing, self._file_size)
        report.lost_queues += lost_offsets(consumed_offsets(self._store), next_offsets, report.carried_over)

    def _note(self) -> None:
        notes = self._report.notes
        notes += rocksdb_notes(self._store)
        if self._inner_batches:
            notes.append(f"{self._inner_batches} inner batches belong to batch consume queues, which are not rebuilt")
        if (self._store / "consumequeue_ext").is_directory or self._conf.is_enabled("enableConsumeQueueExt"):
            notes.append("consumequeue_ext is not rebuilt: units carry tags codes instead of addresses in it")
        if self._conf.is_enabled("enableMultiDispatch"):
            notes.append("queues of INNER_MULTI_DISPATCH (light message queues) are not rebuilt")


def _default_delay_levels() -> str:
    from spark_mq.format.dispatch import DEFAULT_DELAY_LEVELS

    return DEFAULT_DELAY_LEVELS
