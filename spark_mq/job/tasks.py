"""Where the tasks of a job run: as tasks of Spark, or in this process, which needs no Spark.

A *task* is a function that gets numbers and returns rows. A job gives each part of its work a number. Both ways run the
same functions, so they give the same rows, and the same files.

Spark sends a job's function to every task, with everything that the function refers to. A job over ten terabytes has
75,000 tasks; if each of them unpickled the splits of all tasks, the job would take longer for that than for its work.
So a task unpickles only its own item (`TaskItems`).

Every machine resolves a path for itself. On another machine `/data/store` can be missing, or it can be the store of
another broker. A file that a task writes to a folder that is not shared is lost. So each task looks at what the driver
saw (`SharedStorageCheck`).
"""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import pyarrow as pa

from spark_mq.errors import NotSharedError, StorageError, UnsupportedSparkError
from spark_mq.io.location import Location
from spark_mq.job.output_committer import OutputCommitter
from spark_mq.job.progress import OnProgress, Progress, mark_done
from spark_mq.job.task_errors import job_errors, storage_problem, unwrap_task_error
from spark_mq.store.log.commit_log import CommitLog

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A task of a job: numbers, or rows of another task, in; rows out. `Tasks` runs it."""
RESULTS = pa.schema([("result", pa.binary())])
"""The rows of a task that returns Python values."""
_RESULTS_PER_BATCH = 64

_SETTINGS = {
    # The number of rows in an Arrow batch: a run of units has up to 256 KiB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    # Counts of queues and splits are small: a few partitions, planned once.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}


ENGINES = {"local": "in threads of this process", "spark": "on Spark, without its start"}
"""Where the tasks of a job can run, and how a report says it after the seconds."""

_NUMBERS = pa.schema([("id", pa.int64())])
_SECONDS_OF_WAIT = 0.5
_MAX_HEAD = 1024
NONCE = "nonce-"
"""The beginning of the name of a file in a job's folder that each task must see."""


