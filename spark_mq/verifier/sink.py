"""What tasks do with their findings: they write them to Parquet files, and count them; and how tasks of a check run.

So a million findings of one kind cost a task and the driver little, and the whole of them can be read as a table.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from spark_mq.indexer.queue_plan import QueuePlan
from spark_mq.indexer.queue_runs import Run, Runs, runs_in
from spark_mq.io.location import Location
from spark_mq.job.progress import Progress
from spark_mq.job.task_items import ArrowTask, TaskItems
from spark_mq.job.tasks import Tasks
from spark_mq.verifier.finding import FINDING_SCHEMA, Finding, rows

SHOWN = 5
"""The number of findings of a code that a report shows in full."""
_WRITTEN_TOGETHER = 1 << 16
"""Findings that are written together: each write is a row group, of which a file keeps a description in memory."""
_JOINED = 256
"""Waiting batches that are joined into one: a batch of one finding takes kilobytes."""
_RESULT = pa.schema([("result", pa.binary())])
"""What a task of `TaskRunner` returns, pickled."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Summary:
    """Findings, counted.

    Attributes:
        first: The first findings of each code, at most `SHOWN`.
        files: The Parquet files that contain all of them.
    """

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[Finding]] = field(default_factory=dict)
    files: list[Location] = field(default_factory=list)

    @classmethod
    def of(cls, summaries: Iterable[Summary]) -> Self:
        """The sum of several summaries; the first findings of a code are those with the smallest positions."""
        total = cls()
        for summary in summaries:
            total.files += summary.files
            for code, count in summary.counts.items():
                total.counts[code] = total.counts.get(code, 0) + count
                first = [*total.first.get(code, ()), *summary.first[code]]
                total.first[code] = sorted(first, key=_position)[:SHOWN]
        return total

    def add(self, batch: pa.RecordBatch) -> None:
        """Count findings of one code."""
        code = batch["code"][0].as_py()
        self.counts[code] = self.counts.get(code, 0) + batch.num_rows
        shown = self.first.setdefault(code, [])
        shown += rows([batch.slice(0, SHOWN - len(shown))])


def _position(finding: Finding) -> tuple[str, int, int]:
    return finding.file or "", finding.position or 0, finding.commit_log_offset or 0


class FindingSink:
    """Writes the findings of one task to a file in `folder`. When its context ends, `summary` is complete."""

    def __init__(self, folder: Location) -> None:
        self.summary = Summary()
        self._folder = folder
        self._file = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._write()
        self._file.close()

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take findings; a batch has findings of one code."""
        for batch in batches:
            if not batch.num_rows:
                continue
            self.summary.add(batch)
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            if self._waiting_rows >= _WRITTEN_TOGETHER:
                self._write()
            elif len(self._waiting) >= _JOINED:
                self._waiting = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            # Names are unique, so the file of a task that Spark ran again is never read.
            location = self._folder / f"{uuid.uuid4().hex}.parquet"
            file = self._file.enter_context(location.open_output())
            self._writer = self._file.enter_context(pq.ParquetWriter(file, FINDING_SCHEMA))
            self.summary.files.append(location)
        self._writer.write_table(pa.Table.from_batches(self._waiting), _WRITTEN_TOGETHER)
        self._waiting, self._waiting_rows = [], 0


def read_findings(files: Iterable[Location], columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The findings in Parquet files, or some of their columns.

    One batch is read at a time: a scan by `pyarrow.dataset` reads many files in advance.
    """
    for location in files:
        with location.open_input() as file:
            names = None if columns is None else list(columns)
            yield from pq.ParquetFile(file, pre_buffer=False).iter_batches(columns=names)


@dataclass(frozen=True)
class TaskRunner:
    """Runs the stages of a job; `progress` is None if nobody looks."""

    tasks: Tasks
    progress: Progress | None = None

    def rows(
        self,
        name: str,
        parts: str,
        task_of: Callable[[Location | None], ArrowTask],
        count: int,
        schema: pa.Schema,
        size: int | None = None,
    ) -> pa.Table:
        """The rows of a task that gets the numbers from 0 to `count` - 1.

        Args:
            task_of: Gives the task for the folder in which it marks its parts as done; None if nobody looks.
            size: Bytes that the stage reads; None if that is not known.
        """
        with self._stage(name, count, parts, size) as done:
            return self.tasks.rows(task_of(done), count, schema)

    def each(
        self, name: str, parts: str, items: Sequence[Item], work: Callable[[Item], Result], size: int | None = None
    ) -> list[Result]:
        """What tasks return for the items, in any order."""
        packed = TaskItems.of(items)
        return _results(self.rows(name, parts, lambda done: _EachItem(packed, work, done), len(items), _RESULT, size))

    def of_runs(self, name: str, runs: Runs, plan: QueuePlan, work: Callable[[Iterator[Run]], Result]) -> list[Result]:
        """What tasks return for the runs of queues; each gets runs sorted by file and then by commit log offset."""
        assignment = plan.assignment()
        with self._stage(name, assignment.tasks, "tasks"):
            return _results(runs.spread(assignment, _OfRuns(work), _RESULT))

    def _stage(
        self, name: str, count: int, parts: str, size: int | None = None
    ) -> AbstractContextManager[Location | None]:
        return nullcontext() if self.progress is None else self.progress.stage(name, count, parts, size)


@dataclass(frozen=True)
class _EachItem(Generic[Item, Result]):
    items: TaskItems[Item]
    work: Callable[[Item], Result]
    done: Location | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for item in self.items.each(batches, self.done):
            yield _pickled(self.work(item))


@dataclass(frozen=True)
class _OfRuns(Generic[Result]):
    work: Callable[[Iterator[Run]], Result]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _pickled(self.work(runs_in(batches)))


def _pickled(result: object) -> pa.RecordBatch:
    return pa.record_batch([pa.array([pickle.dumps(result)], pa.binary())], schema=_RESULT)


def _results(table: pa.Table) -> list[Result]:
    return [pickle.loads(data) for data in table["result"].to_pylist()]
