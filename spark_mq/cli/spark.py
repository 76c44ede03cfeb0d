"""The Spark session of a command, also one with Delta Lake, and what is known of it before it starts.

While the JVM starts, kernels are compiled. What spark-submit prints about packages is shown only if it cannot get them.

spark-submit gets the packages of a session (Ivy) before the JVM can be asked for anything, and prints some twenty lines
about that on stderr. So the JVM's stderr is a pipe: its lines are held back until the JVM has started, and then those
about packages are left out. Everything that the JVM prints later is passed on at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spark_mq.cli.interrupt import ends_on_interrupt, interrupts_later
from spark_mq.cli.output import say, visible
from spark_mq.errors import (
    OptionError,
    PackagesNotFetchedError,
    SparkMqError,
    SparkNotReachedError,
    UnsupportedSparkError,
)
from spark_mq.io.s3 import is_s3, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NO_FILESYSTEM = re.compile(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found")
_SETTINGS_OF_CATALOGS = ("catalog", "extensions", "warehouse", "hive", "metastore")
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers with which PySpark prints every error that it raises, as JSON."""
_IDENTIFIER = re.compile(r'Identifier\("([^"]*)"\)')
_JAVA_ERROR = re.compile(r"^: (.+)", re.MULTILINE)
"""The line of Py4J's message that names the exception of the JVM."""
_SECONDS_TO_REACH_A_SERVER = 20.0
_PACKAGES = "spark.jars.packages"
_LISTS = (_PACKAGES, "spark.jars.excludes")
"""Settings whose values are lists, which add up."""
_STDERR = 2
_CHUNK = 64 << 10
_FIRST_LINE = ":: loading settings ::"
_LAST_LINE = re.compile(r"\s*\d+ artifacts copied, \d+ already retrieved")
_DOWNLOAD = re.compile(r"^downloading ", re.MULTILINE)
_OF_JAVA = re.compile(
    "WARNING: Using incubator modules:|NOTE: Picked up JDK_JAVA_OPTIONS:|Picked up JAVA_TOOL_OPTIONS:"
)
"""How lines begin that Java prints of its own accord, once for each JVM: spark-submit starts two."""
_START_ERROR = re.compile(r'^Exception in thread "main" (?:[\w.$]+: )?(.*)', re.MULTILINE)
_SERVER_ERROR = re.compile(r"Server access error at url \S+ \((.*?)\)\s*$", re.MULTILINE)
_FAILED = re.compile(r"unresolved dependency|download failed")
_COMPILE = "import sys; from spark_mq.format.kernels.kernel import compile_kernels; compile_kernels(sys.argv[1:])"
_NOT_COORDINATES = "Maven Coordinates must be in the form"
HINT = (
    "Check the coordinates, and that Maven Central can be reached. For a mirror, give --spark-conf "
    "spark.jars.repositories=URL; for a proxy, set JDK_JAVA_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; "
    "without a network, give the jars themselves: --spark-conf spark.jars=FILE,..."
)


