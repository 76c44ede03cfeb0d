"""Appending what is new in a store to an archive, each message exactly once.

Two streams, each with a checkpoint for each store. One takes messages from the store into the messages table, the other
takes keys from there into the keys table, which needs only a few columns of it. Delta notes the stream and the number
of each batch with the files it appends (`txn`), so a batch that is tried again is not appended again. Where a
checkpoint was lost, the messages table itself says how far it has come, and the keys are made anew.

Segments and snapshots are written once a run; a run that failed before is made good by the next.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from spark_mq._compat import session_has_read_limits
from spark_mq.archive.fillers import segment_rows
from spark_mq.archive.place import (
    DEFAULT_BROKER,
    DEFAULT_CLUSTER,
    ArchivePlace,
    ArchiveTable,
    StoreIdentity,
)
from spark_mq.archive.report import ArchiveReport
from spark_mq.archive.snapshot import Row, snapshot
from spark_mq.archive.tables import KEYS_SCHEMA, SEGMENTS_SCHEMA, SNAPSHOTS_SCHEMA, create_tables
from spark_mq.build.session import error_of_a_task
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MESSAGE_SCHEMA
from spark_mq.source.datasource import register
from spark_mq.store.filesystem import Location
from spark_mq.store.message_store import MessageStore

DEFAULT_MAX_BYTES = 4 << 30
"""Bytes of the log that one batch takes."""

_TIMES = {"born_timestamp_millis": "born_timestamp", "store_timestamp_millis": "store_timestamp"}
_POLL_SECONDS = 0.5
_READ_NAMES = (*MESSAGE_SCHEMA.names, "properties_bytes", "encoded_body", *_TIMES)


class Archiver:
    """Archives one store. Everything it does can be done again."""

    def __init__(
        self, spark: SparkSession, store: str, place: ArchivePlace, identity: StoreIdentity, options: dict[str, str]
    ) -> None:
        """`options` are further options of the stream over the store."""
        self._spark = spark
        self._store = Location.resolve(store)
        self._place = place
        self._identity = identity
        self._options = options
        self._query_ids: set[str] = set()

    def run(self, follow_seconds: float | None = None, stop: Callable[[], bool] = lambda: False) -> ArchiveReport:
        """Append what is new; with `follow_seconds` look again after so many seconds, until `stop` says so.

        Raises `DataLossError` where segments expired before they were archived and the options do not say to go on.
        """
        started = time.monotonic()
        place, identity = self._place, self._identity
        report = ArchiveReport(str(self._store), place.name, identity.cluster, identity.broker)
        files = snapshot(self._store)
        register(self._spark)
        create_tables(self._spark, place)
        before = {table: self._version(table) for table in (place.messages, place.keys)}
        if follow_seconds is None:
            with report.stage("messages"):
                report.add_progress(self._finish(self._start_messages(None)))
            with report.stage("keys"):
                self._finish(self._start_keys(None))
        else:
            report.add_progress(self._follow(follow_seconds, stop))
        report.rows, report.keys = (self._rows_since(table, version) for table, version in before.items())
        if report.archived_to < 0:
            report.archived_to = self._archived_end()
        report.segments = self._write_segments(report.archived_to)
        report.snapshot_files = len(files)
        self._frame(files, SNAPSHOTS_SCHEMA).write.format("delta").mode("append").saveAsTable(place.snapshots.sql_name)
        report.seconds = time.monotonic() - started
        return report

    def _start_messages(self, seconds: float | None) -> StreamingQuery:
        options = dict(self._options)
        if not session_has_read_limits(self._spark):
            options.pop("maxBytesPerTrigger", None)
        checkpoint = self._place.checkpoint(self._identity, "messages")
        if not _exists(checkpoint) and (end := self._archived_end()) >= 0:
            options["startingOffsets"] = str(end)
        stream = (
            self._spark.readStream.format("rocketmq").schema(source_schema()).options(**options).load(self._store.uri)
        )
        return self._start(archive_rows(stream, self._identity), self._place.messages, checkpoint, seconds)

    def _start_keys(self, seconds: float | None) -> StreamingQuery:
        place = self._place
        checkpoint = place.checkpoint(self._identity, "keys")
        if not _exists(checkpoint):
            # The stream begins anew, with all messages.
            self._spark.sql(f"DELETE FROM {place.keys.sql_name} WHERE {self._identity.sql_condition()}")
        reader = self._spark.readStream.format("delta").option("skipChangeCommits", "true")
        stream = reader.load(place.name) if place.is_path else reader.table(place.name)
        return self._start(_keys(stream.where(self._identity.condition())), place.keys, checkpoint, seconds)

    def _start(self, rows: DataFrame, table: ArchiveTable, checkpoint: str, seconds: float | None) -> StreamingQuery:
        writer = rows.writeStream.format("delta").outputMode("append").option("checkpointLocation", checkpoint)
        if seconds is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{seconds} seconds")
        return writer.start(table.name) if table.is_path else writer.toTable(table.name)

    def _finish(self, query: StreamingQuery) -> dict[str, Any]:
        """Wait for a query's end; gives its last offset."""
        with named_errors():
            query.awaitTermination()
        self._query_ids.add(str(query.id))
        return _end_offset(query)

    def _follow(self, seconds: float, stop: Callable[[], bool]) -> dict[str, Any]:
        queries = [self._start_messages(seconds), self._start_keys(seconds)]
        try:
            while not stop():
                for query in queries:
                    if not query.isActive:
                        with named_errors():
                            query.awaitTermination()
                        return _end_offset(queries[0])
                time.sleep(_POLL_SECONDS)
        finally:
            for query in queries:
                query.stop()
                self._query_ids.add(str(query.id))
        return _end_offset(queries[0])

    def _version(self, table: ArchiveTable) -> int:
        (row,) = self._spark.sql(f"DESCRIBE HISTORY {table.sql_name} LIMIT 1").select("version").collect()
        return int(row.version)

    def _rows_since(self, table: ArchiveTable, version: int) -> int:
        """Rows that the streams of this run appended, behind `version` of the table."""
        history = self._spark.sql(f"DESCRIBE HISTORY {table.sql_name}")
        own = history.where((F.col("version") > version) & F.col("operationParameters.queryId").isin(*self._query_ids))
        (row,) = own.select(F.sum(F.col("operationMetrics.numOutputRows").cast("bigint")).alias("rows")).collect()
        return int(row.rows or 0)

    def _archived_end(self) -> int:
        """The commit log offset behind the last archived byte of the store; -1 where there is none."""
        with MessageStore(self._store.uri) as store:
            log_start = store.get_min_phy_offset()
        # Of a long archive few files are behind the start of the log, and mostly the end is in one of them.
        end = self._end_behind(log_start)
        return end if end >= 0 else self._end_behind(0)

    def _end_behind(self, start: int) -> int:
        """As `_archived_end`, of the messages that begin at commit log offset `start` or behind it."""
        rows = self._place.messages.read(self._spark).where(self._identity.condition())
        end = F.max(F.col("commit_log_offset") + F.col("store_size")).alias("end")
        (row,) = rows.where(F.col("commit_log_offset") >= start).select(end).collect()
        return -1 if row.end is None else int(row.end)

    def _write_segments(self, archived_to: int) -> int:
        """Write what is new of the segments; those that are known to be whole, with their filler, stay as they are."""
        table = self._place.segments
        known = table.read(self._spark).where(self._identity.condition())
        whole = known.where("state = 'FULL' AND filler_offset IS NOT NULL").select("commit_log_offset").collect()
        known_bases = {row.commit_log_offset for row in whole}
        with MessageStore(self._store.uri) as store:
            bases = [segment.base for segment in store.records.segments if segment.base not in known_bases]
            ends = self._data_ends([base for base in bases if base < archived_to])
            rows = [row for row in segment_rows(store, ends) if row["commit_log_offset"] not in known_bases]
        if not rows:
            return 0
        view = f"spark_mq_segments_{uuid.uuid4().hex}"
        self._frame(rows, SEGMENTS_SCHEMA).createOrReplaceTempView(view)
        keys = ("cluster", "broker", "store", "commit_log_offset")
        condition = " AND ".join(f"new.{name} = old.{name}" for name in keys)
        try:
            self._spark.sql(
                f"MERGE INTO {table.sql_name} AS old USING {view} AS new ON {condition} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        finally:
            self._spark.catalog.dropTempView(view)
        return len(rows)

    def _data_ends(self, bases: list[int]) -> dict[int, int]:
        """By a segment's first offset, where its last archived record ends; of the segments at `bases`."""
        if not bases:
            return {}
        rows = self._place.messages.read(self._spark).where(self._identity.condition())
        rows = rows.where(F.col("commit_log_offset") >= min(bases))
        listed = F.array(*map(F.lit, sorted(bases)))
        base = F.array_max(F.filter(listed, lambda each: each <= F.col("commit_log_offset"))).alias("base")
        end = F.max(F.col("commit_log_offset") + F.col("store_size")).alias("end")
        return {row.base: row.end for row in rows.groupBy(base).agg(end).collect()}

    def _frame(self, rows: list[Row], schema: pa.Schema) -> DataFrame:
        identity = dataclasses.asdict(self._identity)
        return self._spark.createDataFrame(pa.Table.from_pylist([{**identity, **row} for row in rows], schema))


def source_schema() -> StructType:
    """The columns that the archive reads from a store."""
    return from_arrow_schema(pa.schema([ALL_MESSAGE_FIELDS[name] for name in _READ_NAMES]))


def archive_rows(messages: DataFrame, identity: StoreIdentity) -> DataFrame:
    """Messages of `source_schema` with the columns of the archive."""
    millis = [F.when(F.col(moment).isNull(), F.col(name)).alias(name) for name, moment in _TIMES.items()]
    stored_body = F.col("encoded_body").alias("stored_body")
    return messages.select(*identity.columns(), *MESSAGE_SCHEMA.names, "properties_bytes", stored_body, *millis)


def archive(
    spark: SparkSession,
    store: str,
    table: str,
    *,
    cluster: str = DEFAULT_CLUSTER,
    broker: str = DEFAULT_BROKER,
    store_name: str | None = None,
    checkpoint: str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    fail_on_data_loss: bool = True,
    follow_seconds: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> ArchiveReport:
    """Append what is new in the store at `store` to the Delta table `table` (a path, or a name in the catalog).

    `cluster`, `broker` and `store_name` (the path, by default) say in every row where it comes from, and must stay the
    same from run to run. `checkpoint` is the folder of the streams' checkpoints, beside a table with a path by default.
    `max_bytes` of the log go into one batch. With `follow_seconds` it goes on, looking every so many seconds, until
    `stop` answers true.

    Raises `DataLossError` where segments expired before they were archived, unless `fail_on_data_loss` is false.
    """
    options = {
        "maxBytesPerTrigger": str(max_bytes),
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    location = Location.resolve(store)
    identity = StoreIdentity(cluster, broker, store_name or location.uri)
    return Archiver(spark, store, ArchivePlace.of(table, checkpoint), identity, options).run(follow_seconds, stop)


@contextmanager
def named_errors() -> Iterator[None]:
    """Raise errors of this package that Spark wrapped under their own names."""
    try:
        yield
    except PySparkException as error:
        named = error_of_a_task(str(error))
        if named is None:
            raise
        raise named from error


def _keys(messages: DataFrame) -> DataFrame:
    """A row for each distinct key of each message."""
    # A lambda, as F.transform takes it, would take three times as long: Spark compiles none.
    pieces = F.coalesce(F.array_distinct("keys"), F.array().cast("array<string>"))
    every = F.concat(pieces, F.array("unique_key"))
    exploded = messages.withColumn("piece_count", F.size(pieces)).select("*", F.posexplode(every).alias("place", "key"))
    key_type = F.when(F.col("place") < F.col("piece_count"), "KEYS").otherwise("UNIQ_KEY")
    return exploded.where("key IS NOT NULL").withColumn("key_type", key_type).select(*KEYS_SCHEMA.names)


def _end_offset(query: StreamingQuery) -> dict[str, Any]:
    progress = query.lastProgress
    offset = progress["sources"][0]["endOffset"] if progress and progress["sources"] else None
    found = json.loads(offset) if isinstance(offset, str) else offset
    return found if isinstance(found, dict) else {}


def _exists(checkpoint: str) -> bool:
    """Whether a stream has begun with this checkpoint."""
    return (Location.resolve(re.sub("^s3a:", "s3:", checkpoint)) / "metadata").is_file
