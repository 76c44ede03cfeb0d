"""The archive's tables: their columns, and how their files are laid out.

Files are clustered (Delta's liquid clustering, by OPTIMIZE) by the columns that look-ups compare: topic and time, topic
and key. Statistics are limited to the clustering columns, the broker and the commit log offset. That lets queries skip
newly written files, which cover a contiguous part of one log, before OPTIMIZE has clustered them. More statistics would
slow writes. Bloom filters are for columns whose values spread over their whole range in every file, so that minima and
maxima skip nothing. Parquet has one filter for each row group, so row groups are small: a look-up of one value reads
one of them. Filters and row group sizes are table properties, which Delta passes to the Parquet writer of any session.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_mq.archive.archive_tables import IDENTITY, ArchiveTable, ArchiveTables
from spark_mq.archive.delta_log import retry_on_conflict, version_of
from spark_mq.format.message_schema import MESSAGE_SCHEMA, TIMESTAMP

_IDENTITY = [(name, pa.string()) for name in IDENTITY]

MESSAGES_SCHEMA = pa.schema(
    [
        *_IDENTITY,
        *MESSAGE_SCHEMA,
        ("properties_bytes", pa.binary()),
        ("stored_body", pa.binary()),
        ("born_timestamp_millis", pa.int64()),
        ("store_timestamp_millis", pa.int64()),
    ]
)
"""`stored_body` is NULL if it equals `body`; a time in milliseconds is NULL if the TIMESTAMP column has the time."""

KEYS_SCHEMA = pa.schema(
    [
        *_IDENTITY,
        ("topic", pa.string()),
        ("key", pa.string()),
        ("key_type", pa.string()),
        ("store_timestamp", TIMESTAMP),
        ("commit_log_offset", pa.int64()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
    ]
)
"""A row for each distinct key of a message; `key_type` is KEYS or UNIQ_KEY."""

SEGMENTS_SCHEMA = pa.schema(
    [
        *_IDENTITY,
        ("commit_log_offset", pa.int64()),
        ("file_size", pa.int64()),
        ("end_offset", pa.int64()),
        ("state", pa.string()),
        ("filler_offset", pa.int64()),
        ("filler_bytes", pa.binary()),
        ("modification_timestamp", TIMESTAMP),
    ]
)
"""The columns of table `segments`, and the offset and bytes of the blank at a file's end, without trailing zeros."""

SNAPSHOTS_SCHEMA = pa.schema(
    [
        *_IDENTITY,
        ("snapshot_timestamp", TIMESTAMP),
        ("log_start", pa.int64()),
        ("log_end", pa.int64()),
        ("file", pa.string()),
        ("file_size", pa.int64()),
        ("modification_timestamp", TIMESTAMP),
        ("content", pa.binary()),
    ]
)
"""The files of `config/`, `checkpoint`, and facts of queues and index files (`snapshot`), at the start of a run and
after each hour of it, with the log's range."""


@dataclass(frozen=True)
class Layout:
    """The layout of the files of one table.

    Attributes:
        clustering: The columns by which OPTIMIZE clusters rows.
        statistics: The columns of which a file has minima and maxima.
        blooms: The columns of which a row group has a Bloom filter.
        row_group_size: Bytes; None for the writer's default, 128 MiB.
    """

    schema: pa.Schema
    clustering: tuple[str, ...]
    statistics: tuple[str, ...]
    blooms: tuple[str, ...] = ()
    row_group_size: int | None = None

    def columns(self) -> StructType:
        """The columns as a Spark schema."""
        return from_arrow_schema(self.schema)

    def create_sql(self, table: ArchiveTable) -> str:
        """The statement that creates the table if it does not exist."""
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in self.columns())
        properties = {"delta.dataSkippingStatsColumns": ",".join(self.statistics)}
        if self.row_group_size is not None:
            properties["parquet.block.size"] = str(self.row_group_size)
        if self.blooms:
            # A filter is as large as the values of a file need, instead of the writer's default of 1 MiB.
            properties["parquet.bloom.filter.adaptive.enabled"] = "true"
        for column in self.blooms:
            properties[f"parquet.bloom.filter.enabled#{column}"] = "true"
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        clustering = ", ".join(self.clustering)
        return (
            f"CREATE TABLE IF NOT EXISTS {table.sql_name} ({columns}) USING DELTA "
            f"CLUSTER BY ({clustering}) TBLPROPERTIES ({listed})"
        )


MESSAGES = Layout(
    MESSAGES_SCHEMA,
    clustering=("topic", "store_timestamp"),
    statistics=("broker", "commit_log_offset", "topic", "store_timestamp"),
    blooms=("unique_key",),
    row_group_size=32 << 20,
)
KEYS = Layout(
    KEYS_SCHEMA,
    clustering=("topic", "key"),
    statistics=("broker", "topic", "key", "store_timestamp"),
    blooms=("key",),
    row_group_size=8 << 20,
)
SEGMENTS = Layout(SEGMENTS_SCHEMA, clustering=("broker",), statistics=("broker", "commit_log_offset"))
SNAPSHOTS = Layout(SNAPSHOTS_SCHEMA, clustering=("snapshot_timestamp",), statistics=("broker", "snapshot_timestamp"))


def layouts(tables: ArchiveTables) -> dict[ArchiveTable, Layout]:
    """The tables of an archive, and their layouts."""
    return {tables.messages: MESSAGES, tables.keys: KEYS, tables.segments: SEGMENTS, tables.snapshots: SNAPSHOTS}


def create_tables(spark: SparkSession, tables: ArchiveTables) -> None:
    """Create the tables that do not exist, and add the columns that older tables lack."""
    created = layouts(tables)
    with ThreadPoolExecutor(len(created)) as threads:
        tasks = [threads.submit(retry_on_conflict, partial(_create, spark, *item)) for item in created.items()]
        for task in tasks:
            task.result()


def _create(spark: SparkSession, table: ArchiveTable, layout: Layout) -> None:
    if version_of(table) < 0:
        spark.sql(layout.create_sql(table))
        if version_of(table) == 0:
            return
    missing = _missing_columns(spark, table, layout)
    if missing:
        spark.sql(f"ALTER TABLE {table.sql_name} ADD COLUMNS ({missing})")


def _missing_columns(spark: SparkSession, table: ArchiveTable, layout: Layout) -> str:
    present = set(table.read(spark).columns)
    return ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in layout.columns() if f.name not in present)
