"""The Spark session of a command."""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from spark_mq.cli.output import visible
from spark_mq.errors import OptionError, SparkMqError, SparkNotReachedError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers with which PySpark prints every error that it raises, as JSON."""
_JAVA_ERROR = re.compile(r"^: (.+)", re.MULTILINE)
"""The line of Py4J's message that names the exception of the JVM."""
_SECONDS_TO_REACH_A_SERVER = 20.0
_PY4J_MODULE = "java_gateway"
_SECONDS_TO_CANCEL = 5.0
_SECONDS_TO_END_SPARK = 20.0


@contextmanager
def spark_session(
    name: str, settings: Callable[[], Mapping[str, str]] = dict, ends_on_interrupt: bool = False
) -> Iterator[SparkSession]:
    """A context with a Spark session: that of spark-submit or `SPARK_REMOTE`, else one in this process on all cores.

    The session ends with the context. `SPARK_REMOTE=local` also runs in this process, through a Spark Connect server.

    Args:
        name: The name of the Spark application.
        settings: Returns settings for a session in this process. A session elsewhere must have them already.
        ends_on_interrupt: After Ctrl-C nothing else is asked of the session, so its JVM prints nothing more.

    Yields:
        The session.

    Raises:
        OptionError: `SPARK_REMOTE` is not a valid address.
        SparkNotReachedError: No server answers at `SPARK_REMOTE`.
        SparkMqError: Spark cannot start.

    """
    from pyspark.sql import SparkSession

    with spark_errors():
        _reach_server(os.environ.get("SPARK_REMOTE", ""))
        if not _is_launched():
            # Workers, and the process in which Spark looks for data sources, need this interpreter's packages.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            own = {**_own_settings(), **settings()}
            # As arguments, because a Spark Connect session refuses settings of its own process.
            arguments = [f"--conf {shlex.quote(f'{key}={value}')}" for key, value in own.items()]
            given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
            os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*arguments, given])
        with _interrupts_later():
            spark = SparkSession.builder.appName(name).getOrCreate()
            interrupted = _cancel_on_interrupt(ends_on_interrupt)
    try:
        yield spark
    except BaseException as error:
        # What was going on when Ctrl-C came can end with an error of its own, of the job that was cancelled.
        if interrupted.is_set() or isinstance(error, KeyboardInterrupt):
            _end_at_once(spark)
            raise KeyboardInterrupt from error
        spark.stop()
        raise
    spark.stop()


def _reach_server(remote: str) -> None:
    """Wait until the Spark Connect server at the address `remote` answers; another `SPARK_REMOTE` is not waited for.

    Raises `SparkNotReachedError` after 20 seconds: Spark's own client would retry silently for ever.
    """
    if not remote.startswith("sc://"):
        return
    # If a package is missing, the command prints what to install.
    import grpc  # type: ignore[import-untyped]
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    try:
        builder = DefaultChannelBuilder(remote)
        channel = builder.toChannel()
    except ValueError as error:
        raise OptionError(f"SPARK_REMOTE={remote} is not the address of a Spark Connect server: {error}") from error
    try:
        grpc.channel_ready_future(channel).result(timeout=_SECONDS_TO_REACH_A_SERVER)
    except grpc.FutureTimeoutError as error:
        raise SparkNotReachedError(
            f"no Spark Connect server answers at {builder.endpoint} within {_SECONDS_TO_REACH_A_SERVER:.0f} seconds "
            "(SPARK_REMOTE): check host and port, and that the server runs"
        ) from error
    finally:
        channel.close()


@contextmanager
def _interrupts_later() -> Iterator[None]:
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


def _cancel_on_interrupt(is_end: bool) -> threading.Event:
    """Let Ctrl-C cancel all jobs of a Spark in this process, and then raise `KeyboardInterrupt`; the event says so.

    PySpark's own handler calls the JVM on the connection on which the interrupted call may be waiting. Then Py4J prints
    a traceback, and nothing is cancelled. A thread has its own connection.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        return interrupted
    with suppress(ImportError):  # pyspark-client
        from pyspark import SparkContext

        context = getattr(SparkContext, "_active_spark_context", None)
        if context is None:
            return interrupted

        def interrupt(number: int, frame: FrameType | None) -> None:
            interrupted.set()
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
            cancelling = threading.Thread(target=_cancel, args=(context, is_end), daemon=True)
            cancelling.start()
            cancelling.join(_SECONDS_TO_CANCEL)
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupt)
        # Py4J logs the interrupt with a traceback: on its own logger, and on the root logger.
        logging.getLogger().addFilter(lambda record: record.module != _PY4J_MODULE)
    return interrupted


def _cancel(context: SparkContext, is_end: bool) -> None:
    with suppress(Exception):  # Spark may be ending
        if is_end:
            # What the tasks that are cancelled would print: the JVM's log, and tracebacks of its Python workers.
            context._jvm.java.lang.System.err.close()  # type: ignore[union-attr]
        context.cancelAllJobs()


def _end_at_once(spark: SparkSession) -> None:
    """End an interrupted session without printing anything.

    The interrupt may have stopped a call to the JVM half-way, and later calls cannot be trusted. So a JVM of this
    process is stopped by closing its standard input. On a server, the session's queries are cancelled.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ImportError):
        from pyspark import SparkContext

        accumulators = getattr(getattr(SparkContext, "_active_spark_context", None), "_accumulatorServer", None)
        if accumulators is not None:  # its thread prints a traceback when the JVM closes the connection
            accumulators.handle_error = lambda *_: None
        process = getattr(getattr(SparkContext, "_gateway", None), "proc", None)
        if process is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_END_SPARK)
            return
    with suppress(Exception):
        spark.interruptAll()
        spark.stop()


@contextmanager
def spark_errors() -> Iterator[None]:
    """A context that turns errors of Spark, and of tasks within Spark, into a `SparkMqError` of one line."""
    from spark_mq._compat import SPARK_ERRORS
    from spark_mq.job.task_errors import parse_task_error

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    except SPARK_ERRORS as error:
        text = str(error).strip()
        own_error = parse_task_error(text)
        java_errors = _JAVA_ERROR.findall(text) or [text.partition("\n")[0]]
        raise SparkMqError(visible(java_errors[-1] if own_error is None else str(own_error))) from error


def _own_settings() -> dict[str, str]:
    """Settings of a Spark in this process: all cores, no port that others can reach, only errors on the terminal."""
    logging = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.master": "local[*]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        # Both settings prevent tracebacks of workers that did nothing wrong: see `worker_daemon`.
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.python.daemon.module": "spark_mq.worker_daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _is_launched() -> bool:
    """Whether the session is set up elsewhere: by spark-submit, or on a Spark Connect server."""
    is_elsewhere = not os.environ.get("SPARK_REMOTE", "local").startswith("local")
    return is_elsewhere or "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
