"""Every name that some Spark lacks, of 4.0 and later or a Spark Connect client, with what stands in for it there."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

try:
    from py4j.protocol import Py4JJavaError

    SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JJavaError)
    """What Spark raises; of errors of a library in its JVM, such as Delta Lake, PySpark makes none of its own."""
except ImportError:  # pyspark-client
    SPARK_ERRORS = (PySparkException,)

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
    "SPARK_ERRORS",
    "ReadAllAvailable",
    "SupportsTriggerAvailableNow",
    "limited_read",
    "register_source",
    "repartition_by_id",
    "session_has_read_limits",
]


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a data source known, unless Spark found it by itself: 4.0 and 4.1 do not let that be done again."""
    try:
        spark.dataSource.register(source)
    except PySparkException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


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
