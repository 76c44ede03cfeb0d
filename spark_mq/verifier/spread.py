"""The stages of a check: its tasks run in this process, or as tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa

from spark_mq.indexer.queue.runs import Assignment, Runs, staged_runs
from spark_mq.indexer.staging.staged_units import StagedUnits
from spark_mq.io.location import Location
from spark_mq.job.arrow_task import ArrowTask
from spark_mq.job.progress import Progress
from spark_mq.job.tasks import Tasks
from spark_mq.verifier.sink import SUMMARY_SCHEMA

TaskOf = Callable[[Location | None], ArrowTask]
"""Gives the task for the folder in which it marks its parts as done; None if nobody looks."""


@dataclass(frozen=True)
class Spread:
    """Runs the parts of a stage.

    Attributes:
        progress: The stages; None if nobody looks.
    """

    tasks: Tasks
    progress: Progress | None = None

    def rows(
        self, name: str, parts: str, task_of: TaskOf, count: int, schema: pa.Schema, size: int | None = None
    ) -> pa.Table:
        """The rows of a task that gets the numbers from 0 to `count` - 1.

        Args:
            size: Bytes that the stage reads; None if that is not known.
        """
        with nullcontext() if self.progress is None else self.progress.stage(name, count, parts, size) as done:
            return self.tasks.rows(task_of(done), count, schema)

    def runs(self, units: Sequence[StagedUnits]) -> Runs:
        """The runs of all splits."""
        return staged_runs(self.tasks, units)

    def summaries(self, runs: Runs, assignment: Assignment, task: ArrowTask, stage: str = "check queues") -> list[str]:
        """The summaries that a task returns for the runs of the assigned queues.

        Args:
            assignment: Which task gets the runs of each queue.
            task: The task; its rows have one column, `summary`.
        """
        with nullcontext() if self.progress is None else self.progress.stage(stage, assignment.tasks, "tasks"):
            found: list[str] = runs.spread(assignment, task, SUMMARY_SCHEMA)["summary"].to_pylist()
            return found
