"""One store, and the archive that its messages go to."""

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
    """Where a store lies, where its archive does, and what the archive calls it."""

    spark: SparkSession
    store: Location
    place: ArchiveTables
    identity: StoreIdentity

    def rows(self, table: ArchiveTable) -> DataFrame:
        """The rows of this store in a table of the archive."""
        return table.read(self.spark).where(self.identity.condition())

    def frame(self, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> DataFrame:
        """Rows of this store for a table with this schema, which begins with the columns of the identity."""
        named = dataclasses.asdict(self.identity)
        return self.spark.createDataFrame(pa.Table.from_pylist([{**named, **row} for row in rows], schema))
