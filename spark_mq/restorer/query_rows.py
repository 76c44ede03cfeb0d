"""Rows that only Spark has: of a DataFrame, of an archive, and of a store under a condition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import ArchiveTables
from spark_mq.archive.archived_log import choose_store
from spark_mq.errors import OptionError
from spark_mq.format.message_schema import RECORD_COLUMNS
from spark_mq.io.location import Location
from spark_mq.job.tasks import RESULTS, SharedStorageCheck, SparkTasks, unpickled
from spark_mq.query.sql import run_statement
from spark_mq.restorer.chunk import Chunk, StageTask
from spark_mq.restorer.restore_request import LeftOut, RestoreRequest
from spark_mq.restorer.source_facts import OFFSET_COLUMNS, Source, facts_of_archive

_FROM_ARCHIVE = (*RECORD_COLUMNS, "body", "born_timestamp", "store_timestamp", "_corrupt_record")

_BYTES_PER_PARTITION = 128 << 20
_ROWS_PER_BATCH = "8192"


def stage_rows(tasks: SparkTasks, rows: DataFrame, folder: Location, task: StageTask) -> list[Chunk]:
    """The chunks of rows, in the order of their partitions, which are written into a folder."""
    tasks.session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _ROWS_PER_BATCH)
    checked = tasks.checked(SharedStorageCheck.of_folder(folder))
    return unpickled(checked.of_messages(rows, task, RESULTS).toArrow())


def open_rows(rows: DataFrame, request: RestoreRequest) -> tuple[Source, DataFrame]:
    """What is known of a DataFrame, and its rows."""
    if "topic" not in rows.columns:
        raise OptionError(f"the DataFrame has no column topic; it has {', '.join(rows.columns) or 'no column'}")
    has_offsets = set(rows.columns) >= OFFSET_COLUMNS and not request.is_renumbered
    return Source.of_rows(has_offsets), _in_order(_chosen(rows, request), request)


def open_store(spark: SparkSession, store: Location, request: RestoreRequest) -> DataFrame:
    """The messages of a store for which the condition of the request is true."""
    # The condition can end with a comment.
    query = f"SELECT {', '.join(RECORD_COLUMNS)} FROM source.messages WHERE ({request.where}\n)"
    with _named_condition(request.where):
        rows = run_statement(spark, query, None, {"source": {"path": store.uri, "mode": "FAILFAST"}})
    return _kept(rows, request.left_out)


def open_archive(spark: SparkSession, table: str, request: RestoreRequest) -> tuple[Source, DataFrame]:
    """What an archive knows of the store with the names of the request, and the rows of its messages."""
    archive = choose_store(spark, ArchiveTables.of(table, checkpoint="").connected(spark), **request.names)
    source = facts_of_archive(archive)
    if source.index_names and source.index_layout is None and request.broker_conf.index_layout is None:
        raise OptionError(
            f"{archive.tables.name} does not have the slots and entries of the index files of "
            f"{archive.identity.broker}: give the broker's settings (--broker-conf) with maxHashSlotNum and maxIndexNum"
        )
    of_store = _chosen(archive.rows(archive.tables.messages), request)
    columns = [name for name in _FROM_ARCHIVE if name in of_store.columns]
    size = of_store.agg(F.sum("store_size").cast("long")).collect()[0][0]
    if size is None:
        raise request.nothing_to_restore(source.name)
    rows = of_store.select(*columns).repartitionByRange(size // _BYTES_PER_PARTITION + 1, "commit_log_offset")
    return source, rows.sortWithinPartitions("commit_log_offset")


def _chosen(rows: DataFrame, request: RestoreRequest) -> DataFrame:
    with _named_condition(request.where):
        return _kept(rows if request.where is None else rows.where(request.where), request.left_out)


def _kept(rows: DataFrame, left_out: LeftOut) -> DataFrame:
    """The rows that are not left out. A row without a topic is damage, which encoding refuses."""
    is_left_out = F.col("topic").isin(*left_out.topics) if left_out.topics else F.lit(False)
    if left_out.prefix is not None:
        is_left_out |= F.col("topic").startswith(left_out.prefix)
    return rows.where(F.col("topic").isNull() | ~is_left_out)


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
    if (request.keeps_queue_offsets or not request.is_renumbered) and set(rows.columns) >= OFFSET_COLUMNS:
        return rows
    times = [name for name in ("store_timestamp", "store_timestamp_millis") if name in rows.columns]
    order = [*times[:1], *(["commit_log_offset"] if "commit_log_offset" in rows.columns else [])]
    return rows.sort(*order) if order else rows
