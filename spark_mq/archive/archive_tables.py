"""The names of an archive's tables, of a store in them, and of its checkpoints; and one store with its archive.

Files are clustered (Delta's liquid clustering, by OPTIMIZE) by the columns that look-ups compare: topic and time, topic
and key. Statistics are limited to the clustering columns, the broker and the commit log offset. That lets queries skip
newly written files, which cover a contiguous part of one log, before OPTIMIZE has clustered them. More statistics would
slow writes. Bloom filters are for columns whose values spread over their whole range in every file, so that minima and
maxima skip nothing. Parquet has one filter for each row group, so row groups are small: a look-up of one value reads
one of them. Filters and row group sizes are table properties, which Delta passes to the Parquet writer of any session.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_mq.archive.delta import connected
from spark_mq.errors import OptionError
from spark_mq.format.message_schema import MESSAGE_SCHEMA, TIMESTAMP
from spark_mq.io.location import Location
from spark_mq.io.s3 import hadoop_address, is_s3, shown, with_settings
from spark_mq.store.config.named_stores import STORE_COLUMNS

IDENTITY = STORE_COLUMNS
"""The first columns of each table: the names of a store in the archive."""
POSITION = (*IDENTITY, "commit_log_offset")
"""The columns that say which message of the archive a row is of."""
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
_URI = re.compile(r"[A-Za-z][\w+.-]*:/")
_CATALOG_NAME = re.compile(r"\w+(\.\w+){0,2}")


@dataclass(frozen=True)
class Layout:
    """The layout of the files of one table.

    A file has minima and maxima of the columns `statistics`, and a row group has Bloom filters of the columns `blooms`.
    A row group has `row_group_size` bytes, or 128 MiB, the writer's default.
    """

    schema: pa.Schema
    clustering: tuple[str, ...]
    statistics: tuple[str, ...]
    blooms: tuple[str, ...] = ()
    row_group_size: int | None = None

    def columns(self) -> StructType:
        """The columns as a Spark schema."""
        return from_arrow_schema(self.schema)


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


@dataclass(frozen=True, order=True)
class StoreIdentity:
    """The store that a row comes from, for an archive of many stores.

    `cluster` and `broker` are `brokerClusterName` and `brokerName`; `store` is the path of the store, or a name for it.
    """

    cluster: str
    broker: str
    store: str

    @classmethod
    def of(cls, row: Row) -> Self:
        """The store that a row of an archive comes from."""
        return cls(row.cluster, row.broker, row.store)

    def columns(self) -> list[Column]:
        """The three attributes as columns of a DataFrame."""
        return [F.lit(value).alias(name) for name, value in dataclasses.asdict(self).items()]

    def condition(self) -> Column:
        """The condition that a row comes from this store."""
        return (F.col("cluster") == self.cluster) & (F.col("broker") == self.broker) & (F.col("store") == self.store)

    def sql_condition(self) -> str:
        """The same as `condition`, as SQL text: Delta's DELETE takes no parameters."""
        return " AND ".join(f"{name} = {sql_text(value)}" for name, value in dataclasses.asdict(self).items())

    @property
    def folder(self) -> str:
        """A name for a folder that no other store has."""
        digest = hashlib.sha256(json.dumps([self.cluster, self.broker, self.store]).encode()).hexdigest()[:16]
        return f"{re.sub(r'[^A-Za-z0-9_-]', '_', f'{self.cluster}-{self.broker}')[:80]}-{digest}"


def sql_text(value: str) -> str:
    """The SQL literal of a text."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def is_local_path(path: str) -> bool:
    """Whether a path or URI is on the local filesystem."""
    return path.startswith("file:") or "://" not in path


@dataclass(frozen=True)
class ArchiveTable:
    """One Delta table: `name` is a path, or a name in Spark's catalog."""

    name: str
    is_path: bool
    layout: Layout = field(compare=False)

    @property
    def is_local(self) -> bool:
        """Whether the table is a local folder, which this process can read without Spark."""
        return self.is_path and is_local_path(self.name)

    @property
    def sql_name(self) -> str:
        """The table in a SQL statement."""
        if self.is_path:
            return f"delta.`{self.name.replace('`', '``')}`"
        return ".".join(f"`{part}`" for part in self.name.split("."))

    def read(self, spark: SparkSession) -> DataFrame:
        """All rows of the table."""
        return spark.read.format("delta").load(self.name) if self.is_path else spark.read.table(self.name)

    def create_sql(self) -> str:
        """The statement that creates the table if it does not exist."""
        layout = self.layout
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in layout.columns())
        properties = {"delta.dataSkippingStatsColumns": ",".join(layout.statistics)}
        if layout.row_group_size is not None:
            properties["parquet.block.size"] = str(layout.row_group_size)
        if layout.blooms:
            # A filter is as large as the values of a file need, instead of the writer's default of 1 MiB.
            properties["parquet.bloom.filter.adaptive.enabled"] = "true"
        for column in layout.blooms:
            properties[f"parquet.bloom.filter.enabled#{column}"] = "true"
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {self.sql_name} ({columns}) USING DELTA "
            f"CLUSTER BY ({', '.join(layout.clustering)}) TBLPROPERTIES ({listed})"
        )


