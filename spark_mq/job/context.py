"""The context of a Spark job: its session, its output, and what its tasks need on each machine."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from spark_mq.job.output_committer import OutputCommitter
from spark_mq.job.progress import Progress
from spark_mq.job.shared_storage import SharedStorageCheck


@dataclass(frozen=True)
class JobContext:
    """What a job of this package works with, whatever the job does.

    Attributes:
        spark: The job's own session.
        shared_storage: The check that each task runs before it starts.
        progress: The stages of the job, with their seconds.
        committer: The output folder.

    """

    spark: SparkSession
    shared_storage: SharedStorageCheck
    progress: Progress
    committer: OutputCommitter

    def numbers(self, count: int) -> DataFrame:
        """The numbers from 0 to `count` - 1 as rows: each is a task of its own."""
        return self.spark.range(0, count, 1, count)
