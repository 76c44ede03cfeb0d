"""The runs of all splits: which queues they belong to, and which task writes them.

A log of some gigabytes has few runs: the driver reads the directories of all splits, plans in Arrow, and each task
reads the units of its own runs. With more runs than the driver should have in memory, tasks read the directories, and
Spark sorts the runs, with their units, by queue file. Without Spark, tasks then sort the runs of each split by the task
that gets them, in a file. All ways use the same functions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from spark_mq.format.consume_queue import Queue
from spark_mq.indexer.staged_files import READERS, RUN_SCHEMA, StagedUnits
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.job.progress import mark_done
from spark_mq.job.tasks import (
    RESULTS,
    ArrowTask,
    LocalTasks,
    Result,
    SparkTasks,
    TaskItems,
    TaskRunner,
    Tasks,
    pickled,
    unpickled,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MAX_RUNS_IN_DRIVER = 100_000
_MAX_REMOTE_RUNS_IN_DRIVER = 2_000
"""On an object store each run costs a request: many short ones are better read by split, in one piece."""
_BATCH_RUNS = 64
_SPLITS_PER_TASK = 16

_TOTALS = (("queue_min", "min"), ("queue_max", "max"), ("staged_units", "sum"), ("commit_log_offset", "min"))
"""The columns of `StagedQueue`, and how those of several runs become one: functions of Arrow and of Spark."""

_FILE = ["topic", "queue_id", "file_number"]
_ORDER = ("topic", "queue_id", "file_number", "commit_log_offset")


@dataclass(frozen=True)
class Run:
    """A run as a task gets it: columns of `StagedUnits.read_runs` and of `Assignment.queues`, and the units."""

    topic: str
    queue_id: int
    file_number: int
    commit_log_offset: int
    first_queue_offset: int
    last_store_timestamp: int
    units: pa.Buffer
    queue_min: int
    queue_max: int
    existing_end: int


_OTHER_TYPES = {"topic": pa.string(), "queue_id": pa.int32(), "units": pa.binary()}
_COLUMNS = pa.schema([(field.name, _OTHER_TYPES.get(field.name, pa.int64())) for field in fields(Run)])
_WITH_TASK = pa.schema([("task", pa.int32()), *_COLUMNS])
"""The columns of `Run`, and the number of the task that gets it."""


def by_file(runs: Iterable[Run]) -> Iterator[tuple[Run, Iterator[Run]]]:
    """The runs of each file, and the first one of them; they are sorted by file and then by commit log offset."""
    for _, group in groupby(runs, lambda run: (run.topic, run.queue_id, run.file_number)):
        of_file = iter(group)
        first = next(of_file)
        yield first, chain([first], of_file)


@dataclass(frozen=True)
class StagedQueue:
    """A queue that has units in the log; `commit_log_offset` is that of its first message.

    `existing_end` is the queue offset at which its existing files end; 0 without files.
    """

    topic: str
    queue_id: int
    queue_min: int
    queue_max: int
    staged_units: int
    commit_log_offset: int
    existing_end: int = 0

    @property
    def key(self) -> Queue:
        """Topic and queue id."""
        return self.topic, self.queue_id

    @property
    def name(self) -> str:
        """The queue's folder below `consumequeue/`."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def is_without_gaps(self) -> bool:
        """Whether the log can have one message for each offset of the queue."""
        return self.staged_units == self.queue_max - self.queue_min


@dataclass(frozen=True)
class Assignment:
    """Which task writes the runs of a queue.

    `queues` has a row for each: `topic`, `queue_id`, `queue_min`, `queue_max`, `existing_end`, and `file_base`, which
    makes a number of the job out of a file's number in its queue.
    """

    queues: pa.Table
    tasks: int

    def of(self, runs: pa.Table) -> pa.Table:
        """The runs of the assigned queues, with the columns of their queue and the number of their `task`."""
        assigned = runs.join(self.queues, ["topic", "queue_id"], join_type="inner")
        task = (assigned["file_base"].to_numpy() + assigned["file_number"].to_numpy()) % self.tasks
        return assigned.append_column("task", pa.array(task.astype(np.int32)))


