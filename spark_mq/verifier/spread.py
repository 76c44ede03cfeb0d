"""Where checks run: in this process, one after the other, or as tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pandas as pd
import pyarrow as pa

from spark_mq.indexer.queue.carry_over import Queue
from spark_mq.indexer.queue.runs import Assignment, LocalRuns, QueueTask, StagedQueue
from spark_mq.indexer.staging.staged_units import StagedUnits
from spark_mq.io.location import Location

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A task for `mapInArrow`: numbers in, rows out."""

TaskOf = Callable[[Location | None], ArrowTask]
"""Gives the task for the folder in which it marks its parts as done; None if nobody looks."""


class QueueRuns(Protocol):
    """The units of all queues, in runs."""

    def queues(self) -> list[StagedQueue]:
        """All queues, by topic and queue id."""

    def file_numbers(self, queues: Collection[Queue]) -> dict[Queue, frozenset[int]]:
        """The numbers of the files of these queues that have units."""

    def summaries(self, assignment: Assignment, task: QueueTask, stage: str = "check queues") -> list[str]:
        """The summaries that a task returns for the runs of the assigned queues.

        Args:
            assignment: Which task gets the runs of each queue.
            task: The task; its rows have one column, `summary`.
            stage: The name of the stage.

        """


class Spread(Protocol):
    """Runs the parts of a stage."""

    def rows(
        self, name: str, parts: str, task_of: TaskOf, count: int, schema: pa.Schema, size: int | None = None
    ) -> pa.Table:
        """The rows of a task that gets the numbers from 0 to `count` - 1.

        Args:
            name: The name of the stage.
            parts: What a part is, in the plural.
            task_of: Gives the task.
            count: The number of parts.
            schema: The columns of the rows.
            size: Bytes that the stage reads; None if that is not known.

        """

    def runs(self, units: Sequence[StagedUnits]) -> QueueRuns:
        """The runs of all splits."""


class InProcess:
    """Runs everything in this process."""

    def rows(
        self, name: str, parts: str, task_of: TaskOf, count: int, schema: pa.Schema, size: int | None = None
    ) -> pa.Table:
        """The rows of a task; see `Spread.rows`."""
        numbers = pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], ["id"])
        return pa.Table.from_batches(task_of(None)([numbers]), schema)

    def runs(self, units: Sequence[StagedUnits]) -> QueueRuns:
        """The runs of all splits."""
        return _RunsHere(LocalRuns.read(tuple(units)))


@dataclass(frozen=True)
class _RunsHere:
    runs: LocalRuns

    def queues(self) -> list[StagedQueue]:
        return self.runs.queues()

    def file_numbers(self, queues: Collection[Queue]) -> dict[Queue, frozenset[int]]:
        return self.runs.file_numbers(queues)

    def summaries(self, assignment: Assignment, task: QueueTask, stage: str = "check queues") -> list[str]:
        own = self.runs.with_own_runs(assignment, task)
        frames = own([pd.DataFrame({"id": range(assignment.tasks)})])
        return [str(summary) for frame in frames for summary in frame["summary"]]
