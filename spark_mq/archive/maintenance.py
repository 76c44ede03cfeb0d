"""The upkeep of an archive: old rows are deleted, small files joined and clustered, unused files removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import ArchiveTable, ArchiveTables
from spark_mq.archive.delta_log import check_newest_commits, sync_newest_commits
from spark_mq.archive.lease import lease
from spark_mq.job import Report

DEFAULT_FILE_SIZE = 256 << 20
_FILE_SIZE_SETTING = "spark.databricks.delta.optimize.maxFileSize"
_IGNORE_HOURS_SETTING = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"


@dataclass
class TableReport:
    """The counts of one table.

    Attributes:
        files, bytes: The files of the table's newest version before the run, and their bytes.
        files_after, bytes_after: The same after the run.
        expired_rows: Rows that were deleted; in a dry run, rows that would be deleted.
        vacuumed_files: Files that were removed; in a dry run, files that would be removed.
    """

    table: str
    files: int = 0
    bytes: int = 0
    files_after: int = 0
    bytes_after: int = 0
    expired_rows: int = 0
    vacuumed_files: int = 0


@dataclass
class MaintenanceReport(Report):
    """What a maintenance run did, table by table; if `dry_run` is true, what it would do."""

    dry_run: bool
    tables: list[TableReport] = field(default_factory=list)

    def to_text(self) -> str:
        """The report as lines for a terminal."""
        would = "would be " if self.dry_run else ""
        lines = []
        for table in self.tables:
            lines.append(f"{table.table}: {table.files:,} files, {table.bytes:,} bytes")
            lines.append(f"  rows {would}expired   {table.expired_rows:,}")
            lines.append(f"  files {would}removed  {table.vacuumed_files:,}")
            if not self.dry_run:
                lines.append(f"  now                {table.files_after:,} files, {table.bytes_after:,} bytes")
        if self.dry_run:
            lines.append("dry run: nothing was changed; --apply makes the changes")
        return "\n".join(lines)


def maintain(
    spark: SparkSession,
    table: str,
    *,
    keep_days: float | None = None,
    optimize: bool = True,
    file_size: int = DEFAULT_FILE_SIZE,
    vacuum_hours: float | None = None,
    dry_run: bool = True,
) -> MaintenanceReport:
    """Maintain the archive whose messages are in `table`, and return what was done.

    Args:
        keep_days: Delete the rows of messages that were stored longer ago than this, and of snapshots that were taken
            longer ago. None: delete no row.
        vacuum_hours: Remove files that no version of the table in the last `vacuum_hours` hours uses (Delta's VACUUM).
            Delta refuses less than 168, unless its check is switched off. None: remove no file.
        dry_run: Change nothing, and report what `keep_days` and `vacuum_hours` would do. False makes the changes.
    """
    tables = ArchiveTables.of(table, checkpoint="").connected(spark)
    times = {tables.messages: "store_timestamp", tables.keys: "store_timestamp", tables.snapshots: "snapshot_timestamp"}
    cutoff = None if keep_days is None else datetime.now(UTC) - timedelta(days=keep_days)
    report = MaintenanceReport(dry_run)
    with nullcontext() if dry_run else lease(spark, tables):
        check_newest_commits(tables)
        for delta_table in (*times, tables.segments):
            before = _size(spark, delta_table)
            counts = TableReport(delta_table.name, *before)
            if cutoff is not None and delta_table in times:
                counts.expired_rows = _expire(spark, delta_table, times[delta_table], cutoff, dry_run)
            if optimize and not dry_run:
                with _setting(spark, _FILE_SIZE_SETTING, str(file_size)):
                    spark.sql(f"OPTIMIZE {delta_table.sql_name}").collect()
            if not dry_run:
                sync_newest_commits(delta_table)
            if vacuum_hours is not None:
                counts.vacuumed_files = _vacuum(spark, delta_table, vacuum_hours, dry_run)
            counts.files_after, counts.bytes_after = before if dry_run else _size(spark, delta_table)
            report.tables.append(counts)
    return report


def _size(spark: SparkSession, table: ArchiveTable) -> tuple[int, int]:
    (row,) = spark.sql(f"DESCRIBE DETAIL {table.sql_name}").select("numFiles", "sizeInBytes").collect()
    return row.numFiles, row.sizeInBytes


def _expire(spark: SparkSession, table: ArchiveTable, column: str, cutoff: datetime, dry_run: bool) -> int:
    """The number of rows before `cutoff`, which are deleted unless this is a dry run."""
    if dry_run:
        return table.read(spark).where(F.col(column) < F.lit(cutoff)).count()
    literal = f"TIMESTAMP '{cutoff:%Y-%m-%d %H:%M:%S.%f}+00:00'"
    (row,) = spark.sql(f"DELETE FROM {table.sql_name} WHERE {column} < {literal}").collect()
    return int(row.num_affected_rows)


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def _vacuum(spark: SparkSession, table: ArchiveTable, hours: float, dry_run: bool) -> int:
    """The number of unused files, which are removed unless this is a dry run; Delta lists at most a thousand.

    A VACUUM that removes nothing takes as long as another, and makes two commits, after which the next run of `archive`
    must look for itself whether anything is new.
    """
    # Since 4.1, Delta takes the table's own retention for any number of hours except 0, unless this is off.
    with _setting(spark, _IGNORE_HOURS_SETTING, "false"):
        unused = len(spark.sql(f"VACUUM {table.sql_name} RETAIN {hours} HOURS DRY RUN").collect())
        if unused and not dry_run:
            spark.sql(f"VACUUM {table.sql_name} RETAIN {hours} HOURS").collect()
    return unused
