"""The settings of a Spark session for Delta tables."""

from __future__ import annotations

from spark_mq.errors import UnsupportedSparkError

DELTA_VERSION = "4.4.0"
_SPARK_VERSIONS = ("4.0", "4.1", "4.2")
"""The Spark versions for which Maven Central has this version of Delta Lake."""


def delta_settings() -> dict[str, str]:
    """The settings of a session that starts in this process; it gets Delta Lake from Maven Central.

    Raises:
        UnsupportedSparkError: There is no such Delta Lake for the installed Spark.

    """
    from pyspark import __version__

    spark_version = ".".join(__version__.split(".")[:2])
    if spark_version not in _SPARK_VERSIONS:
        raise UnsupportedSparkError(
            f"there is no Delta Lake {DELTA_VERSION} for Spark {__version__}, only for {', '.join(_SPARK_VERSIONS)}: "
            "install one of these, or hand the command to a spark-submit whose session has Delta tables"
        )
    return {
        "spark.jars.packages": f"io.delta:delta-spark_{spark_version}_2.13:{DELTA_VERSION}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # On one machine Delta's own jobs are small: over its log's state (50 tasks by default), over files (10,000).
        "spark.databricks.delta.snapshotPartitions": "4",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
        # Parquet keeps no minima and maxima of Spark's default, INT96.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