@dataclass(frozen=True)
class ArchiveTables:
    """The tables of an archive: messages, keys, segments and snapshots."""

    name: str
    is_path: bool
    checkpoints: str
    addresses: tuple[str, str] = field(default=("", ""), repr=False, compare=False)

    @classmethod
    def of(cls, table: str, checkpoint: str | None = None) -> Self:
        """The archive whose messages are in `table`.

        Args:
            table: A path (absolute or relative) or URI, which contains a `/`, or a name in Spark's catalog. Spark knows
                a table on S3 as `s3a://BUCKET/PATH`, whatever its scheme and its settings.
        """
        if "/" in table:
            # Delta Lake's SQL takes a path for a name in the catalog unless it is absolute.
            name = hadoop_address(table).rstrip("/") if _URI.match(table) else os.path.abspath(table)
            if is_s3(name) and name.count("/") < 3:
                raise OptionError(f"{shown(table)!r} is a bucket: give a TABLE in it, such as {name}/messages")
            path, mark, settings = table.partition("?")
            beside = f"{path.rstrip('/')}_checkpoints{mark}{settings}" if is_s3(table) else f"{name}_checkpoints"
            folder = checkpoint or beside
            return cls(name, True, hadoop_address(folder).rstrip("/"), (table, folder))
        if not _CATALOG_NAME.fullmatch(table):
            raise OptionError(f"{table!r} is not a table: give a path (./{table}) or a name, database.table")
        if checkpoint is None:
            raise OptionError(
                f"table {table} is a name in the catalog: --checkpoint must name the folder of the streams' "
                f"checkpoints (the path of a table needs a slash: ./{table})"
            )
        return cls(table, False, hadoop_address(checkpoint).rstrip("/"), (table, checkpoint))

    def connected(self, spark: SparkSession) -> Self:
        """The same archive, whose tables and checkpoints Spark can open, too, if they are on S3."""
        table, checkpoint = self.addresses
        return replace(self, addresses=(connected(spark, table), connected(spark, checkpoint)))

    def _table(self, suffix: str, layout: Layout) -> ArchiveTable:
        return ArchiveTable(f"{self.name}{suffix}", self.is_path, layout)

    @property
    def all(self) -> tuple[ArchiveTable, ...]:
        """The four tables."""
        return self.messages, self.keys, self.segments, self.snapshots

    @property
    def is_local(self) -> bool:
        """Whether tables and checkpoints are local folders, which this process can read without Spark."""
        return self.messages.is_local and is_local_path(self.checkpoints)

    @property
    def messages(self) -> ArchiveTable:
        """The table with a row for each message."""
        return self._table("", MESSAGES)

    @property
    def keys(self) -> ArchiveTable:
        """The table with a row for each key of a message."""
        return self._table("_keys", KEYS)

    @property
    def segments(self) -> ArchiveTable:
        """The table with a row for each segment of a commit log."""
        return self._table("_segments", SEGMENTS)

    @property
    def snapshots(self) -> ArchiveTable:
        """The table with a row for each file of `config/`, `checkpoint`, and two of facts, of each snapshot."""
        return self._table("_snapshots", SNAPSHOTS)

    def checkpoint(self, identity: StoreIdentity, stream: str) -> str:
        """The folder of the checkpoint of one stream of one store."""
        return f"{self.checkpoints}/{identity.folder}/{stream}"

    def address_of(self, table: ArchiveTable) -> str:
        """The path or URI of a table for this process, with all settings of S3, which can be secrets."""
        if not is_s3(table.name):
            return table.name
        _, mark, settings = with_settings(self.addresses[0]).partition("?")
        return f"{table.name}{mark}{settings}"

    def location(self, checkpoint: str) -> Location:
        """The file or folder of a checkpoint, for this process, which opens S3 without Spark."""
        if is_s3(checkpoint):
            _, mark, settings = with_settings(self.addresses[1]).partition("?")
            checkpoint = f"{checkpoint}{mark}{settings}"
        return Location.resolve(checkpoint)


@dataclass(frozen=True)
class ArchivedRows:
    """The rows of one store in the tables of an archive."""

    spark: SparkSession
    tables: ArchiveTables
    identity: StoreIdentity

    def rows(self, table: ArchiveTable) -> DataFrame:
        """The rows of this store in a table of the archive."""
        return table.read(self.spark).where(self.identity.condition())

    def named(self, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
        """Rows of this store with the schema, which starts with the columns of the identity."""
        identity = dataclasses.asdict(self.identity)
        return pa.Table.from_pylist([{**identity, **row} for row in rows], schema)


@dataclass(frozen=True)
class BrokerArchive(ArchivedRows):
    """The same, and the running broker that is archived; `source` is the address of its cluster."""

    source: str


@dataclass(frozen=True)
class StoreArchive(ArchivedRows):
    """The same, and the store that is archived."""

    store: Location

    @property
    def source(self) -> str:
        """What the messages stream reads."""
        return self.store.uri
