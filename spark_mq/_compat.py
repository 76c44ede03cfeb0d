"""Fallbacks for names that are missing in Spark 4.0, Spark 4.1 or the Spark Connect client."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

try:
    from py4j.protocol import Py4JJavaError

    SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JJavaError)
    """The errors of Spark. Errors of libraries in its JVM (Delta Lake) are `Py4JJavaError`, not `PySparkException`."""
except ImportError:  # pyspark-client
    SPARK_ERRORS = (PySparkException,)

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_READ_LIMITS = True
except ImportError:  # before Spark 4.2
    HAS_READ_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Before Spark 4.2, `availableNow` asks a stream once for its end, and stops there."""

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Before Spark 4.2 there are no read limits: a batch reads everything."""


__all__ = [
    "HAS_READ_LIMITS",
    "SPARK_ERRORS",
    "ReadAllAvailable",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "limited_read",
    "register_source",
    "repartition_by_id",
    "session_has_read_limits",
]


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow columns of rows with this schema. Spark 4.2 wants a time zone for TIMESTAMP; before, it is UTC."""
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone="UTC") if takes_zone else to_arrow_schema(schema)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, unless Spark has found it by itself: 4.0 and 4.1 refuse to register it again.

    It is registered in the active session, too: after other sessions of the process were used, a stream of `spark` was
    seen not to find a source that only `spark` had.
    """
    active = type(spark).getActiveSession()
    for session in [spark] if active in (None, spark) else [spark, active]:
        try:
            session.dataSource.register(source)
        except PySparkException as error:
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise


def session_has_read_limits(spark: SparkSession) -> bool:
    """Whether the Spark of the session has read limits: a Spark Connect client may be newer than its server."""
    return tuple(int(part) for part in spark.version.split(".")[:2]) >= (4, 2)


def limited_read(max_messages: int | None) -> Any:
    """The answer of a limited stream to `getDefaultReadLimit`.

    Spark only passes the object back to the reader, which applies the limits of its options unless the object is a
    `ReadAllAvailable`. The number in it has no effect: Spark has no class for limits of bytes and of messages at once.
    """
    return ReadMaxRows(max_messages or 1)


def repartition_by_id(frame: DataFrame, partitions: int, partition_id: Column) -> DataFrame:
    """The DataFrame with each row in the partition that `partition_id` (0 ... `partitions` - 1) names.

    `DataFrame.repartitionById` is new in Spark 4.1. Before, rows go to a partition by a hash of the id, less evenly.
    """
    direct = getattr(frame, "repartitionById", None)
    if direct is None:
        return frame.repartition(partitions, partition_id)
    result: DataFrame = direct(partitions, partition_id)
    return result