def delta_session_settings(given: Mapping[str, str], *tables: str) -> dict[str, str]:
    """The settings of a session with Delta Lake, and S3 for a table there, without packages that the user gives."""
    from spark_mq.archive.delta import delta_settings, s3_packages

    settings = delta_settings()
    if "delta-spark" in given.get("spark.jars", ""):
        del settings["spark.jars.packages"]
    has_s3 = any("hadoop-aws" in given.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
    if any(map(is_s3, tables)) and not has_s3:
        settings = joined_settings(settings, s3_packages())
    return settings


def is_on_server() -> bool:
    """Whether the session is on a Spark Connect server, which sees the stores under paths of its own."""
    return not os.environ.get("SPARK_REMOTE", "local").startswith("local")


def has_empty_catalog(settings: Mapping[str, str]) -> bool:
    """Whether the session certainly has no tables and no databases when it starts.

    A session that starts in this process has a catalog in memory, unless settings give it another one.
    """
    if is_launched() or "PYSPARK_SUBMIT_ARGS" in os.environ:
        return False
    if any(word in name.lower() for name in settings for word in _SETTINGS_OF_CATALOGS):
        return False
    return not any(
        (folder / file).exists() for folder in _conf_folders() for file in ("spark-defaults.conf", "hive-site.xml")
    )


def _conf_folders() -> list[Path]:
    folders = [Path(os.environ[name]) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR") if name in os.environ]
    try:
        from pyspark.find_spark_home import _find_spark_home

        home = _find_spark_home()
    except (ImportError, SystemExit):  # it ends the process if it finds nothing
        return folders
    return [*folders, Path(home) / "conf"]


@contextmanager
def spark_session(
    name: str,
    settings: Callable[[], Mapping[str, str]] = dict,
    given: Mapping[str, str] | None = None,
    hint: Callable[[], str] = str,
    kernels: Sequence[str] | None = (),
) -> Iterator[SparkSession]:
    """A context with a Spark session: that of spark-submit or `SPARK_REMOTE`, else one in this process on all cores.

    The session ends with the context. `SPARK_REMOTE=local` also runs in this process, through a Spark Connect server.
    Within, Ctrl-C ends the process: see `ends_on_interrupt`.

    `settings` and the user's `given` ones are for a session in this process: one elsewhere must have them already. The
    `hint` is what the user can do after Ctrl-C. `kernels` are the modules that are compiled while a JVM starts: all if
    empty, none if None.
    """
    from pyspark.sql import SparkSession
    from pyspark.util import is_remote_only

    with ExitStack() as stack:
        with spark_errors():
            _reach_server(os.environ.get("SPARK_REMOTE", ""))
            joined = joined_settings(settings(), given or {}) if not is_launched() else {}
            if not is_launched():
                _set_up(joined)
            elif given:
                raise OptionError(
                    "--spark-conf and --packages have no effect on a session that is set up elsewhere: give them to "
                    "spark-submit (--conf, --packages), or to the Spark Connect server"
                )
            with interrupts_later():
                if not is_launched() and "SPARK_REMOTE" not in os.environ and not is_remote_only():
                    if kernels is not None:
                        compile_in_background(kernels)
                    start_jvm(joined.get(_PACKAGES, ""))
                spark = SparkSession.builder.appName(name).getOrCreate()
                stack.enter_context(ends_on_interrupt(spark, hint))
        stack.callback(spark.stop)
        yield spark


@contextmanager
def sail_session(arguments: argparse.Namespace) -> Iterator[SparkSession]:
    """A context with a session of Sail; Ctrl-C is handled as in `spark_session`."""
    if is_launched() or arguments.packages is not None:
        other = "--packages" if arguments.packages is not None else "SPARK_REMOTE or spark-submit"
        raise OptionError(f"--engine sail and {other} exclude each other: Sail runs on this machine, and has no JVM")
    from spark_mq import sail

    with spark_errors(), interrupts_later():
        spark = sail.sail_session(given_settings(arguments))
    with spark_errors(), ends_on_interrupt(spark, seconds=1.0):  # its server ends with this process
        yield spark
    spark.stop()


@contextmanager
def delta_session(
    name: str, given: Mapping[str, str], tables: Sequence[str], kernels: Sequence[str] | None = ()
) -> Iterator[SparkSession]:
    """A context with a session that can open archives, whose tables and checkpoints are named; errors are one line."""
    settings = partial(delta_session_settings, given, *tables)
    with _known_filesystem(tables[0]), spark_errors(), spark_session(name, settings, given, kernels=kernels) as spark:
        yield spark


@contextmanager
def _known_filesystem(table: str) -> Iterator[None]:
    """A context in which an error about a missing filesystem of the table's URI names the remedy."""
    try:
        yield
    except SparkMqError as error:
        if not _NO_FILESYSTEM.search(str(error)):
            raise
        scheme = table.partition(":")[0]
        raise UnsupportedSparkError(
            f"{shown(table)}: this Spark has no filesystem for {scheme}: ({error}). For S3, give the library to "
            "spark-submit or to the Spark Connect server: --packages org.apache.hadoop:hadoop-aws:VERSION, where "
            "VERSION is that of Spark's Hadoop jars"
        ) from error


def given_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings of Spark that the user gave: those of `--spark-conf`, and `--packages`."""
    settings = dict(arguments.spark_conf)
    return joined_settings(settings, {} if arguments.packages is None else {_PACKAGES: arguments.packages})


def joined_settings(settings: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Both settings; of a setting in both, the value of `more`, except that packages and excluded packages add up."""
    both = {name: ",".join([settings[name], more[name]]) for name in _LISTS if name in settings and name in more}
    return {**settings, **more, **both}


def _set_up(settings: Mapping[str, str]) -> None:
    # Workers, and the process in which Spark looks for data sources, need this interpreter's packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # As arguments, because a Spark Connect session refuses settings of its own process.
    own = {**_own_settings(), **settings}
    arguments = [f"--conf {shlex.quote(f'{key}={value}')}" for key, value in own.items()]
    given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*arguments, given])


