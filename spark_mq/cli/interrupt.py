"""Ctrl-C while Spark works: one line on stderr, and the exit status that shells know.

PySpark's own handler calls the JVM on the connection on which the interrupted call may be waiting: Py4J then prints a
traceback, and nothing is cancelled. A thread has its own connection, so the handlers here use one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from spark_mq.cli.exit_status import INTERRUPTED, INTERRUPTED_LINE
from spark_mq.cli.output import visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS_TO_END_SPARK = 20.0
"""How long Spark may take to stop. A second Ctrl-C does not wait."""
_SECONDS_TO_CANCEL = 5.0

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def interrupts_later() -> Iterator[None]:
    """A context that delays Ctrl-C until its end, and whose child processes never get the signal.

    So Ctrl-C cannot arrive after the JVM has started and before this process can stop it.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ends_on_interrupt(
    spark: SparkSession, hint: Callable[[], str] = str, seconds: float = _SECONDS_TO_END_SPARK
) -> Iterator[None]:
    """A context in which Ctrl-C stops Spark quietly, and ends the process with one line and exit status 130.

    Only a command that can be killed at any moment may use it, because no `finally` block runs.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        line = visible(INTERRUPTED_LINE + hint())
        line = f"\n{line}\n" if sys.stderr.isatty() else f"{line}\n"
        # It is the last one: threads of this process still run, and show progress.
        own, nowhere = os.dup(sys.stderr.fileno()), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.write(own, line.encode(errors="backslashreplace"))
        # A Spark that stops with work left logs a stack trace for each task.
        _in_thread([_mute, _stop_streams, _cancel, lambda spark: spark.stop()], spark, seconds)
        os._exit(INTERRUPTED)

    with handles_interrupt(end):
        yield


@contextmanager
def cancels_on_interrupt(spark: SparkSession) -> Iterator[None]:
    """A context in which Ctrl-C cancels the session's jobs, and raises `KeyboardInterrupt`: for a prompt."""
    # Py4J logs the interrupt with a traceback: on its own logger, and on the root logger.
    py4j, root = logging.getLogger("py4j"), logging.getLogger()
    level = py4j.level

    def cancel(number: int, frame: FrameType | None) -> None:
        _in_thread([_cancel], spark, _SECONDS_TO_CANCEL)
        raise KeyboardInterrupt

    def is_not_of_py4j(record: logging.LogRecord) -> bool:
        return record.module != "java_gateway"

    py4j.setLevel(logging.CRITICAL)
    root.addFilter(is_not_of_py4j)
    try:
        with handles_interrupt(cancel):
            yield
    finally:
        py4j.setLevel(level)
        root.removeFilter(is_not_of_py4j)


@contextmanager
def handles_interrupt(handler: Handler) -> Iterator[None]:
    """A context with a handler of Ctrl-C. A thread cannot set one: there, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_thread(steps: list[Callable[[SparkSession], None]], spark: SparkSession, seconds: float) -> None:
    """Take the steps, each even if an earlier one fails, and wait at most this time."""

    def work() -> None:
        for step in steps:
            with suppress(Exception):  # the session may be ending
                step(spark)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


def _mute(spark: SparkSession) -> None:
    """Close the stderr of this process's JVM, which also prints the tracebacks of Python workers."""
    if hasattr(spark, "sparkContext"):  # a session of Spark Connect has none
        spark.sparkContext._jvm.java.lang.System.err.close()  # type: ignore[union-attr]


def _stop_streams(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()


def _cancel(spark: SparkSession) -> None:
    """Cancel all jobs of this process's Spark, or all queries of the session on a server."""
    if hasattr(spark, "sparkContext"):
        spark.sparkContext.cancelAllJobs()
    else:
        spark.interruptAll()