def runs_of(tasks: Tasks, splits: Sequence[StagedUnits], starts: Mapping[Queue, int]) -> Runs:
    """The runs of all splits, for tasks that run there; those of a queue in `starts` begin with its offset there."""
    splits = tuple(replace(split, starts=starts) for split in splits)
    runs, is_remote = sum(split.runs for split in splits), any(not split.location.is_local for split in splits[:1])
    if not isinstance(tasks, SparkTasks):
        return LocalRuns.read(tasks, splits) if runs <= _MAX_RUNS_IN_DRIVER else _RunsInFiles(tasks, splits)
    if runs > (_MAX_REMOTE_RUNS_IN_DRIVER if is_remote else _MAX_RUNS_IN_DRIVER):
        return _RunsInSpark(tasks, splits)
    return LocalRuns.read(tasks, splits)


def find_queues(runs: pa.Table) -> pa.Table:
    """A row for each queue of runs (`RUN_SCHEMA`), or of rows of earlier calls: the fields of `StagedQueue`."""
    if "queue_max" not in runs.column_names:
        first, count = runs["first_queue_offset"], runs["unit_count"]
        stop = pa.array(first.to_numpy() + count.to_numpy())
        columns = [runs["topic"], runs["queue_id"], first, stop, count, runs["commit_log_offset"]]
        runs = pa.table(columns, names=["topic", "queue_id", *(name for name, _ in _TOTALS)])
    found = runs.group_by(["topic", "queue_id"]).aggregate(list(_TOTALS))
    return found.select(["topic", "queue_id", *map("_".join, _TOTALS)]).rename_columns(runs.column_names)


def _in_order(queues: pa.Table) -> list[StagedQueue]:
    rows = queues.sort_by([("topic", "ascending"), ("queue_id", "ascending")]).to_pylist()
    return [StagedQueue(**row) for row in rows]


def _find_files(runs: pa.Table, queues: Collection[Queue]) -> pa.Table:
    columns = [[topic for topic, _ in queues], pa.array([queue_id for _, queue_id in queues], pa.int32())]
    chosen = runs.select(_FILE).join(pa.table(columns, _FILE[:2]), _FILE[:2], join_type="left semi")
    return chosen.group_by(_FILE).aggregate([]).select(_FILE)


def _by_queue(files: pa.Table) -> dict[Queue, frozenset[int]]:
    found = files.group_by(_FILE[:2]).aggregate([("file_number", "list")]).to_pylist()
    return {(row["topic"], row["queue_id"]): frozenset(row["file_number_list"]) for row in found}


def _with_units(runs: pa.Table, units: pa.Array) -> Iterator[pa.RecordBatch]:
    columns = [units if name == "units" else runs[name] for name in _WITH_TASK.names]
    yield from pa.table(columns, schema=_WITH_TASK).to_batches()


@dataclass(frozen=True)
class LocalRuns:
    """Runs that this process has read: the columns of `StagedUnits.read_runs`, and `split`, a number in `splits`."""

    tasks: Tasks
    splits: tuple[StagedUnits, ...]
    runs: pa.Table

    @classmethod
    def read(cls, tasks: Tasks, splits: tuple[StagedUnits, ...]) -> Self:
        """The runs of all splits."""
        with ThreadPoolExecutor(READERS) as readers:
            tables = [
                table.append_column("split", pa.repeat(number, table.num_rows))
                for number, table in enumerate(readers.map(StagedUnits.read_runs, splits))
            ]
        return cls(tasks, splits, pa.concat_tables(tables) if tables else RUN_SCHEMA.empty_table())

    def queues(self) -> list[StagedQueue]:
        """All queues, by topic and queue id."""
        return _in_order(find_queues(self.runs))

    def file_numbers(self, queues: Collection[Queue]) -> dict[Queue, frozenset[int]]:
        """The numbers of the files of these queues that have units."""
        return _by_queue(_find_files(self.runs, queues))

    def spread(self, assignment: Assignment, task: ArrowTask) -> pa.Table:
        """Let tasks have the runs of the assigned queues; returns the rows of the tasks (`RESULTS`).

        A task gets its runs sorted by queue file and then by commit log offset (`_WITH_TASK`).
        """
        runs = assignment.of(self.runs).sort_by([(name, "ascending") for name in ("task", *_ORDER)])
        bounds = np.searchsorted(runs["task"].to_numpy(), np.arange(assignment.tasks + 1)).tolist()
        splits, of_tasks = TaskItems.of(self.splits), TaskItems.of(pairwise(bounds))
        own = partial(_with_own_runs, splits=splits, runs=runs, bounds=of_tasks, task=task)
        return self.tasks.rows(own, assignment.tasks, RESULTS)


