"""The Spark session of a command."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from spark_mq.cli.output import visible
from spark_mq.errors import SparkMqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark that print as JSON the errors that it raises."""
_JAVA_ERROR = re.compile(r"^: (.+)", re.MULTILINE)
"""The line of Py4J's message that has the exception of the JVM."""
_OWN_ERROR = re.compile(r"spark_mq\.errors\.\w+: (.+)")


@contextmanager
def spark_session(name: str, settings: Callable[[], Mapping[str, str]] = dict) -> Iterator[SparkSession]:
    """The session that spark-submit or `SPARK_REMOTE` set up, or else one in this process on all of its cores.

    `settings` gives those of the latter; whoever sets up the session elsewhere gives it what the job needs.
    `SPARK_REMOTE=local` is in this process too, behind a Spark Connect server.
    """
    from pyspark.sql import SparkSession

    if not _is_launched():
        # Workers, and the process in which Spark looks for data sources, need this interpreter's packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        own = {**_own_settings(), **settings()}
        # As arguments, for a Spark Connect session refuses settings of the process that it is in.
        arguments = [f"--conf {shlex.quote(f'{key}={value}')}" for key, value in own.items()]
        given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*arguments, given])
    spark = SparkSession.builder.appName(name).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Make Spark's errors, and those that tasks raised within Spark, a `SparkMqError` of one line."""
    from spark_mq._compat import SPARK_ERRORS

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    except SPARK_ERRORS as error:
        text = str(error).strip()
        found = _OWN_ERROR.findall(text) or _JAVA_ERROR.findall(text) or [text.partition("\n")[0]]
        raise SparkMqError(visible(found[-1])) from error


def _own_settings() -> dict[str, str]:
    """Spark in this process: all cores, nothing that others can reach, and only errors on the terminal."""
    logging = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.master": "local[*]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        # Two things against tracebacks of workers that did nothing wrong: see `worker_daemon`.
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.python.daemon.module": "spark_mq.worker_daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _is_launched() -> bool:
    """Whether somebody else decides about the session: spark-submit, or a Spark Connect server elsewhere."""
    is_elsewhere = not os.environ.get("SPARK_REMOTE", "local").startswith("local")
    return is_elsewhere or "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
