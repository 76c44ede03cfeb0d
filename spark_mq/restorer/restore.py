"""Restoring a store with Spark: `spark_mq.restore`, and the rows that it reads. `store_job` has the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.archive.archive_tables import ArchivedRows, ArchiveTables
from spark_mq.archive.archived_log import choose_store
from spark_mq.errors import EmptyStoreError, OptionError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, RECORD_COLUMNS
from spark_mq.format.system_topic import LEFT_OUT_TOPIC, REVIVE_PREFIX
from spark_mq.io.location import Location
from spark_mq.job.progress import StageProgress
from spark_mq.job.shared_storage import SharedStorageCheck
from spark_mq.job.task_items import TaskItems
from spark_mq.job.tasks import SparkTasks, Tasks, job_session
from spark_mq.query.sql import run_statement
from spark_mq.restorer.appended_messages import append_messages
from spark_mq.restorer.chunk import CHUNK_SCHEMA, Chunk, StageTask, chunk_row, chunks_of
from spark_mq.restorer.new_store import make_store
from spark_mq.restorer.placement import WAITING_TOPICS
from spark_mq.restorer.report import RestoreReport
from spark_mq.restorer.restore_request import RestoreRequest, is_store
from spark_mq.restorer.source_facts import OFFSET_COLUMNS, Source, facts_of_archive, facts_of_store
from spark_mq.restorer.store_job import StoreJob
from spark_mq.source.datasource import StoreReads
from spark_mq.store.index.folder import index_files, index_layout

_FROM_ARCHIVE = (*RECORD_COLUMNS, "body", "born_timestamp", "store_timestamp", "_corrupt_record")

_BYTES_PER_PARTITION = 128 << 20
_ROWS_PER_BATCH = "8192"


def restore(
    spark: SparkSession,
    source: str | DataFrame,
    store: str,
    *,
    where: str | None = None,
    renumber: bool = False,
    append: bool = False,
    only_delivered: bool = False,
    store_host: str | None = None,
    topic_map: Mapping[str, str] | None = None,
    broker_conf: str | None = None,
    broker_version: str | None = None,
    time_zone: str | None = None,
    offset_map: str | None = None,
    append_id: str | None = None,
    cluster: str | None = None,
    broker: str | None = None,
    store_name: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> RestoreReport:
    """Make a store out of messages, or append messages to a stopped store.

    The store has everything that a broker needs: commit log, consume queues, index files, checkpoint and `config/`. It
    appears whole or not at all.

    Messages with offsets keep them, and all bytes of their records; where messages are left out, queue offsets stay.
    With `renumber`, and if the rows have no offsets, messages get new ones, in the order of their store times.

    Args:
        spark: The session. The job uses a session of its own on the same Spark.
        source: A store directory; the table of messages of an archive (a path or a name in the catalog); or a DataFrame
            with columns of table `messages`, of which only `topic` is required.
        store: The store directory that is made, missing or empty: a path, or an address of S3. With `append`, a path
            that exists.
        where: The condition of the messages, as Spark SQL; by default all.
        renumber: Whether messages get new offsets, without gaps. Offsets of consumers are translated.
        append: Whether to append to the store; its broker must be stopped. Messages get new offsets.
        only_delivered: Whether messages that wait in a broker's own topics are left out: delayed messages, timers and
            half messages.
        store_host: HOST:PORT that messages get as the address of their broker. Offset message ids change with it.
        topic_map: New names of topics, by their old names; only if offsets are new.
        broker_conf: The `broker.conf` of the broker of the new store: sizes of its files, and delay levels. By default
            the sizes of the source's files, as far as they are known, or else a broker's defaults.
        broker_version: The version of that broker (`4.9`, `5`, ...); by default as the source shows, or else 5.
        time_zone: The zone of the names of index files (`Asia/Shanghai`); by default as the source shows, or else UTC.
        offset_map: The folder for the table of old and new offsets; by default `<store>_offsets`.
        append_id: The identity of an append: if the store has one of this id, nothing is appended, and the report is
            that of the first one. By default its source and the other arguments are the identity.
        cluster: The cluster of the store in an archive of several stores.
        broker: The broker of that store.
        store_name: The name of that store.
        progress: Gets a line of progress every few seconds.

    Returns:
        The report.

    Raises:
        OptionError: An argument is not valid.
        OutputExistsError: The store exists, and `append` is false.
        StoreNotFoundError: The source is not there.
        EmptyStoreError: No message is restored.
        InvalidMessageError: A row cannot be written as a message. The error names the row.
        CorruptLogError: The source is a store whose log is damaged.
        OutputInUseError: Another job makes the same store.
        StoreLockedError: A broker runs on the store that is appended to.
        UnsupportedStoreError: The store cannot be appended to in the state in which it is.
        NotSharedError: A task does not see the folder that the driver sees.
        NoRoomError: A disk is full.
        StorageError: The store cannot be written.

    Example:
        >>> report = spark_mq.restore(spark, "/lake/messages", "/data/restored", where="topic = 'orders'")
        >>> print(report.to_text())
    """
    request = RestoreRequest.of(
        store,
        where=where,
        renumber=renumber,
        append=append,
        only_delivered=only_delivered,
        store_host=store_host,
        topic_map=topic_map,
        broker_conf=broker_conf,
        broker_version=broker_version,
        time_zone=time_zone,
        offset_map=offset_map,
        append_id=append_id,
    )
    names = {"cluster": cluster, "broker": broker, "store_name": store_name}
    return run_restore(spark, source, request, names, None if progress is None else lambda stage: progress(str(stage)))


def run_restore(
    spark: SparkSession,
    source: str | DataFrame,
    request: RestoreRequest,
    names: Mapping[str, str | None],
    progress: Callable[[StageProgress], None] | None = None,
) -> RestoreReport:
    """Restore what a request says; `names` are `cluster`, `broker` and `store_name` of the store in an archive."""
    if isinstance(source, str):
        request.check_source(source, names)
    with job_session(spark) as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _ROWS_PER_BATCH)
        origin, rows = open_source(session, source, request, names)
        tasks = SparkTasks(session)
        job = StoreJob(tasks, origin, request.with_settings(origin.settings), progress)
        run = append_messages if request.append else make_store
        return run(job, lambda folder, task: rows.stage(tasks, folder, task))


@dataclass(frozen=True)
class LeftOut:
    """Topics whose messages are left out: some names, and all that begin with a prefix.

    With new offsets, these are left-out records of an earlier restore, and the notes of pop consumption, which name
    others by their queue offsets.
    """

    topics: tuple[str, ...] = ()
    prefix: str | None = None

    @classmethod
    def of(cls, request: RestoreRequest) -> Self:
        """Those of a request."""
        waiting = WAITING_TOPICS if request.only_delivered else ()
        return cls((*waiting, LEFT_OUT_TOPIC), REVIVE_PREFIX) if request.is_renumbered else cls(waiting)

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of a batch that are not left out."""
        is_left_out = pc.is_in(batch["topic"], pa.array(self.topics, pa.string()))
        if self.prefix is not None:
            is_left_out = pc.or_(is_left_out, pc.starts_with(batch["topic"], self.prefix))
        return batch.filter(pc.invert(is_left_out)) if pc.any(is_left_out).as_py() else batch

    def kept_rows(self, rows: DataFrame) -> DataFrame:
        """The rows that are not left out. A row without a topic is damage, which encoding refuses."""
        is_left_out = F.col("topic").isin(*self.topics) if self.topics else F.lit(False)
        if self.prefix is not None:
            is_left_out |= F.col("topic").startswith(self.prefix)
        return rows.where(F.col("topic").isNull() | ~is_left_out)


