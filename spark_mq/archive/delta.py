"""The settings of a Spark session for Delta tables, also for tables on S3, which Spark's Hadoop reads and writes.

The package for S3, `hadoop-aws`, must have the version of Spark's own Hadoop. It asks for all clients of AWS (600 MB);
those that it uses are 20 MB. Credentials are not among the settings of the session, which `SET` would show: they go
into the configuration of Hadoop that all tasks get.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from spark_mq._compat import is_connect
from spark_mq.errors import UnsupportedSparkError
from spark_mq.io.s3 import OPTIONS, hadoop_settings, is_s3, with_settings

DELTA_VERSION = "4.4.0"
_SPARK_VERSIONS = ("4.0", "4.1", "4.2")
"""The Spark versions for which Maven Central has this version of Delta Lake."""

_AWS_VERSIONS: Final = {"3.4.1": "2.24.6", "3.4.2": "2.29.52", "3.5.0": "2.35.4"}
"""By version of Hadoop: the version of the clients of AWS with which it was built."""
_CLIENTS: Final = ("s3", "s3-transfer-manager", "apache-client", "sts")
_HADOOP_JAR: Final = re.compile(r"hadoop-client-api-(.+)\.jar")
_DEFAULTS: Final = "core-default.xml"
_VECTORED_READS: Final = "parquet.hadoop.vectored.io.enabled"
"""Hadoop repeats a read whose body was cut short, but not one of several ranges at once."""


def delta_settings() -> dict[str, str]:
    """The settings of a session that starts in this process; it gets Delta Lake from Maven Central."""
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
        # A run that was killed while a stream wrote its first offset leaves a file that Spark would not start over.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        # Parquet keeps no minima and maxima of Spark's default, INT96.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }


def s3_packages() -> dict[str, str]:
    """The settings of a session that starts in this process and has tables on S3; none if Spark has no known Hadoop."""
    from pyspark.find_spark_home import _find_spark_home

    jars = (Path(_find_spark_home()) / "jars").glob("hadoop-client-*")
    version = next((match[1] for jar in jars if (match := _HADOOP_JAR.fullmatch(jar.name))), None)
    if version is None:
        return {}
    hadoop = f"org.apache.hadoop:hadoop-aws:{version}"
    if version not in _AWS_VERSIONS:
        return {"spark.jars.packages": hadoop}
    clients = [f"software.amazon.awssdk:{name}:{_AWS_VERSIONS[version]}" for name in _CLIENTS]
    return {
        "spark.jars.packages": ",".join([hadoop, *clients]),
        # The bundle has all clients. Spark has a Netty of its own, of another version.
        "spark.jars.excludes": "software.amazon.awssdk:bundle,io.netty:*",
    }


def connected(spark: SparkSession, uri: str) -> str:
    """The address with all settings, which Spark's Hadoop has from now on; any other path or URI as it is.

    Settings of Hadoop (`fs.s3a.*`) that the user gave count as options: the address wins over them, and they win over
    the environment. A server of Spark Connect keeps its own settings.
    """
    if not is_s3(uri):
        return uri
    if is_connect(spark):
        return with_settings(uri)
    configuration, given = spark._jsc.hadoopConfiguration(), {}
    for name in OPTIONS:
        sources, value = configuration.getPropertySources(name), configuration.get(name)
        if value and sources is not None and list(sources)[-1] != _DEFAULTS:
            given[name] = value
    complete = with_settings(uri, given)
    for name, value in hadoop_settings(complete).items():
        configuration.set(name, value)
    configuration.setIfUnset(_VECTORED_READS, "false")
    return complete
