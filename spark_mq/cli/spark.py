"""The Spark session of a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """The session that spark-submit or `SPARK_REMOTE` set up, or else one in this process on all of its cores."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if not _is_launched():
        # Workers, and the process in which Spark looks for data sources, need this interpreter's packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for key, value in _own_settings().items():
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _own_settings() -> dict[str, str]:
    """Spark in this process: all cores, no web page, and only errors on the terminal."""
    logging = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.master": "local[*]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _is_launched() -> bool:
    """Whether somebody else decides about the session: spark-submit, or a Spark Connect address."""
    return "SPARK_REMOTE" in os.environ or "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
