"""Spark's side of a job: its session, and the folders in which Spark sorts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from spark_mq.errors import StorageError
from spark_mq.job.storage_errors import storage_problem
from spark_mq.job.task_errors import JOB_ERRORS, unwrap_task_error

_SETTINGS = {
    # The number of rows in an Arrow batch: a run of units has up to 256 KiB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    # Counts of queues and splits are small: a few partitions, planned once.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}


@contextmanager
def job_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A context with a session of the job's own on the same Spark, so that no other session gets its settings.

    Spark Connect cannot create a second session. There the job uses the given session, and restores its settings at
    the end.
    """
    is_own = hasattr(spark, "newSession")
    session = spark.newSession() if is_own else spark
    before = {key: session.conf.get(key) or "" for key in _SETTINGS}
    try:
        with job_errors():
            _configure(session, _SETTINGS)
            yield session
    finally:
        if not is_own:
            _configure(session, before)


@contextmanager
def job_errors() -> Iterator[None]:
    """A context that raises errors of Spark and of files as errors of this package."""
    try:
        yield
    except JOB_ERRORS as error:
        named = unwrap_task_error(error) or _storage_error(error)
        if named is None or named is error:
            raise
        raise named from error


def _configure(session: SparkSession, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        session.conf.set(key, value)


def _storage_error(error: BaseException) -> StorageError | None:
    problem = storage_problem(error)
    return None if problem is None else StorageError(problem)


def scratch_folders(spark: SparkSession) -> list[str]:
    """The folders in which Spark sorts, as far as this process can know them."""
    named = spark.conf.get("spark.local.dir", None) or os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return named.split(",")
