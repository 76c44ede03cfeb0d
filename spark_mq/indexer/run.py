"""What one run of a job has: its Spark session, its store and output, its settings, and the report it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_mq.errors import CorruptLogError
from spark_mq.indexer.report import RebuildReport
from spark_mq.io.location import Location
from spark_mq.job.output_committer import OutputCommitter
from spark_mq.job.progress import Progress
from spark_mq.job.shared_storage import SharedStorageCheck
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.log.corrupt_range import CorruptRange


@dataclass(frozen=True)
class Job:
    """One run; `permissive`: damage is skipped and reported; `continued`: trees that are continued where they are;
    `is_resumed`: a killed job may have written files of growing trees.
    """

    spark: SparkSession
    store: Location
    broker_conf: BrokerConf
    committer: OutputCommitter
    places: SharedStorageCheck
    progress: Progress
    report: RebuildReport
    permissive: bool
    continued: tuple[str, ...]
    is_resumed: bool

    def refuse(self, corrupt: Sequence[CorruptRange]) -> None:
        """Stop at damage with `CorruptLogError`, or take it into the report."""
        refuse(corrupt, self.report, self.permissive)


def refuse(corrupt: Sequence[CorruptRange], report: RebuildReport, permissive: bool) -> None:
    """Stop at damage with `CorruptLogError`, or take it into the report."""
    report.corrupt += corrupt
    if corrupt and not permissive:
        more = f" ({len(corrupt)} such places in all)" if len(corrupt) > 1 else ""
        raise CorruptLogError(f"{corrupt[0].describe()}{more}; --mode permissive skips and reports what is damaged")