@dataclass(frozen=True)
class QueryRows:
    """The rows of a DataFrame, in the order of its partitions."""

    rows: DataFrame

    def stage(self, tasks: SparkTasks, folder: Location, task: StageTask) -> list[Chunk]:
        """The chunks of the rows, which are written into a folder."""
        checked = tasks.checked(SharedStorageCheck.of_folder(folder))
        return chunks_of(checked.of_messages(self.rows, task, CHUNK_SCHEMA).toArrow())


@dataclass(frozen=True)
class StoreRows:
    """All messages of a store, in the order of its log, except those of some topics."""

    store: Location
    left_out: LeftOut

    def stage(self, tasks: Tasks, folder: Location, task: StageTask) -> list[Chunk]:
        """The chunks of the rows, which are written into a folder."""
        schema = from_arrow_schema(pa.schema([ALL_MESSAGE_FIELDS[name] for name in RECORD_COLUMNS]))
        reader = StoreReads({"path": self.store.uri, "mode": "FAILFAST"}).reader(schema)
        partitions = TaskItems.of(enumerate(reader.partitions()))
        checked = tasks.checked(SharedStorageCheck.of_folder(folder))
        reading = _ReadTask(reader, partitions, self.left_out, task)
        return chunks_of(checked.rows(reading, len(partitions.pickled), CHUNK_SCHEMA))


