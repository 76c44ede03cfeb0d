"""Sail as the engine of queries: a Spark Connect server in Rust, on this machine, without Java.

Sail reads the tables, and makes look-ups; it neither streams nor writes: docs/where-it-runs.md has the differences. It
is the package pysail, the extra `sail`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec

from pyspark.sql import SparkSession

from spark_mq._compat import TIME_ZONE
from spark_mq.datasource import register
from spark_mq.errors import OptionError, SparkNotReachedError, UnsupportedSparkError

_PREFIX = "spark.sql."
"""How settings of queries begin. Sail takes any other setting of Spark, too, and does nothing with it."""


def sail_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A new session of Sail, in which the format `rocketmq` and `rocketmq_lookup` are registered.

    The server takes all cores of this machine, and ends with this process. The time zone of the session is, as with
    Spark, that of this machine, unless the settings name another one. After a change of it, call `register` again.

    Args:
        settings: Settings of Spark whose names begin with `spark.sql.`.

    Returns:
        A session of Spark Connect. `stop` ends the session, not the server.

    Raises:
        OptionError: A setting is not one of Spark SQL.
        UnsupportedSparkError: A session of Spark runs in this process already.
        SparkNotReachedError: The server did not start.
        ModuleNotFoundError: pysail is not installed: `pip install 'spark-mq[sail]'`.

    Examples:
        >>> spark = spark_mq.sail_session()
        >>> spark_mq.sql(spark, "SELECT max(queue_offset) FROM messages", stores={"prod": "/data/store"}).show()
    """
    for name in settings or {}:
        if not name.startswith(_PREFIX):
            raise OptionError(f"setting {name} has no effect on Sail: only those that begin with {_PREFIX} have")
    if (active := SparkSession.getActiveSession()) is not None and hasattr(active, "sparkContext"):
        raise UnsupportedSparkError("a session of Spark runs in this process: stop it, or use Sail in another process")
    spark = SparkSession.builder.remote(sail_server()).create()
    for name, value in {TIME_ZONE: _local_zone(), **(settings or {})}.items():
        spark.conf.set(name, value)
    register(spark)
    return spark


@cache
def sail_server() -> str:
    """The address of the one server of this process, which starts if it does not run; it only listens to this machine.

    The server is a process of its own. A task whose rows nobody takes holds Python's lock (Sail 0.7.2): in one process
    with its client, neither Ctrl-C nor any other thread would go on.
    """
    if find_spec("pysail") is None:
        raise ModuleNotFoundError("No module named 'pysail': pip install 'spark-mq[sail]'", name="pysail")
    server = subprocess.Popen(
        [sys.executable, "-c", "from spark_mq.sail import serve; serve()"],
        env={"RUST_LOG": "error", **os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for this process
        text=True,
    )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    if not address:
        raise SparkNotReachedError("Sail did not start: the lines before say why")
    return address


def serve() -> None:
    """Serve until stdin ends, which it does with the process that started this one; the first line is the address."""
    import fcntl

    from pysail.spark import SparkConnectServer

    # The system ends the process then, by SIGIO: Python itself may be locked.
    fcntl.fcntl(sys.stdin, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(sys.stdin, fcntl.F_SETFL, fcntl.fcntl(sys.stdin, fcntl.F_GETFL) | os.O_ASYNC)
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    host, port = server.listening_address
    print(f"sc://{host}:{port}", flush=True)
    sys.stdin.read()


def _local_zone() -> str:
    named = os.environ.get("TZ", "").lstrip(":")
    return named or os.path.realpath("/etc/localtime").partition("zoneinfo/")[2] or "UTC"
