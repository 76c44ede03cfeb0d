"""The newest snapshot of a store in an archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity


@dataclass(frozen=True)
class NewestSnapshot:
    """The files of a snapshot.

    Attributes:
        timestamp: When it was made, milliseconds since the epoch; None if the archive has no snapshot of the store.
        log_end: The commit log offset at which the log ended then; -1 if that is not known.
        files: The contents by path; a file that was too large for the snapshot is left out.
    """

    timestamp: int | None = None
    log_end: int = -1
    files: Mapping[str, bytes] = field(default_factory=dict)


def newest_snapshot(spark: SparkSession, tables: ArchiveTables, identity: StoreIdentity) -> NewestSnapshot:
    """The newest whole snapshot of a store; if no snapshot is whole, the newest one.

    A snapshot is whole if it has the contents of all its files.

    Args:
        spark: A session with Delta tables.
        tables: The tables of the archive.
        identity: The name of the store in the archive.
    """
    rows = tables.snapshots.read(spark).where(identity.condition())
    of_snapshot = (F.count_if(F.col("content").isNull()).alias("missing"), F.max("log_end").alias("log_end"))
    snapshots = rows.groupBy("snapshot_timestamp").agg(*of_snapshot).toArrow().to_pylist()
    if not snapshots:
        return NewestSnapshot()
    whole = [row for row in snapshots if not row["missing"]] or snapshots
    newest = max(whole, key=lambda row: row["snapshot_timestamp"])
    moment = newest["snapshot_timestamp"]
    of_newest = rows.where((F.col("snapshot_timestamp") == F.lit(moment)) & F.col("content").isNotNull())
    files = {row["file"]: row["content"] for row in of_newest.select("file", "content").toArrow().to_pylist()}
    log_end = -1 if newest["log_end"] is None else newest["log_end"]
    return NewestSnapshot(int(moment.timestamp() * 1000), log_end, files)
