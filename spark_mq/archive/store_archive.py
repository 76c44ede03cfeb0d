"""One store and its archive."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_mq.archive.archive_tables import ArchiveTable, ArchiveTables, StoreIdentity
from spark_mq.io.location import Location


@dataclass(frozen=True)
class StoreArchive:
    """A store, the tables of its archive, and the store's name there.

    Attributes:
        spark: A session with Delta tables and the `rocketmq` source.
        store: The store directory.
        tables: The tables of the archive.
        identity: The name of the store in the rows of the archive.

    """

    spark: SparkSession
    store: Location
    tables: ArchiveTables
    identity: StoreIdentity

    def rows(self, table: ArchiveTable) -> DataFrame:
        """The rows of this store in a table of the archive."""
        return table.read(self.spark).where(self.identity.condition())

    def dataframe(self, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> DataFrame:
        """Rows of this store as a DataFrame with the schema, which starts with the columns of the identity."""
        identity = dataclasses.asdict(self.identity)
        return self.spark.createDataFrame(pa.Table.from_pylist([{**identity, **row} for row in rows], schema))