def _reach_server(remote: str) -> None:
    """Wait until the server at `sc://...` answers, at most 20 seconds: Spark's client would retry silently for ever."""
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
def spark_errors() -> Iterator[None]:
    """A context that turns errors of Spark, and of tasks within Spark, into a `SparkMqError` of one line."""
    from spark_mq._compat import SPARK_ERRORS
    from spark_mq.job.task_errors import parse_task_error

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    except SPARK_ERRORS as error:
        text = _text_of_sail(error)
        own_error = parse_task_error(text)
        java_errors = _JAVA_ERROR.findall(text) or [text.partition("\n")[0]]
        raise SparkMqError(visible(java_errors[-1] if own_error is None else str(own_error))) from error


def _text_of_sail(error: Exception) -> str:
    """The text of an error. Sail's can be the name of what it lacks, or have names of its parser's classes (0.7.2)."""
    from pyspark.errors import UnsupportedOperationException

    text = str(error).strip()
    if isinstance(error, UnsupportedOperationException) and not text.startswith("["):
        return f"the server does not support this: {text}"
    if text.startswith("attribute ObjectName("):
        return f"there is no column {'.'.join(_IDENTIFIER.findall(text))}; DESCRIBE TABLE lists the columns"
    return text


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


def is_launched() -> bool:
    """Whether the session is set up elsewhere: by spark-submit, or on a Spark Connect server."""
    return is_on_server() or "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def start_jvm(packages: str) -> None:
    """Start the JVM of this process's Spark, if it does not run yet."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    reader, writer = os.pipe()
    errors = _Errors(packages)
    threading.Thread(target=errors.pass_on, args=(reader,), daemon=True).start()
    try:
        gateway = launch_gateway(popen_kwargs={"stderr": writer})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        os.close(writer)
        errors.ended.wait()
        if _NOT_COORDINATES in errors.text:
            raise OptionError(f"packages {packages!r}: each must be GROUP:ARTIFACT:VERSION") from error
        problem = package_problem(errors.text)
        if problem is not None:
            raise PackagesNotFetchedError(f"Spark cannot get {packages}: {visible(problem)}. {HINT}") from error
        errors.release()
        raise
    os.close(writer)
    errors.release()
    SparkContext._ensure_initialized(gateway=gateway)


class _Errors:
    """What a JVM prints on its stderr: held back until `release`, and then passed on."""

    def __init__(self, packages: str) -> None:
        self.ended = threading.Event()
        self._packages = packages
        self._lock = threading.Lock()
        self._held = b""
        self._is_held = True
        self._is_told = False

    @property
    def text(self) -> str:
        """What was held back."""
        return self._held.decode(errors="replace")

    def pass_on(self, reader: int) -> None:
        """Read until the JVM ends."""
        while chunk := os.read(reader, _CHUNK):
            with self._lock:
                if self._is_held:
                    self._held += chunk
                    if not self._is_told and _DOWNLOAD.search(self.text):  # it can take minutes
                        self._is_told = True
                        say(f"downloading {self._packages} and what it needs")
                else:
                    _write(chunk)
        os.close(reader)
        self.ended.set()

    def release(self) -> None:
        """Print the held lines that are not about packages, and hold nothing back from now on."""
        with self._lock:
            self._is_held = False
            _write("".join(f"{line}\n" for line in other_lines(self.text)).encode())


def other_lines(text: str) -> list[str]:
    """The lines that a starting JVM printed, without those about packages that it could get."""
    lines, is_about_packages = [], False
    for line in text.splitlines():
        if line.startswith(_FIRST_LINE):
            is_about_packages = True
        if not is_about_packages and not _OF_JAVA.match(line):
            lines.append(line)
        if _LAST_LINE.match(line):
            is_about_packages = False
    return lines


def package_problem(text: str) -> str | None:
    """Why a JVM that did not start could not get a package; None if it has another problem."""
    errors = [error for error in _START_ERROR.findall(text) if _FAILED.search(error)]
    if not errors:
        return None
    server_errors = list(dict.fromkeys(_SERVER_ERROR.findall(text)))
    return "; ".join([errors[0], *server_errors])


def _write(content: bytes) -> None:
    with suppress(OSError):  # stderr may be closed
        while content:
            content = content[os.write(_STDERR, content) :]


def compile_in_background(modules: Sequence[str] = ()) -> None:
    """Start a process that compiles kernels, if some are missing in the cache.

    A JVM takes seconds to start, and uses one core. A task that needs a kernel in the meantime waits for it, or
    compiles another one.
    """
    from spark_mq.format.kernels.cache import cache_folder, is_compiled

    if not is_compiled(modules) and cache_folder() is not None and "NUMBA_DISABLE_JIT" not in os.environ:
        threading.Thread(target=_compile_elsewhere, args=(modules,), daemon=True).start()


def _compile_elsewhere(modules: Sequence[str]) -> None:
    with suppress(OSError):
        subprocess.run(
            [sys.executable, "-c", _COMPILE, *modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C ends the command; the kernels are there for the next one
            check=False,
        )
