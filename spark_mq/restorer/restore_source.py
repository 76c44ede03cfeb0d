"""What a store is made of: rows of messages, and the other facts of the store that they come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
from spark_mq.restorer.chunk import Chunk
from spark_mq.restorer.placement import WAITING_TOPICS
from spark_mq.restorer.restore_request import RestoreRequest, is_store
from spark_mq.restorer.source_facts import OFFSET_COLUMNS, Origin, SourceFacts, facts_of_archive, facts_of_store
from spark_mq.restorer.stage import CHUNK_SCHEMA, StageTask, chunk_of_json, chunk_row
from spark_mq.source.datasource import StoreReads
from spark_mq.store.index.folder import index_files, index_layout

_FROM_ARCHIVE = (*RECORD_COLUMNS, "body", "born_timestamp", "store_timestamp", "_corrupt_record")

_BYTES_PER_PARTITION = 128 << 20


@dataclass(frozen=True)
class LeftOut:
    """Topics whose messages are left out: some names, and all that begin with a prefix."""

    topics: tuple[str, ...] = ()
    prefix: str | None = None

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of a batch that are not left out."""
        is_left_out = pc.is_in(batch["topic"], pa.array(self.topics, pa.string()))
        if self.prefix is not None:
            is_left_out = pc.or_(is_left_out, pc.starts_with(batch["topic"], self.prefix))
        return batch.filter(pc.invert(is_left_out)) if pc.any(is_left_out).as_py() else batch


@dataclass(frozen=True)
class QueryRows:
    """The rows of a DataFrame, in the order of its partitions."""

    rows: DataFrame

    def stage(self, tasks: SparkTasks, folder: Location, task: StageTask) -> list[Chunk]:
        """The chunks of the rows, which are written into a folder, in the order of the rows."""
        checked = tasks.checked(SharedStorageCheck.of_folder(folder))
        return _chunks_in_order(checked.of_messages(self.rows, task, CHUNK_SCHEMA).toArrow())


@dataclass(frozen=True)
class StoreRows:
    """All messages of a store, in the order of its log, except those of some topics.

    Attributes:
        left_out: The topics whose messages are left out.
    """

    store: Location
    columns: tuple[str, ...]
    left_out: LeftOut = LeftOut()

    def stage(self, tasks: Tasks, folder: Location, task: StageTask) -> list[Chunk]:
        """The chunks of the rows, which are written into a folder, in the order of the rows."""
        schema = from_arrow_schema(pa.schema([ALL_MESSAGE_FIELDS[name] for name in self.columns]))
        reader = StoreReads({"path": self.store.uri, "mode": "FAILFAST"}).reader(schema)
        partitions = TaskItems.of(enumerate(reader.partitions()))
        checked = tasks.checked(SharedStorageCheck.of_folder(folder))
        reading = _ReadTask(reader, partitions, self.left_out, task)
        return _chunks_in_order(checked.rows(reading, len(partitions.pickled), CHUNK_SCHEMA))


@dataclass(frozen=True)
class _ReadTask:
    """As a task: numbers of partitions in, a row for each chunk (`CHUNK_SCHEMA`) out."""

    reader: Any
    partitions: TaskItems[tuple[int, Any]]
    left_out: LeftOut
    task: StageTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, partition in self.partitions.each(batches, None):
            messages = map(self.left_out.kept, self.reader.read(partition))
            yield from map(chunk_row, self.task.stage(messages, number))


def _chunks_in_order(rows: pa.Table) -> list[Chunk]:
    chunks = [chunk_of_json(text) for text in rows["chunk"].to_pylist()]
    return sorted(chunks, key=lambda chunk: (chunk.partition, chunk.number))


@dataclass(frozen=True)
class RestoreSource:
    """The source of a restore.

    Attributes:
        origin: Where they come from.
    """

    rows: QueryRows | StoreRows
    origin: Origin


def open_source(
    spark: SparkSession,
    source: str | DataFrame,
    request: RestoreRequest,
    *,
    cluster: str | None = None,
    broker: str | None = None,
    store_name: str | None = None,
) -> RestoreSource:
    """The messages and facts of a source.

    Args:
        source: A store directory, the messages table of an archive, or a DataFrame.
        cluster: The cluster of the store in an archive of several stores.
    """
    if isinstance(source, DataFrame):
        return _of_rows(source, request)
    if is_store(source):
        return _of_store(spark, Location.resolve(source), request)
    tables = ArchiveTables.of(source, checkpoint="").connected(spark)
    return _of_archive(spark, tables, choose_store(spark, tables, cluster, broker, store_name), request)


