"""Where the tasks of a job run: as tasks of Spark, or in this process, which needs no Spark.

A *task* is a function that gets numbers and returns rows. A job gives each part of its work a number. Both ways run the
same functions, so they give the same rows, and the same files.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from spark_mq.job.arrow_task import ArrowTask
from spark_mq.job.shared_storage import SharedStorageCheck

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Tasks(Protocol):
    """Runs tasks."""

    def rows(self, task: ArrowTask, count: int, schema: pa.Schema) -> pa.Table:
        """The rows of a task for the numbers from 0 to `count` - 1, in the order of the numbers.

        Args:
            task: The task. It can be called several times, each time with some of the numbers in a column `id`.
        """

    def checked(self, check: SharedStorageCheck) -> Tasks:
        """The same, with a check that each task runs before it starts if it can run on another machine."""

    def scratch_folders(self) -> list[str]:
        """The folders in which rows are sorted, as far as this process can know them."""


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _numbers(first: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(first, stop), pa.int64())], ["id"])


@dataclass(frozen=True)
class LocalTasks:
    """Runs tasks in this process.

    The kernels of this package release Python's lock while they run, and so do reads of files. So threads use all
    cores. A thread has one part at a time: the memory does not grow with the number of parts.
    """

    threads: int = field(default_factory=cores)

    def rows(self, task: ArrowTask, count: int, schema: pa.Schema) -> pa.Table:
        """The rows of a task; see `Tasks.rows`. An error of a part ends the others before they start."""
        if min(self.threads, count) <= 1:
            return pa.Table.from_batches(task([_numbers(0, count)]), schema)
        with ThreadPoolExecutor(min(self.threads, count)) as executor:
            parts = executor.map(lambda number: list(task([_numbers(number, number + 1)])), range(count))
            return pa.Table.from_batches((batch for part in parts for batch in part), schema)

    def checked(self, check: SharedStorageCheck) -> LocalTasks:
        """These tasks: this process sees what the driver sees, because it is the driver."""
        return self

    def scratch_folders(self) -> list[str]:
        """No folder: rows are sorted in memory."""
        return []


@dataclass(frozen=True)
class SparkTasks:
    """Runs each part as a task of Spark.

    Attributes:
        session: The job's own session (`job_session`).
        check: The check that each task runs before it starts; None without a check.
    """

    session: SparkSession
    check: SharedStorageCheck | None = None

    def rows(self, task: ArrowTask, count: int, schema: pa.Schema) -> pa.Table:
        """The rows of a task; see `Tasks.rows`."""
        return self.frame(self.numbers(count), task, schema).toArrow()

    def numbers(self, count: int) -> DataFrame:
        """The numbers from 0 to `count` - 1 as rows: each is a task of its own."""
        return self.session.range(0, count, 1, count)

    def frame(self, rows: DataFrame, task: ArrowTask, schema: pa.Schema) -> DataFrame:
        """What a task returns for the partitions of `rows`."""
        from pyspark.sql.pandas.types import from_arrow_schema

        checked = task if self.check is None else self.check.wrap(task)
        return rows.mapInArrow(checked, from_arrow_schema(schema))

    def checked(self, check: SharedStorageCheck) -> SparkTasks:
        """The same, with a check that each task runs before it starts."""
        return replace(self, check=check)

    def scratch_folders(self) -> list[str]:
        """The folders in which Spark sorts, as far as this process can know them."""
        from spark_mq.job.session import scratch_folders

        return scratch_folders(self.session)
