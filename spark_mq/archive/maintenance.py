"""Keeping an archive quick and small: old rows away, small files joined and clustered, unused files removed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import ArchiveTable, ArchiveTables

DEFAULT_FILE_SIZE = 256 << 20
_FILE_SIZE_SETTING = "spark.databricks.delta.optimize.maxFileSize"


@dataclass
class TableReport:
    """One table. `files` and `bytes` are those that a reader has to do with, before and after."""

    table: str
    files: int = 0
    bytes: int = 0
    files_after: int = 0
    bytes_after: int = 0
    expired_rows: int = 0
    vacuumed_files: int = 0


@dataclass
class MaintenanceReport:
    """What was done, or in a dry run what would be."""

    dry_run: bool
    tables: list[TableReport] = field(default_factory=list)

    def to_json(self) -> str:
        """One JSON object; field names as here."""
        return json.dumps(dataclasses.asdict(self))

    def to_text(self) -> str:
        """Lines for a terminal."""
        would = "would be " if self.dry_run else ""
        lines = []
        for table in self.tables:
            lines.append(f"{table.table}: {table.files:,} files, {table.bytes:,} bytes")
            lines.append(f"  rows {would}expired   {table.expired_rows:,}")
            lines.append(f"  files {would}removed  {table.vacuumed_files:,}")
            if not self.dry_run:
                lines.append(f"  now                {table.files_after:,} files, {table.bytes_after:,} bytes")
        return "\n".join(lines)


def maintain(
    spark: SparkSession,
    table: str,
    *,
    keep_days: float | None = None,
    optimize: bool = True,
    file_size: int = DEFAULT_FILE_SIZE,
    vacuum_hours: float | None = None,
    dry_run: bool = False,
) -> MaintenanceReport:
    """Maintain the archive whose messages are in `table`.

    `keep_days`: rows of messages stored, and snapshots taken, longer ago are deleted. `optimize`: files are joined to
    about `file_size` bytes and clustered. `vacuum_hours`: files that no version of the last so many hours uses are
    removed; Delta refuses less than a week unless its check is switched off. `dry_run` changes nothing, and reports
    what the first and the last would do.
    """
    place = ArchiveTables.of(table, checkpoint="")
    times = {place.messages: "store_timestamp", place.keys: "store_timestamp", place.snapshots: "snapshot_timestamp"}
    cutoff = None if keep_days is None else datetime.now(UTC) - timedelta(days=keep_days)
    report = MaintenanceReport(dry_run)
    for each in (*times, place.segments):
        done = TableReport(each.name)
        done.files, done.bytes = _size(spark, each)
        if cutoff is not None and each in times:
            done.expired_rows = _expire(spark, each, times[each], cutoff, dry_run)
        if optimize and not dry_run:
            _optimize(spark, each, file_size)
        if vacuum_hours is not None:
            done.vacuumed_files = _vacuum(spark, each, vacuum_hours, dry_run)
        done.files_after, done.bytes_after = _size(spark, each)
        report.tables.append(done)
    return report


def _size(spark: SparkSession, table: ArchiveTable) -> tuple[int, int]:
    (row,) = spark.sql(f"DESCRIBE DETAIL {table.sql_name}").select("numFiles", "sizeInBytes").collect()
    return row.numFiles, row.sizeInBytes


def _expire(spark: SparkSession, table: ArchiveTable, column: str, cutoff: datetime, dry_run: bool) -> int:
    rows = table.read(spark).where(F.col(column) < F.lit(cutoff)).count()
    if rows and not dry_run:
        literal = f"TIMESTAMP '{cutoff:%Y-%m-%d %H:%M:%S.%f}+00:00'"
        spark.sql(f"DELETE FROM {table.sql_name} WHERE {column} < {literal}")
    return rows


def _optimize(spark: SparkSession, table: ArchiveTable, file_size: int) -> None:
    before = spark.conf.get(_FILE_SIZE_SETTING, None)
    spark.conf.set(_FILE_SIZE_SETTING, str(file_size))
    try:
        spark.sql(f"OPTIMIZE {table.sql_name}").collect()
    finally:
        if before is None:
            spark.conf.unset(_FILE_SIZE_SETTING)
        else:
            spark.conf.set(_FILE_SIZE_SETTING, before)


def _vacuum(spark: SparkSession, table: ArchiveTable, hours: float, dry_run: bool) -> int:
    """How many files were removed, or would be; Delta lists a thousand of them at most."""
    would_go = spark.sql(f"VACUUM {table.sql_name} RETAIN {hours} HOURS DRY RUN").count()
    if not dry_run:
        spark.sql(f"VACUUM {table.sql_name} RETAIN {hours} HOURS").collect()
    return would_go