@dataclass(frozen=True)
class TaskItems(Generic[Item]):
    """Items by the number of their task, each pickled by itself."""

    pickled: tuple[bytes, ...]

    @classmethod
    def of(cls, items: Iterable[Item]) -> Self:
        """The items in this order."""
        return cls(tuple(map(pickle.dumps, items)))

    def each(self, batches: Iterable[pa.RecordBatch], done: Location | None) -> Iterator[Item]:
        """The items whose numbers a task gets. Each is marked as done, in `done`, when the next one is asked for."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self[number]
                if done is not None:
                    mark_done(done, str(number))

    def __getitem__(self, number: int) -> Item:
        item: Item = pickle.loads(self.pickled[number])
        return item


def pickled(results: Iterable[object]) -> Iterator[pa.RecordBatch]:
    """Rows of `RESULTS`, as soon as there are some of them."""
    texts = map(pickle.dumps, results)
    while batch := list(islice(texts, _RESULTS_PER_BATCH)):
        yield pa.record_batch([pa.array(batch, pa.binary())], schema=RESULTS)


def unpickled(rows: pa.Table) -> list[Any]:
    """The values of rows of `RESULTS`."""
    return [pickle.loads(data) for data in rows["result"].to_pylist()]


@contextmanager
def spark_tasks(spark: SparkSession, progress: Callable[[str], None] | None = None) -> Iterator[SparkTasks]:
    """A context with tasks in a session of the job's own on the same Spark: no other session gets its settings.

    Spark Connect cannot create a second session. There the job uses the given session, and restores its settings at
    the end. `progress` gets a line every few seconds. Raises `UnsupportedSparkError` if the server is Sail.
    """
    from spark_mq._compat import is_connect, is_sail

    if is_sail(spark):
        raise UnsupportedSparkError("a job runs on Spark, not on Sail; the commands also run it without either")
    is_own = not is_connect(spark)
    session = spark.newSession() if is_own else spark
    before = {key: session.conf.get(key) or "" for key in _SETTINGS}
    try:
        with package_errors():
            for key, value in _SETTINGS.items():
                session.conf.set(key, value)
            yield SparkTasks(session, None if progress is None else lambda stage: progress(str(stage)))
    finally:
        for key, value in before.items() if not is_own else ():
            session.conf.set(key, value)


@contextmanager
def package_errors() -> Iterator[None]:
    """A context that raises errors of Spark and of files as errors of this package."""
    try:
        yield
    except job_errors() as error:
        named, problem = unwrap_task_error(error), storage_problem(error)
        if named is not None and named is not error:
            raise named from error
        if named is None and problem is not None:
            raise StorageError(problem) from error
        raise


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _numbers(first: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(first, stop), pa.int64())], schema=_NUMBERS)


def _awaited(future: Future[Result]) -> Result:
    """What a part of a job returns.

    Python handles Ctrl-C in the main thread. If it comes just before the thread waits, it is handled after the wait.
    """
    while not future.done():
        wait([future], _SECONDS_OF_WAIT)
    return future.result()


@dataclass(frozen=True)
class SharedStorageCheck:
    """Files that the driver saw, and their first bytes (`heads`)."""

    heads: tuple[tuple[Location, bytes], ...]

    @classmethod
    def record(cls, log: CommitLog, work_folder: Location) -> Self:
        """The check for what this machine sees."""
        last = log.segments[-1]
        # A running broker may still be writing the head: only the bytes before the end of the data count.
        head = _read(last.location, min(last.data_end, _MAX_HEAD))
        return cls(((last.location, head), *cls.of_folder(work_folder).heads))

    @classmethod
    def of_folder(cls, work_folder: Location) -> Self:
        """The check for a job that reads no store: only its folder, into which a new nonce is written."""
        nonce = uuid.uuid4().hex.encode()
        file = work_folder / f"{NONCE}{nonce.decode()}"
        with file.open_output() as stream:  # under its own name, by which the next job knows what a killed one left
            stream.write(nonce)
        return cls(((file, nonce),))

    def check(self) -> None:
        """Raise `NotSharedError` if this machine sees other files or bytes."""
        for location, head in self.heads:
            try:
                seen = _read(location, len(head))
            except OSError as error:
                raise _not_shared(location, "cannot open it") from error
            if seen != head:
                raise _not_shared(location, "sees another file there")


def checked_task(
    batches: Iterable[pa.RecordBatch], check: SharedStorageCheck, task: ArrowTask
) -> Iterator[pa.RecordBatch]:
    """The batches of a task that starts with the check. Raises `NotSharedError` if it fails."""
    check.check()
    yield from task(batches)


def _read(location: Location, length: int) -> bytes:
    with location.open_input() as stream:
        return bytes(stream.read(length))


def _not_shared(location: Location, what: str) -> NotSharedError:
    return NotSharedError(
        f"{location}: the driver has this file, a task on {socket.gethostname()} {what}; give a store and an output "
        "that every machine of the cluster sees under the same path: a shared mount, or a URI such as s3://bucket/store"
    )


@dataclass(frozen=True)
class LocalTasks:
    """Runs tasks in this process.

    The kernels of this package release Python's lock while they run, and so do reads of files. So threads use all
    cores. No more than `threads` parts run at a time, also of stages that run at the same time: the memory does not
    grow with the number of parts. `stop` ends a job: no other part begins.
    """

    threads: int = field(default_factory=cores)
    on_progress: OnProgress | None = None
    _stopped: threading.Event = field(init=False, default_factory=threading.Event)
    _slots: threading.Semaphore = field(init=False)
    engine: ClassVar = "local"

    def __post_init__(self) -> None:
        object.__setattr__(self, "_slots", threading.Semaphore(self.threads))

    def __reduce__(self) -> tuple[type[LocalTasks], tuple[int]]:
        """Spark sends the writer of a data source to another process, with its tasks."""
        return LocalTasks, (self.threads,)

    def stop(self) -> None:
        """Let no other part begin: each one ends with `KeyboardInterrupt`."""
        self._stopped.set()

    def rows(self, task: ArrowTask, count: int, schema: pa.Schema) -> pa.Table:
        """The rows of a task for the numbers from 0 to `count` - 1, in their order.

        The task can be called several times, each time with some of the numbers in a column `id`. An error of a part
        ends the others before they start.
        """
        if min(self.threads, count) <= 1:
            parts: Iterable[list[pa.RecordBatch]] = (self._part(task, number) for number in range(count))
            return pa.Table.from_batches((batch for part in parts for batch in part), schema)
        with ThreadPoolExecutor(min(self.threads, count)) as executor:
            futures = [executor.submit(self._part, task, number) for number in range(count)]
            try:
                return pa.Table.from_batches((batch for part in map(_awaited, futures) for batch in part), schema)
            finally:
                for future in futures:
                    future.cancel()

    def _part(self, task: ArrowTask, number: int) -> list[pa.RecordBatch]:
        with self._slots:
            if self._stopped.is_set():
                raise KeyboardInterrupt
            return list(task([_numbers(number, number + 1)]))

    def checked(self, check: SharedStorageCheck) -> LocalTasks:
        """These tasks: this process sees what the driver sees, because it is the driver."""
        return self

    def scratch_folders(self) -> list[str]:
        """No folder: rows are sorted in memory, or in the folder of the job."""
        return []


@dataclass(frozen=True)
class SparkTasks:
    """Runs each part as a task of Spark."""

    session: SparkSession
    on_progress: OnProgress | None = None
    check: SharedStorageCheck | None = None
    engine: ClassVar = "spark"

    def rows(self, task: ArrowTask, count: int, schema: pa.Schema) -> pa.Table:
        """The rows of a task for the numbers from 0 to `count` - 1, in their order."""
        return self.of_numbers(count, task, schema).toArrow()

    def of_numbers(self, count: int, task: ArrowTask, schema: pa.Schema) -> DataFrame:
        """What a task returns for the numbers from 0 to `count` - 1, each of which is a task of Spark."""
        return self.of_rows(self.session.range(0, count, 1, count), _NUMBERS, task, schema)

    def of_rows(self, rows: DataFrame, columns: pa.Schema, task: ArrowTask, schema: pa.Schema) -> DataFrame:
        """What a task returns for the partitions of rows that a task made; `columns` are theirs, none of them NULL."""
        from pyspark.sql.pandas.types import from_arrow_schema

        in_pandas = partial(_in_pandas, task=self._checked(task), columns=columns)
        return rows.mapInPandas(in_pandas, from_arrow_schema(schema))

    def of_messages(self, rows: DataFrame, task: ArrowTask, schema: pa.Schema) -> DataFrame:
        """What a task returns for the partitions of a user's rows, whose columns pandas cannot have as they are."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return rows.mapInArrow(self._checked(task), from_arrow_schema(schema))

    def _checked(self, task: ArrowTask) -> ArrowTask:
        return task if self.check is None else partial(checked_task, check=self.check, task=task)

    def checked(self, check: SharedStorageCheck) -> SparkTasks:
        """The same, with a check that each task runs before it starts."""
        return replace(self, check=check)

    def scratch_folders(self) -> list[str]:
        """The folders in which Spark sorts, as far as this process can know them."""
        named = self.session.conf.get("spark.local.dir", None) or os.environ.get("SPARK_LOCAL_DIRS")
        return (named or tempfile.gettempdir()).split(",")


