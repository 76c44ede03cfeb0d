"""The Spark session of a command that reads or writes an archive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from spark_mq.cli.spark import joined_settings
from spark_mq.errors import SparkMqError, UnsupportedSparkError
from spark_mq.io.s3 import is_s3, shown

_NO_FILESYSTEM = re.compile(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found")


def delta_session_settings(given: Mapping[str, str], *tables: str) -> dict[str, str]:
    """The settings of a session with Delta Lake, and with S3 if a table is there, without packages that the user gives.

    Args:
        given: The settings that the user gave.
        tables: The tables and checkpoints of archives, as the user named them.
    """
    from spark_mq.archive.delta import delta_settings, s3_packages

    settings = delta_settings()
    if "delta-spark" in given.get("spark.jars", ""):
        del settings["spark.jars.packages"]
    has_s3 = any("hadoop-aws" in given.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
    if any(map(is_s3, tables)) and not has_s3:
        settings = joined_settings(settings, s3_packages())
    return settings


@contextmanager
def known_filesystem(table: str) -> Iterator[None]:
    """A context in which an error about a missing filesystem of the table's URI names the remedy."""
    try:
        yield
    except SparkMqError as error:
        if not _NO_FILESYSTEM.search(str(error)):
            raise
        scheme = table.partition(":")[0]
        raise UnsupportedSparkError(
            f"{shown(table)}: this Spark has no filesystem for {scheme}: ({error}). For S3, give the library to "
            "spark-submit or to the Spark Connect server: --packages org.apache.hadoop:hadoop-aws:VERSION, where "
            "VERSION is that of Spark's Hadoop jars"
        ) from error
