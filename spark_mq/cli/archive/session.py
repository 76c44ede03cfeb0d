"""The Spark session of a command that reads or writes an archive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from spark_mq.errors import SparkMqError, UnsupportedSparkError

_NO_FILESYSTEM = re.compile(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found")


def delta_session_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session with Delta Lake, without its package if the user gives the jars."""
    from spark_mq.archive.delta import delta_settings

    settings = delta_settings()
    if "delta-spark" in given.get("spark.jars", ""):
        del settings["spark.jars.packages"]
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
            f"{table}: this Spark has no filesystem for {scheme}: ({error}). For S3, write s3a:// and give Spark the "
            "library: --packages org.apache.hadoop:hadoop-aws:VERSION, where VERSION is that of Spark's Hadoop jars"
        ) from error