def _with_own_runs(
    batches: Iterable[pa.RecordBatch],
    splits: TaskItems[StagedUnits],
    runs: pa.Table,
    bounds: TaskItems[tuple[int, int]],
    task: ArrowTask,
) -> Iterator[pa.RecordBatch]:
    """As a task: numbers of tasks in, rows of the inner task out; the task reads the units of its runs.

    `bounds` are the numbers of the first run of each task, and of the first run after it.
    """
    for start, stop in bounds.each(batches, None):
        yield from task(_read_units(splits, runs.slice(start, stop - start)))


def _read_units(splits: TaskItems[StagedUnits], runs: pa.Table) -> Iterator[pa.RecordBatch]:
    """Sorted runs with their units (`_WITH_TASK`)."""
    with closing(FileReaders()) as files:
        for start in range(0, runs.num_rows, _BATCH_RUNS):
            batch = runs.slice(start, _BATCH_RUNS)
            split, first, count = (batch[name].to_numpy() for name in ("split", "first_unit", "unit_count"))
            size = splits[int(split[0])].unit_size
            ends = np.concatenate(([0], count.cumsum())) * size
            data = np.empty(ends[-1], np.uint8)
            for number, at, start_at, stop_at in zip(split, first * size, ends, ends[1:], strict=False):
                files.reader(splits[number].location).read_into(data[start_at:stop_at].data, int(at))
            buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
            yield from _with_units(batch, pa.Array.from_buffers(pa.binary(), batch.num_rows, buffers))


@dataclass(frozen=True)
class _RunsInFiles:
    """More runs than this process should have in memory; see `LocalRuns`."""

    tasks: LocalTasks
    splits: tuple[StagedUnits, ...]

    def queues(self) -> list[StagedQueue]:
        return _in_order(find_queues(found_in(self.tasks, self.splits, find_queues)))

    def file_numbers(self, queues: Collection[Queue]) -> dict[Queue, frozenset[int]]:
        return _by_queue(found_in(self.tasks, self.splits, partial(_find_files, queues=queues)))

    def spread(self, assignment: Assignment, task: ArrowTask) -> pa.Table:
        sort = partial(_sort_into_file, splits=TaskItems.of(enumerate(self.splits)), assignment=assignment)
        files = unpickled(self.tasks.rows(sort, len(self.splits), RESULTS))
        try:
            own = partial(_with_runs_in_files, splits=TaskItems.of(self.splits), files=files, task=task)
            return self.tasks.rows(own, assignment.tasks, RESULTS)
        finally:
            for file in files:
                file.delete()


def _sort_into_file(
    batches: Iterable[pa.RecordBatch], splits: TaskItems[tuple[int, StagedUnits]], assignment: Assignment
) -> Iterator[pa.RecordBatch]:
    """As a task: numbers of splits in, files of their assigned runs out, in which each task has a batch."""
    for number, split in splits.each(batches, None):
        found = split.read_runs()
        runs = assignment.of(found.append_column("split", pa.repeat(number, found.num_rows))).sort_by("task")
        bounds = np.searchsorted(runs["task"].to_numpy(), np.arange(assignment.tasks + 1)).tolist()
        location = split.location.parent / f"{uuid.uuid4().hex}.runs"
        sorted_runs = pa.record_batch([column.combine_chunks() for column in runs.columns], runs.schema)
        with location.open_output() as file, pa.ipc.new_file(file, runs.schema) as written:
            for start, stop in pairwise(bounds):
                written.write_batch(sorted_runs.slice(start, stop - start))
        yield from pickled([location])


