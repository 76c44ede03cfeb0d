"""How many rows streams appended to a Delta table, by the table's history."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.place import ArchiveTable


class AppendedRows:
    """Counts from the version on that the table has now."""

    def __init__(self, spark: SparkSession, table: ArchiveTable) -> None:
        self._spark = spark
        self._table = table
        self._counted = self._version()

    def count_new(self, query_ids: Collection[str]) -> int:
        """The rows that these streaming queries appended since the last call."""
        newest = self._version()
        commits = newest - self._counted
        if commits <= 0:
            return 0
        # With a limit only so many files of Delta's log are read: who follows a store makes thousands a day.
        history = self._spark.sql(f"DESCRIBE HISTORY {self._table.sql_name} LIMIT {commits}")
        own = history.where(F.col("version") > self._counted)
        own = own.where(F.col("operationParameters.queryId").isin(*query_ids))
        (row,) = own.select(F.sum(F.col("operationMetrics.numOutputRows").cast("bigint")).alias("rows")).collect()
        self._counted = newest
        return int(row.rows or 0)

    def _version(self) -> int:
        (row,) = self._spark.sql(f"DESCRIBE HISTORY {self._table.sql_name} LIMIT 1").select("version").collect()
        return int(row.version)
