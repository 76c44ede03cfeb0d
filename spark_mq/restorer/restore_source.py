"""What a store is made of: rows of messages, and the other facts of the store that they come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.archive.archived_log import choose_store
from spark_mq.errors import EmptyStoreError, OptionError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, RECORD_COLUMNS
from spark_mq.format.system_topic import LEFT_OUT_TOPIC, REVIVE_PREFIX
from spark_mq.io.location import Location
from spark_mq.job.shared_storage import SharedStorageCheck
from spark_mq.job.task_items import TaskItems
from spark_mq.job.tasks import SparkTasks, Tasks
from spark_mq.query.sql import sql
from spark_mq.restorer.chunk import CHUNK_SCHEMA, Chunk, StageTask, chunk_row, chunks_of
from spark_mq.restorer.placement import WAITING_TOPICS
from spark_mq.restorer.restore_request import RestoreRequest, is_store
from spark_mq.restorer.source_facts import OFFSET_COLUMNS, Source, facts_of_archive, facts_of_store
from spark_mq.source.datasource import StoreReads
from spark_mq.store.index.folder import index_files, index_layout

_FROM_ARCHIVE = (*RECORD_COLUMNS, "body", "born_timestamp", "store_timestamp", "_corrupt_record")

_BYTES_PER_PARTITION = 128 << 20


@dataclass(frozen=True)
class LeftOut:
    """Topics whose messages are left out: some names, and all that begin with a prefix.

    With new offsets, these are left-out records of an earlier restore, and what pop consumption wrote down: messages
    that name others by their queue offsets.
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
    return _of_archive(spark, tables, choose_store(spark, tables, **names), request)


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
        rows = sql(spark, query, stores={"source": {"path": store.uri, "mode": "FAILFAST"}})
    return source, QueryRows(LeftOut.of(request).kept_rows(rows))


def _of_archive(
    spark: SparkSession, tables: ArchiveTables, identity: StoreIdentity, request: RestoreRequest
) -> tuple[Source, QueryRows]:
    source = facts_of_archive(spark, tables, identity)
    if source.index_names and source.index_layout is None and request.broker_conf.index_layout is None:
        raise OptionError(
            f"{tables.name} does not have the slots and entries of the index files of {identity.broker}: give the "
            "broker's settings (--broker-conf) with maxHashSlotNum and maxIndexNum"
        )
    of_store = _chosen(tables.messages.read(spark).where(identity.condition()), request)
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
