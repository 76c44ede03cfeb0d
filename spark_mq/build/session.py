"""Spark's side of a job: the session it runs in, and where Spark itself writes."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_mq.store.filesystem import Location

_BATCH_ROWS = "64"
"""Rows of one Arrow batch: a staged row is up to 256 KiB."""

_SHUFFLE_PARTITIONS = "4"


def job_session(spark: SparkSession) -> SparkSession:
    """A session of the job's own on the same Spark, so that its settings are nobody else's."""
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _BATCH_ROWS)
    # Counts of queues and splits are small: a few partitions, planned once.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", _SHUFFLE_PARTITIONS)
    return session


def spark_path(location: Location) -> str:
    """The path by which Spark knows `location`: `file:` for local ones, `s3a:` for pyarrow's `s3:`."""
    if location.is_local:
        return f"file://{location.path}"
    return "s3a" + location.uri.removeprefix("s3") if location.uri.startswith("s3://") else location.uri
