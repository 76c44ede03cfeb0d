"""Every name that is newer than Spark 4.0, with what stands in for it there."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_READ_LIMITS = True
except ImportError:  # before Spark 4.2
    HAS_READ_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Older Spark asks a stream once for its end, and ends there, with `availableNow`."""

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Older Spark has no read limits: a batch takes all."""


__all__ = [
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "SupportsTriggerAvailableNow",
    "limited_read",
    "repartition_by_id",
    "session_has_read_limits",
]


def session_has_read_limits(spark: SparkSession) -> bool:
    """Whether streams of this session can be limited; a Spark Connect client may be newer than its server."""
    return tuple(int(part) for part in spark.version.split(".")[:2]) >= (4, 2)


def limited_read(max_messages: int | None) -> Any:
    """What a limited stream answers to `getDefaultReadLimit`.

    Spark only hands it back; that it is not `ReadAllAvailable` tells that the limits of the options hold. Spark's
    Python has no limit of two kinds at once.
    """
    return ReadMaxRows(max_messages or 1)


def repartition_by_id(frame: DataFrame, partitions: int, partition_id: Column) -> DataFrame:
    """Send each row to the partition that `partition_id` (0 ... `partitions` - 1) names.

    `DataFrame.repartitionById` is new in Spark 4.1; before it, a hash of the id spreads less evenly.
    """
    direct = getattr(frame, "repartitionById", None)
    if direct is None:
        return frame.repartition(partitions, partition_id)
    result: DataFrame = direct(partitions, partition_id)
    return result
