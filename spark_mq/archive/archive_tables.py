"""Where an archive lies: the names of its tables, and of one store's checkpoints."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Self

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.errors import OptionError

_CATALOG_NAME = re.compile(r"\w+(\.\w+){0,2}")

DEFAULT_CLUSTER = "DefaultCluster"
DEFAULT_BROKER = "DEFAULT_BROKER"
"""As a broker has it that is told no other (`BrokerIdentity`@5.3.3)."""


@dataclass(frozen=True)
class StoreIdentity:
    """Which store a row is of: an archive holds many. `store` is the path it was read from, or a name."""

    cluster: str
    broker: str
    store: str

    def columns(self) -> list[Column]:
        """The three as columns of a DataFrame."""
        return [F.lit(value).alias(name) for name, value in dataclasses.asdict(self).items()]

    def condition(self) -> Column:
        """Whether a row is of this store."""
        return (F.col("cluster") == self.cluster) & (F.col("broker") == self.broker) & (F.col("store") == self.store)

    def sql_condition(self) -> str:
        """`condition` as text: Delta's DELETE takes no parameters."""
        return " AND ".join(f"{name} = {sql_text(value)}" for name, value in dataclasses.asdict(self).items())

    @property
    def folder(self) -> str:
        """A folder's name of its own."""
        digest = hashlib.sha256(json.dumps([self.cluster, self.broker, self.store]).encode()).hexdigest()[:16]
        return f"{re.sub(r'[^A-Za-z0-9_-]', '_', f'{self.cluster}-{self.broker}')[:80]}-{digest}"


def sql_text(value: str) -> str:
    """A literal of SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@dataclass(frozen=True)
class ArchiveTable:
    """One Delta table: a path, or a name that the catalog knows."""

    name: str
    is_path: bool

    @property
    def sql_name(self) -> str:
        """How SQL calls it."""
        if self.is_path:
            return f"delta.`{self.name.replace('`', '``')}`"
        return ".".join(f"`{part}`" for part in self.name.split("."))

    def read(self, spark: SparkSession) -> DataFrame:
        """All rows."""
        return spark.read.format("delta").load(self.name) if self.is_path else spark.read.table(self.name)


@dataclass(frozen=True)
class ArchiveTables:
    """The tables of an archive: messages, and beside them keys, segments and snapshots."""

    name: str
    is_path: bool
    checkpoints: str

    @classmethod
    def of(cls, table: str, checkpoint: str | None = None) -> Self:
        """The archive whose messages are in `table`: a path or URI, or a name in Spark's catalog.

        Raises `OptionError` for neither, and for a name in the catalog without `checkpoint`.
        """
        if "/" in table:
            name = table.rstrip("/")
            return cls(name, True, (checkpoint or f"{name}_checkpoints").rstrip("/"))
        if not _CATALOG_NAME.fullmatch(table):
            raise OptionError(f"{table!r} is no table: give a path (./{table}) or a name, database.table")
        if checkpoint is None:
            raise OptionError(
                f"table {table} is a name in the catalog: --checkpoint must say where streams keep theirs"
            )
        return cls(table, False, checkpoint.rstrip("/"))

    def _table(self, suffix: str) -> ArchiveTable:
        return ArchiveTable(f"{self.name}{suffix}", self.is_path)

    @property
    def messages(self) -> ArchiveTable:
        """A row for each message."""
        return self._table("")

    @property
    def keys(self) -> ArchiveTable:
        """A row for each key of a message."""
        return self._table("_keys")

    @property
    def segments(self) -> ArchiveTable:
        """A row for each file of a commit log."""
        return self._table("_segments")

    @property
    def snapshots(self) -> ArchiveTable:
        """A row for each small file of a store and each run."""
        return self._table("_snapshots")

    def checkpoint(self, identity: StoreIdentity, stream: str) -> str:
        """The checkpoint of one stream of one store."""
        return f"{self.checkpoints}/{identity.folder}/{stream}"
