"""Spark for a notebook: the session, without the lines that Java and Spark print when they start."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.warehouse.dir": f"{tempfile.gettempdir()}/spark-warehouse",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # A cell that ends with a DataFrame shows its rows.
    "spark.sql.repl.eagerEval.enabled": "true",
    "spark.sql.repl.eagerEval.truncate": "40",
}
_log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (the Java process writes to it until it ends)


def start(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A Spark session in this process, with times in UTC. `log` returns what Java and Spark print.

    Args:
        name: The name of the Spark application.
        settings: More settings of Spark.

    Raises:
        RuntimeError: Spark cannot start. The error shows the end of the log.

    """
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers run with this notebook's Python
    builder = SparkSession.builder.appName(name)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        with _errors_to(_log):
            return builder.getOrCreate()
    except Exception as error:
        raise RuntimeError(f"Spark cannot start: {error}\n{log()[-2000:]}") from error


def log() -> str:
    """What Java and Spark have printed since they started."""
    _log.seek(0)
    return _log.read().decode(errors="replace")


@contextmanager
def _errors_to(file: IO[bytes]) -> Iterator[None]:
    """A context in which a process that starts gets `file` as its standard error."""
    own = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
