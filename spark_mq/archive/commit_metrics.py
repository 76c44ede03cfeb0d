"""The number of rows that streams appended to a Delta table, from the table's history."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Row, SparkSession

from spark_mq.archive.archive_tables import ArchiveTable
from spark_mq.archive.delta_log import rows_added_by, version_of

_FIRST_LIMIT = 10


class AppendedRows:
    """A counter that starts at the version that the table has when the counter is created."""

    def __init__(self, spark: SparkSession, table: ArchiveTable) -> None:
        self._spark = spark
        self._table = table
        self._counted = version_of(table)
        if self._counted < 0:
            (newest,) = self._history(1)
            self._counted = int(newest.version)

    def count_new(self, query_ids: Collection[str]) -> int:
        """The number of rows that these streaming queries appended since the last call."""
        newest = version_of(self._table)
        if newest >= 0:
            versions = range(self._counted + 1, newest + 1)
            self._counted = newest
            return sum(rows_added_by(self._table, version, query_ids) for version in versions)
        new = self._new_commits()
        self._counted = max((commit.version for commit in new), default=self._counted)
        own = [commit for commit in new if (commit.operationParameters or {}).get("queryId") in query_ids]
        return sum(int((commit.operationMetrics or {}).get("numOutputRows", 0)) for commit in own)

    def _new_commits(self) -> list[Row]:
        """The commits after the counted ones, from one query, because streams may add commits between two queries."""
        limit = _FIRST_LIMIT
        while True:
            commits = self._history(limit)
            if len(commits) < limit or commits[-1].version <= self._counted:
                return [commit for commit in commits if commit.version > self._counted]
            limit *= 10

    def _history(self, limit: int) -> list[Row]:
        """The last `limit` commits, newest first. Without a limit, Delta reads all, and `--follow` makes thousands."""
        history = self._spark.sql(f"DESCRIBE HISTORY {self._table.sql_name} LIMIT {limit}")
        return history.select("version", "operationParameters", "operationMetrics").collect()
