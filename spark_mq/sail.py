"""Sail as the engine of queries: a Spark Connect server in Rust, in this process, without Java.

Sail reads the tables, and makes look-ups; it neither streams nor writes: docs/where-it-runs.md has the differences. It
is the package pysail, the extra `sail`.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from spark_mq._compat import TIME_ZONE
from spark_mq.datasource import register
from spark_mq.errors import OptionError, UnsupportedSparkError

if TYPE_CHECKING:
    from pysail.spark import SparkConnectServer

_PREFIX = "spark.sql."
"""How settings of queries begin. Sail takes any other setting of Spark, too, and does nothing with it."""


def sail_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A new session of Sail, in which the format `rocketmq` and `rocketmq_lookup` are registered.

    The server is in this process, on all cores, and ends with it. The time zone of the session is, as with Spark, that
    of this machine, unless the settings name another one. After a change of the time zone, call `register` again.

    Args:
        settings: Settings of Spark whose names begin with `spark.sql.`.

    Returns:
        A session of Spark Connect. `stop` ends the session, not the server.

    Raises:
        OptionError: A setting is not one of Spark SQL.
        UnsupportedSparkError: A session of Spark runs in this process already.
        ModuleNotFoundError: pysail is not installed: `pip install 'spark-mq[sail]'`.

    Example:
        >>> spark = spark_mq.sail_session()
        >>> spark_mq.sql(spark, "SELECT max(queue_offset) FROM messages", stores={"prod": "/data/store"}).show()
    """
    for name in settings or {}:
        if not name.startswith(_PREFIX):
            raise OptionError(f"setting {name} has no effect on Sail: only those that begin with {_PREFIX} have")
    if (active := SparkSession.getActiveSession()) is not None and hasattr(active, "sparkContext"):
        raise UnsupportedSparkError("a session of Spark runs in this process: stop it, or use Sail in another process")
    host, port = sail_server().listening_address
    spark = SparkSession.builder.remote(f"sc://{host}:{port}").create()
    for name, value in {TIME_ZONE: _local_zone(), **(settings or {})}.items():
        spark.conf.set(name, value)
    register(spark)
    return spark


@cache
def sail_server() -> SparkConnectServer:
    """The one server of this process, which starts if it does not run: on a free port, for this machine alone."""
    os.environ.setdefault("RUST_LOG", "error")  # Sail prints each start of a session otherwise
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    atexit.register(server.stop)  # a server that Python's end finds running aborts the process
    return server


def _local_zone() -> str:
    """The name of this machine's time zone."""
    named = os.environ.get("TZ", "").lstrip(":")
    return named or os.path.realpath("/etc/localtime").partition("zoneinfo/")[2] or "UTC"