def _with_runs_in_files(
    batches: Iterable[pa.RecordBatch], splits: TaskItems[StagedUnits], files: Sequence[Location], task: ArrowTask
) -> Iterator[pa.RecordBatch]:
    """As a task: numbers of tasks in, rows of the inner task out, which gets its runs from all files."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            runs = pa.Table.from_batches([_batch_of(file, number) for file in files])
            yield from task(_read_units(splits, runs.sort_by([(name, "ascending") for name in _ORDER])))


def _batch_of(file: Location, number: int) -> pa.RecordBatch:
    with file.open_input() as opened, pa.ipc.open_file(opened) as batches:
        return batches.get_batch(number)


def found_in(tasks: Tasks, splits: Sequence[StagedUnits], find: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """What `find` finds in the runs of the splits, a few at a time."""
    groups = _groups(splits)
    schema = find(RUN_SCHEMA.empty_table()).schema
    return tasks.rows(partial(_find_in_runs, groups=TaskItems.of(groups), find=find), len(groups), schema)


def _groups(splits: Sequence[StagedUnits]) -> list[Sequence[StagedUnits]]:
    return [splits[start : start + _SPLITS_PER_TASK] for start in range(0, len(splits), _SPLITS_PER_TASK)]


@dataclass(frozen=True)
class _RunsInSpark:
    """More runs than the driver should have in memory; see `LocalRuns`."""

    tasks: SparkTasks
    splits: tuple[StagedUnits, ...]

    def queues(self) -> list[StagedQueue]:
        from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

        totals = [getattr(F, function)(name).alias(name) for name, function in _TOTALS]
        return _in_order(self._found(find_queues).groupBy("topic", "queue_id").agg(*totals).toArrow())

    def file_numbers(self, queues: Collection[Queue]) -> dict[Queue, frozenset[int]]:
        return _by_queue(self._found(partial(_find_files, queues=queues)).distinct().toArrow())

    def _found(self, find: Callable[[pa.Table], pa.Table]) -> DataFrame:
        groups = _groups(self.splits)
        task = partial(_find_in_runs, groups=TaskItems.of(groups), find=find)
        return self.tasks.of_numbers(len(groups), task, find(RUN_SCHEMA.empty_table()).schema)

    def spread(self, assignment: Assignment, task: ArrowTask) -> pa.Table:
        from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

        from spark_mq._compat import repartition_by_id

        read = partial(_read_runs, splits=TaskItems.of(self.splits), assignment=assignment)
        runs = self.tasks.of_numbers(len(self.splits), read, _WITH_TASK)
        runs = repartition_by_id(runs, assignment.tasks, F.col("task")).sortWithinPartitions(*_ORDER).drop("task")
        return self.tasks.of_rows(runs, _COLUMNS, task, RESULTS).toArrow()


Runs = LocalRuns | _RunsInFiles | _RunsInSpark
"""The runs of all splits."""


RunWork = Callable[[Iterator[Run]], Iterable[Result]]
"""What a task does with its runs, which are sorted by queue file and then by commit log offset."""


def of_runs(runner: TaskRunner, name: str, runs: Runs, assignment: Assignment, work: RunWork[Result]) -> list[Result]:
    """What tasks return for the runs of the assigned queues."""
    with runner.stage(name, assignment.tasks, "tasks") as done:
        return unpickled(runs.spread(assignment, partial(_of_runs, work=work, done=done)))


def _values(column: pa.Array) -> list[Any]:
    """The values of a column of runs; units are not copied."""
    return [units.as_buffer() for units in column] if pa.types.is_binary(column.type) else column.to_pylist()


def _of_runs(batches: Iterable[pa.RecordBatch], work: RunWork[Any], done: Location | None) -> Iterator[pa.RecordBatch]:
    """As a task: runs in, what `work` returns for them out (`RESULTS`)."""
    columns = (map(_values, map(batch.column, _COLUMNS.names)) for batch in batches)
    yield from pickled(work(run for values in columns for run in map(Run, *values)))
    if done is not None:
        mark_done(done, uuid.uuid4().hex)


def _find_in_runs(
    batches: Iterable[pa.RecordBatch], groups: TaskItems[Sequence[StagedUnits]], find: Callable[[pa.Table], pa.Table]
) -> Iterator[pa.RecordBatch]:
    """As a task: numbers of groups of splits in, what `find` finds in their runs out."""
    for group in groups.each(batches, None):
        yield from find(pa.concat_tables([split.read_runs() for split in group])).combine_chunks().to_batches()


def _read_runs(
    batches: Iterable[pa.RecordBatch], splits: TaskItems[StagedUnits], assignment: Assignment
) -> Iterator[pa.RecordBatch]:
    """As a task: numbers of splits in, their runs with units out (`_WITH_TASK`)."""
    with closing(FileReaders()) as files:
        for split in splits.each(batches, None):
            units = files.read(split.location, 0, split.units * split.unit_size)
            runs = assignment.of(split.read_runs())
            for at in range(0, runs.num_rows, _BATCH_RUNS):
                some = runs.slice(at, _BATCH_RUNS)
                starts = (some["first_unit"].to_numpy() * split.unit_size).tolist()
                sizes = (some["unit_count"].to_numpy() * split.unit_size).tolist()
                pieces = [units[start : start + size] for start, size in zip(starts, sizes, strict=True)]
                yield from _with_units(some, pa.array(pieces, pa.binary()))
