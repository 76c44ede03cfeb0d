"""Where the job of a command runs: in threads of this process, or on Spark."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType

import pyarrow as pa

from spark_mq.cli import entry
from spark_mq.cli.exit_status import INTERRUPTED, INTERRUPTED_LINE
from spark_mq.cli.interrupt import handles_interrupt
from spark_mq.cli.output import visible
from spark_mq.cli.progress_printer import ProgressPrinter
from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.job.tasks import ENGINES, LocalTasks, Tasks, cores, spark_tasks

LOCAL, SPARK = ENGINES
_SECONDS_TO_STOP = 3.0
_ARENA_MAX = -8
"""`M_ARENA_MAX` of mallopt(3)."""


def find_engine(arguments: argparse.Namespace, places: Sequence[str | None], only_spark: str = "") -> str:
    """The engine of a job that works on these places, a key of `ENGINES`.

    It is Spark if the user asks for it in any way, if a place is not on this machine's disk, or if there is something
    that `only_spark` can do. Raises `OptionError` if the arguments contradict each other.
    """
    settings = bool(arguments.spark_conf or arguments.packages)
    if arguments.engine == LOCAL:
        if settings:
            raise OptionError("--spark-conf and --packages are for Spark: leave them out, or --engine local")
        if only_spark:
            raise OptionError(f"{only_spark} needs Spark: leave out --engine local")
        return LOCAL
    from spark_mq.cli.spark import is_launched

    asked = arguments.engine == SPARK or settings or is_launched() or "SPARK_REMOTE" in os.environ
    is_remote = any(not Location.resolve(place).is_local for place in places if place is not None)
    if not (asked or is_remote or only_spark):
        return LOCAL
    if arguments.cores is not None:
        raise OptionError("--cores has no effect on Spark: give --spark-conf spark.master=local[N], or --engine local")
    return SPARK


@contextmanager
def job_tasks(
    command: str,
    arguments: argparse.Namespace,
    engine: str,
    kernels: Sequence[str],
    settings: Callable[[], Mapping[str, str]] = dict,
    hint: Callable[[], str] = str,
    before: str = "",
) -> Iterator[Tasks]:
    """A context with the tasks of a command that prints its progress, after the line `before`.

    The `hint` is what the user can do after Ctrl-C. `kernels` are the modules that are compiled while a JVM starts.
    """
    with ProgressPrinter(is_quiet=arguments.quiet) as progress:
        if before and not arguments.quiet:
            print(before, file=sys.stderr, flush=True)
        if engine == LOCAL:
            if entry.owns_process:
                _leave_out_pandas()
                _share_memory()
            tasks = LocalTasks(arguments.cores or cores(), progress)
            with _stopped_by_interrupt(tasks, hint):
                yield tasks
            return
        from spark_mq.cli.spark import given_settings, spark_errors, spark_session

        progress.announce("starting Spark")
        given = given_settings(arguments)
        name = f"spark-mq {command}"
        with (
            spark_errors(),
            spark_session(name, settings=settings, given=given, hint=hint, kernels=kernels) as spark,
            spark_tasks(spark) as of_spark,
        ):
            yield replace(of_spark, on_progress=progress)


class _NoPandas:
    """A finder of modules for which pandas is not installed."""

    @staticmethod
    def find_spec(name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _leave_out_pandas() -> None:
    """Let pyarrow not import pandas in this process, as it does at its first array, in 0.3 s of a processor.

    It only asks whether a value is an object of pandas, and no job in threads has one.
    """
    sys.meta_path.insert(0, _NoPandas)
    pa.array([0])
    sys.meta_path.remove(_NoPandas)


def _share_memory() -> None:
    """Let each thread use the memory that another one freed: the operating system would have to clear other memory."""
    from spark_mq.format.array_types import keep_freed_memory

    with suppress(AttributeError):  # of a C library that has other functions
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    keep_freed_memory()


@contextmanager
def _stopped_by_interrupt(tasks: LocalTasks, hint: Callable[[], str]) -> Iterator[None]:
    """A context in which Ctrl-C lets no other part of a job begin, and the job end with `KeyboardInterrupt(hint)`.

    Parts that run are finished, and temporary files removed, in `_SECONDS_TO_STOP`; then the process ends in any case,
    and so it does at a second Ctrl-C. So only a command that can be killed at any moment may use it.
    """

    def end(*_: object) -> None:
        print(f"{INTERRUPTED_LINE}{visible(hint())}", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)

    timer, exit_timer = (threading.Timer(_SECONDS_TO_STOP, *how) for how in ((end,), (os._exit, [INTERRUPTED])))
    timer.daemon = exit_timer.daemon = True

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, end)
        tasks.stop()
        timer.start()
        raise KeyboardInterrupt

    try:
        with handles_interrupt(stop):
            yield
    except KeyboardInterrupt as interrupt:
        if entry.owns_process:  # at its end, Python waits for threads that the interrupted one no longer waits for
            exit_timer.start()
        raise KeyboardInterrupt(hint()) from interrupt
    finally:
        timer.cancel()
