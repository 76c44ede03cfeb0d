"""The context of a job: where its tasks run, the stages that they belong to, and its output."""

from __future__ import annotations

from dataclasses import dataclass

from spark_mq.job.output_committer import OutputCommitter
from spark_mq.job.progress import Progress
from spark_mq.job.tasks import Tasks


@dataclass(frozen=True)
class JobContext:
    """What a job of this package works with, whatever the job does.

    Attributes:
        tasks: Where the job's tasks run.
        progress: The stages of the job, with their seconds.
    """

    tasks: Tasks
    progress: Progress
    committer: OutputCommitter