Tasks = LocalTasks | SparkTasks


@dataclass(frozen=True)
class TaskRunner:
    """Runs the stages of a job; `progress` is None if nobody looks."""

    tasks: Tasks
    progress: Progress | None = None

    def each(
        self, name: str, parts: str, items: Iterable[Item], work: Callable[[Item], Result], size: int | None = None
    ) -> list[Result]:
        """What tasks return for the items, in their order; `size` is the bytes that the stage reads, if known."""
        packed = TaskItems.of(items)
        count = len(packed.pickled)
        with self.stage(name, count, parts, size) as done:
            return unpickled(self.tasks.rows(partial(_each_item, items=packed, work=work, done=done), count, RESULTS))

    def stage(
        self, name: str, count: int, parts: str, size: int | None = None
    ) -> AbstractContextManager[Location | None]:
        """A context for a stage, which gives the folder in which tasks mark their parts; None if nobody looks."""
        return nullcontext() if self.progress is None else self.progress.stage(name, count, parts, size)


def _each_item(
    batches: Iterable[pa.RecordBatch], items: TaskItems[Item], work: Callable[[Item], object], done: Location | None
) -> Iterator[pa.RecordBatch]:
    """As a task: numbers of items in, what `work` returns for each out (`RESULTS`)."""
    for item in items.each(batches, done):
        yield from pickled([work(item)])


@dataclass(frozen=True)
class JobContext(TaskRunner):
    """What a job that writes an output works with."""

    committer: OutputCommitter = field(kw_only=True)


def _in_pandas(frames: Iterable[pd.DataFrame], task: ArrowTask, columns: pa.Schema) -> Iterator[pd.DataFrame]:
    """A task for `mapInPandas`: its batches come and go as frames, whose columns have Arrow's types."""
    import pandas as pd

    batches = (pa.RecordBatch.from_pandas(frame, columns, preserve_index=False) for frame in frames)
    for batch in task(batches):
        yield batch.to_pandas(types_mapper=pd.ArrowDtype)
