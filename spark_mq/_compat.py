"""What differs between Spark 4.0, 4.1, 4.2, the Spark Connect client, and Sail, a Spark Connect server without Java."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from spark_mq.errors import UnsupportedSparkError

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
    "TIME_ZONE",
    "ReadAllAvailable",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "is_connect",
    "is_sail",
    "limited_read",
    "register_source",
    "repartition_by_id",
    "session_has_read_limits",
]


TIME_ZONE = "spark.sql.session.timeZone"


def arrow_schema(schema: StructType, zone: str = "UTC") -> pa.Schema:
    """The Arrow columns of rows with this schema. Spark 4.2 wants a time zone for TIMESTAMP; before, it is UTC."""
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone=zone) if takes_zone else to_arrow_schema(schema)


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, not of a Spark in this process."""
    return not hasattr(spark, "sparkContext")


def is_sail(spark: SparkSession) -> bool:
    """Whether the server of a Spark Connect session is Sail: Spark's own `version()` has a revision, too."""
    if not is_connect(spark):
        return False
    row = spark.sql("SELECT version()").first()
    return row is not None and " " not in row[0]


class _SailSource(DataSource):
    """A data source as Sail 0.7 calls it: schemas are those of Arrow, and TIMESTAMP has the zone of the session."""

    zone: str

    def schema(self) -> Any:
        return arrow_schema(super().schema(), self.zone)  # type: ignore[arg-type]

    def reader(self, schema: Any) -> DataSourceReader:
        return _SailReader(super().reader(from_arrow_schema(schema)), schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        # Sail does not tell a task which partition it writes, so that the order of rows would be lost.
        raise UnsupportedSparkError("Sail reads, and cannot write stores or topics: write with a session of Spark")


_SAIL_BATCHES = 16
"""Batches that a task of Sail can give before a query takes rows. With one more, the task waits, and keeps Python's
lock: no other task of the server goes on, also not one whose rows a join takes first (Sail 0.7.2)."""


class _SailReader(DataSourceReader):
    """A reader whose batches have exactly the schema that Sail gave. It has no filters: Sail passes wrong ones.

    Sail 0.7.2 gives `pushFilters` the filter `StringStartsWith('z')` for NOT LIKE 'z%'. A partition has at most
    `_SAIL_BATCHES` batches; the last one has all the rest.
    """

    def __init__(self, reader: DataSourceReader, schema: pa.Schema) -> None:
        self._reader = reader
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batches: Iterator[Any] = self._reader.read(partition)
        cast = (batch.cast(self._schema) for batch in batches)
        yield from islice(cast, _SAIL_BATCHES - 1)
        if rest := list(cast):
            yield from pa.Table.from_batches(rest).combine_chunks().to_batches()


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, unless Spark has found it by itself: 4.0 and 4.1 refuse to register it again.

    Spark asks the active session of the thread whether a source exists, and then registers it in `spark`. So `spark` is
    made the active session, as `spark.sql` does.
    """
    if is_sail(spark):
        zone = {"zone": spark.conf.get(TIME_ZONE)}
        spark.dataSource.register(type(source.__name__, (_SailSource, source), zone))
        return
    if not is_connect(spark):
        spark._jsparkSession.setActiveSession(spark._jsparkSession)
    try:
        spark.dataSource.register(source)
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
