"""Where a task puts its findings: into a Parquet file; and where tasks run.

So a million findings of one kind cost a task and the driver little, and the whole of them can be read as a table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from spark_mq.indexer.queue_runs import Assignment, Runs, staged_runs
from spark_mq.indexer.staged_files import StagedUnits
from spark_mq.io.location import Location
from spark_mq.job.progress import Progress
from spark_mq.job.task_items import ArrowTask, TaskItems
from spark_mq.job.tasks import Tasks
from spark_mq.verifier.finding import FINDING_SCHEMA, Finding, rows

TaskOf = Callable[[Location | None], ArrowTask]
"""Gives the task for the folder in which it marks its parts as done; None if nobody looks."""
SHOWN = 5
"""The number of findings of a code that a report shows in full."""

_WRITTEN_TOGETHER = 1 << 16
"""Findings that are written together: each write is a row group, of which a file keeps a description in memory."""
_JOINED = 256
"""Waiting batches that are joined into one: a batch of one finding takes kilobytes."""

SUMMARY_SCHEMA = pa.schema([("summary", pa.string())])
"""What a task returns: a `Summary` as JSON."""


@dataclass(frozen=True)
class CheckTask:
    """As a task: numbers of checks in, a summary for each out."""

    checks: TaskItems[Check]
    findings: Location
    done: Location | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the checks with these numbers."""
        for check in self.checks.each(batches, self.done):
            with FindingSink(self.findings) as sink:
                check(sink)
            yield summary_batch(sink.summary.to_json())


@dataclass(frozen=True)
class TaskRunner:
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


def summary_batch(summary: str) -> pa.RecordBatch:
    """One row of `SUMMARY_SCHEMA`."""
    return pa.RecordBatch.from_pylist([{"summary": summary}], SUMMARY_SCHEMA)


@dataclass(frozen=True)
class Summary:
    """Findings, counted.

    Attributes:
        counts: The number of findings, by code.
        first: The first findings of each code, at most `SHOWN`.
        files: The names of the Parquet files that contain all of them.
    """

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[Finding]] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The summary as JSON."""
        first = {code: [asdict(finding) for finding in some] for code, some in self.first.items()}
        return json.dumps({"counts": self.counts, "first": first, "files": self.files})

    @classmethod
    def of_json(cls, data: str) -> Self:
        """The summary that `to_json` wrote."""
        values: dict[str, Any] = json.loads(data)
        first = {code: [Finding(**finding) for finding in some] for code, some in values["first"].items()}
        return cls(values["counts"], first, tuple(values["files"]))

    @classmethod
    def of(cls, summaries: Iterable[Summary]) -> Self:
        """The sum of several summaries; the first findings of a code are those with the smallest place."""
        counts: dict[str, int] = {}
        first: dict[str, list[Finding]] = {}
        files: list[str] = []
        for summary in summaries:
            files += summary.files
            for code, count in summary.counts.items():
                counts[code] = counts.get(code, 0) + count
                first[code] = sorted([*first.get(code, ()), *summary.first[code]], key=_place)[:SHOWN]
        return cls(counts, first, tuple(files))


def _place(finding: Finding) -> tuple[str, int, int]:
    return finding.file or "", finding.position or 0, finding.commit_log_offset or 0


class FindingSink:
    """Takes the findings of one task. When its context ends, `summary` is complete.

    Args:
        folder: The folder of the files with findings, which exists; None keeps the findings in `batches`.

    Attributes:
        batches: The findings, if they are kept in memory.
    """

    def __init__(self, folder: Location | None) -> None:
        self.batches: list[pa.RecordBatch] = []
        self._folder = folder
        # Names are unique, so the file of a task that Spark ran again is never read.
        self._name = f"{uuid.uuid4().hex}.parquet"
        self._file: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._counts: dict[str, int] = {}
        self._first: dict[str, list[Finding]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take findings; a batch has findings of one code."""
        for batch in batches:
            if not batch.num_rows:
                continue
            code = batch["code"][0].as_py()
            self._counts[code] = self._counts.get(code, 0) + batch.num_rows
            shown = self._first.setdefault(code, [])
            if len(shown) < SHOWN:
                shown += rows([batch.slice(0, SHOWN - len(shown))])
            if self._folder is None:
                self.batches.append(batch)
                continue
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            if self._waiting_rows >= _WRITTEN_TOGETHER:
                self._write()
            elif len(self._waiting) >= _JOINED:
                self._waiting = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()

    def _write(self) -> None:
        """Write what waits."""
        if not self._waiting or self._folder is None:
            return
        if self._writer is None:
            self._file = (self._folder / self._name).open_output()
            self._writer = pq.ParquetWriter(self._file, FINDING_SCHEMA)
        self._writer.write_table(pa.Table.from_batches(self._waiting), _WRITTEN_TOGETHER)
        self._waiting, self._waiting_rows = [], 0

    @property
    def summary(self) -> Summary:
        """What was taken so far."""
        return Summary(self._counts, self._first, (self._name,) if self._writer is not None else ())


def read_findings(files: Iterable[Location], columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The findings in Parquet files, or some of their columns.

    One batch is read at a time: a scan by `pyarrow.dataset` reads many files in advance.

    Args:
        columns: The names of the columns; None for all.
    """
    for location in files:
        with location.open_input() as file:
            names = None if columns is None else list(columns)
            yield from pq.ParquetFile(file, pre_buffer=False).iter_batches(columns=names)


Check = Callable[[FindingSink], None]
"""Puts what is wrong into a sink. It can be pickled."""