@dataclass(frozen=True)
class _ReadTask:
    reader: Any
    partitions: TaskItems[tuple[int, Any]]
    left_out: LeftOut
    task: StageTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, partition in self.partitions.each(batches, None):
            messages = map(self.left_out.kept, self.reader.read(partition))
            yield from map(chunk_row, self.task.stage(messages, number))


def open_source(
    spark: SparkSession, source: str | DataFrame, request: RestoreRequest, names: Mapping[str, str | None]
) -> tuple[Source, QueryRows | StoreRows]:
    """A store directory, the messages of an archive, or a DataFrame; and the rows that are restored of it."""
    if isinstance(source, DataFrame):
        return _of_rows(source, request)
    if is_store(source):
        return _of_store(spark, Location.resolve(source), request)
    tables = ArchiveTables.of(source, checkpoint="").connected(spark)
    return _of_archive(choose_store(spark, tables, **names), request)


def _of_rows(rows: DataFrame, request: RestoreRequest) -> tuple[Source, QueryRows]:
    if "topic" not in rows.columns:
        raise OptionError(f"the DataFrame has no column topic; it has {', '.join(rows.columns) or 'no column'}")
    has_offsets = set(rows.columns) >= OFFSET_COLUMNS and not request.is_renumbered
    return Source.of_rows(has_offsets), QueryRows(_in_order(_chosen(rows, request), request))


def _of_store(spark: SparkSession, store: Location, request: RestoreRequest) -> tuple[Source, QueryRows | StoreRows]:
    source = facts_of_store(store)
    if index_files(store):
        index_layout(store, request.broker_conf)  # an error if nothing shows it: no index is made from a guess
    if source.log_start is None:
        raise EmptyStoreError(f"{store} has no message: there is nothing to restore")
    if request.where is None:
        return source, StoreRows(store, LeftOut.of(request))
    # The condition can end with a comment.
    query = f"SELECT {', '.join(RECORD_COLUMNS)} FROM source.messages WHERE ({request.where}\n)"
    with _named_condition(request.where):
        rows = run_statement(spark, query, None, {"source": {"path": store.uri, "mode": "FAILFAST"}})
    return source, QueryRows(LeftOut.of(request).kept_rows(rows))


def _of_archive(archive: ArchivedRows, request: RestoreRequest) -> tuple[Source, QueryRows]:
    source = facts_of_archive(archive)
    if source.index_names and source.index_layout is None and request.broker_conf.index_layout is None:
        raise OptionError(
            f"{archive.tables.name} does not have the slots and entries of the index files of "
            f"{archive.identity.broker}: give the broker's settings (--broker-conf) with maxHashSlotNum and maxIndexNum"
        )
    of_store = _chosen(archive.rows(archive.tables.messages), request)
    names = [name for name in _FROM_ARCHIVE if name in of_store.columns]
    size = of_store.agg(F.sum("store_size").cast("long")).collect()[0][0]
    if size is None:
        raise request.nothing_to_restore(source.name)
    order = ["store_timestamp", "commit_log_offset"] if request.is_renumbered else ["commit_log_offset"]
    rows = of_store.select(*names).repartitionByRange(size // _BYTES_PER_PARTITION + 1, *order)
    return source, QueryRows(rows.sortWithinPartitions(*order))


def _chosen(rows: DataFrame, request: RestoreRequest) -> DataFrame:
    with _named_condition(request.where):
        return LeftOut.of(request).kept_rows(rows if request.where is None else rows.where(request.where))


@contextmanager
def _named_condition(where: str | None) -> Iterator[None]:
    """A context in which an error of Spark's analysis is one of the condition, if there is one."""
    try:
        yield
    except AnalysisException as error:
        if where is None:
            raise
        reason = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
        raise OptionError(f"--where {where!r}: {reason}") from error


def _in_order(rows: DataFrame, request: RestoreRequest) -> DataFrame:
    """The rows in the order of their new offsets: by store time, then by their old offset; else as they are."""
    if not request.is_renumbered and set(rows.columns) >= OFFSET_COLUMNS:
        return rows
    times = [name for name in ("store_timestamp", "store_timestamp_millis") if name in rows.columns]
    order = [*times[:1], *(["commit_log_offset"] if "commit_log_offset" in rows.columns else [])]
    return rows.sort(*order) if order else rows