def _of_rows(rows: DataFrame, request: RestoreRequest) -> RestoreSource:
    if "topic" not in rows.columns:
        raise OptionError(f"the DataFrame has no column topic; it has {', '.join(rows.columns) or 'no column'}")
    has_offsets = set(rows.columns) >= OFFSET_COLUMNS and not request.is_renumbered
    return RestoreSource(QueryRows(_in_order(_chosen(rows, request), request)), Origin("a DataFrame", has_offsets))


def _of_store(spark: SparkSession, store: Location, request: RestoreRequest) -> RestoreSource:
    facts = facts_of_store(store)
    settings = settings_of(facts)
    if index_files(store):
        index_layout(store, request.broker_conf)  # an error if nothing shows it: no index is made from a guess
    if facts.log_start is None:
        raise EmptyStoreError(f"{store} has no message: there is nothing to restore")
    origin = Origin(str(store), True, facts, settings, store)
    if request.where is None:
        return RestoreSource(StoreRows(store, RECORD_COLUMNS, _left_out(request)), origin)
    # The condition can end with a comment.
    query = f"SELECT {', '.join(RECORD_COLUMNS)} FROM source.messages WHERE ({request.where}\n)"
    with _named_condition(request.where):
        rows = sql(spark, query, stores={"source": {"path": store.uri, "mode": "FAILFAST"}})
    return RestoreSource(QueryRows(_delivered(rows, request)), origin)


def _of_archive(
    spark: SparkSession, tables: ArchiveTables, identity: StoreIdentity, request: RestoreRequest
) -> RestoreSource:
    facts = facts_of_archive(spark, tables, identity)
    settings = settings_of(facts)
    if facts.index_names and facts.index_layout is None and request.broker_conf.index_layout is None:
        raise OptionError(
            f"{tables.name} does not have the slots and entries of the index files of {identity.broker}: give the "
            "broker's settings (--broker-conf) with maxHashSlotNum and maxIndexNum"
        )
    of_store = _chosen(tables.messages.read(spark).where(identity.condition()), request)
    names = [name for name in _FROM_ARCHIVE if name in of_store.columns]
    size = of_store.agg(F.sum("store_size").cast("long")).collect()[0][0]
    name = f"{tables.name} ({identity.broker} of {identity.cluster})"
    if size is None:
        raise request.nothing_to_restore(name)
    order = ["store_timestamp", "commit_log_offset"] if request.is_renumbered else ["commit_log_offset"]
    rows = of_store.select(*names).repartitionByRange(size // _BYTES_PER_PARTITION + 1, *order)
    return RestoreSource(QueryRows(rows.sortWithinPartitions(*order)), Origin(name, True, facts, settings))


def settings_of(facts: SourceFacts) -> dict[str, str]:
    """The sizes of a store's files, as a broker's settings."""
    sizes = {"mappedFileSizeCommitLog": facts.segment_size, "mappedFileSizeConsumeQueue": facts.queue_file_size}
    if facts.index_layout is not None:
        sizes |= {"maxHashSlotNum": facts.index_layout.hash_slot_num, "maxIndexNum": facts.index_layout.index_num}
    return {name: str(size) for name, size in sizes.items() if size}


def _chosen(rows: DataFrame, request: RestoreRequest) -> DataFrame:
    with _named_condition(request.where):
        return _delivered(rows if request.where is None else rows.where(request.where), request)


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


def _left_out(request: RestoreRequest) -> LeftOut:
    """Topics whose messages are left out.

    With new offsets, these are left-out records of an earlier restore, and what pop consumption wrote down: messages
    that name others by their queue offsets.
    """
    topics = (
        *(WAITING_TOPICS if request.only_delivered else ()),
        *((LEFT_OUT_TOPIC,) if request.is_renumbered else ()),
    )
    return LeftOut(topics, REVIVE_PREFIX if request.is_renumbered else None)


def _delivered(rows: DataFrame, request: RestoreRequest) -> DataFrame:
    """The rows without the topics that are left out."""
    left_out = _left_out(request)
    is_left_out = F.col("topic").isin(*left_out.topics) if left_out.topics else F.lit(False)
    if left_out.prefix is not None:
        is_left_out |= F.col("topic").startswith(left_out.prefix)
    # A row without a topic is damage, which encoding refuses.
    return rows.where(F.col("topic").isNull() | ~is_left_out)


def _in_order(rows: DataFrame, request: RestoreRequest) -> DataFrame:
    """The rows in the order of their new offsets: by store time, then by their old offset; else as they are."""
    if not request.is_renumbered and set(rows.columns) >= OFFSET_COLUMNS:
        return rows
    times = [name for name in ("store_timestamp", "store_timestamp_millis") if name in rows.columns]
    order = [*times[:1], *(["commit_log_offset"] if "commit_log_offset" in rows.columns else [])]
    return rows.sort(*order) if order else rows
