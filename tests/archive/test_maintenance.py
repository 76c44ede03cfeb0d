"""The statements of a maintenance run, given to a session that answers without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from spark_mq.archive.maintenance import maintain

IGNORES_HOURS = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"


class Answer:
    """The rows of a statement."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def select(self, *_: str) -> Answer:
        return self

    def collect(self) -> list[Any]:
        return self._rows


class RuntimeConfig(dict[str, str]):
    """The settings of a session."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


class Session:
    """Notes statements. Each table has `old` rows to delete, and `unused` files to remove."""

    def __init__(self, old: int, unused: int) -> None:
        self.statements: list[str] = []
        self.conf = RuntimeConfig({})
        self._old = old
        self._unused = unused

    def sql(self, text: str) -> Answer:
        self.statements.append(text)
        if text.startswith("VACUUM"):
            assert self.conf == {IGNORES_HOURS: "false"}, "Delta would ignore the hours"
        if text.startswith("DESCRIBE"):
            return Answer([SimpleNamespace(numFiles=1, sizeInBytes=100)])
        if text.startswith("DELETE"):
            return Answer([SimpleNamespace(num_affected_rows=self._old)])
        return Answer([SimpleNamespace(path=f"{number}.parquet") for number in range(self._unused)])


@pytest.mark.parametrize("unused", [0, 3])
def test_files_are_removed_only_where_some_are_unused(unused: int) -> None:
    session = Session(old=5, unused=unused)
    report = maintain(
        cast("SparkSession", session), "/lake/m", keep_days=30, optimize=False, vacuum_hours=0, dry_run=False
    )
    vacuums = [text for text in session.statements if text.startswith("VACUUM") and not text.endswith("DRY RUN")]
    assert len(vacuums) == (4 if unused else 0)
    deletes = [text.partition(" <")[0] for text in session.statements if text.startswith("DELETE")]
    assert deletes == [
        "DELETE FROM delta.`/lake/m` WHERE store_timestamp",
        "DELETE FROM delta.`/lake/m_keys` WHERE store_timestamp",
        "DELETE FROM delta.`/lake/m_snapshots` WHERE snapshot_timestamp",
    ]
    assert [(table.expired_rows, table.vacuumed_files) for table in report.tables] == [*[(5, unused)] * 3, (0, unused)]
    assert session.conf == {}
