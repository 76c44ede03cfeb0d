"""What a command's own Spark prints besides results: nothing, if nothing is wrong."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_mq import worker_daemon
from spark_mq.cli.exit_status import INTERRUPTED, INTERRUPTED_LINE
from spark_mq.testing import LogWriter
from tests.support.paused_process import running

OF_THE_JVM = ("WARNING: Using incubator modules: jdk.incubator.vector", "NOTE: Picked up JDK_JAVA_OPTIONS: ")
"""How lines begin that Java prints of its own accord: for an option that Spark gives it, and for one of the tests."""


QUERIES = """
import sys, time
from spark_mq.cli.spark import spark_session

with spark_session("quiet") as spark:
    messages = spark.read.format("rocketmq").option("splitSize", "2m").load(sys.argv[1])
    for _ in range(3):
        print(len(messages.select("body").limit(1).collect()))
    next(messages.select("body").toLocalIterator())

    # What Spark does a minute after it used a worker last.
    environment = spark._jvm.org.apache.spark.SparkEnv.get()
    field = environment.getClass().getDeclaredField("pythonWorkers")
    field.setAccessible(True)
    factories = field.get(environment).values().toSeq()
    factories = [factories.apply(number) for number in range(factories.size())]
    print(len(factories))
    deadline = time.monotonic() + 60
    while not all(factory.idleWorkers().isEmpty() for factory in factories) and time.monotonic() < deadline:
        for factory in factories:
            while not factory.idleWorkers().isEmpty():
                factory.idleWorkers().dequeue().stop()
        time.sleep(0.5)
"""


@pytest.mark.cluster
def test_queries_that_leave_rows_unread_print_nothing_else(tmp_path: Path) -> None:
    log = LogWriter(segment_size=32 << 20)
    for number in range(24):
        log.append(1_795_000_000_000 + number, random.Random(number).randbytes(1 << 20))
    log.write(tmp_path / "store")
    command = [sys.executable, "-c", QUERIES, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if not line.startswith(OF_THE_JVM)] == []
    *counts, factories = done.stdout.splitlines()
    assert (done.returncode, counts) == (0, ["1"] * 3)
    # Of workers that look for the format, make the data source, plan the read, and read.
    assert int(factories) >= 4


@pytest.mark.cluster
def test_ctrl_c_ends_a_query_with_one_line(tmp_path: Path) -> None:
    store = LogWriter(segment_size=4096).write(tmp_path / "store")
    query = "SELECT 'begun' AS a; SELECT sum(a.id * b.id) AS s FROM range(1000000000) a, range(1000000000) b"
    command = [sys.executable, "-m", "spark_mq.cli.main", "sql", query, "--format", "json", "--store", f"s={store}"]
    with running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert "begun" in process.stdout.readline()
        time.sleep(3)  # the second statement is with Spark
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
        out, errors = process.communicate(timeout=60)
    lines = [line for line in errors.splitlines() if not line.startswith(OF_THE_JVM)]
    assert (process.returncode, out, lines) == (INTERRUPTED, "", [INTERRUPTED_LINE])


@pytest.mark.parametrize("closed", [BrokenPipeError(), ConnectionResetError()])
def test_a_socket_that_spark_closed_is_no_error(closed: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sock: socket.socket, authenticated: bool) -> int:
        raise closed

    monkeypatch.setattr(worker_daemon, "_worker", fail)
    with socket.socket() as sock:
        assert worker_daemon.worker(sock, True) == 1


@pytest.mark.parametrize("error", [ImportError("no module"), OSError("no space left"), SystemExit(3)])
def test_any_other_error_of_a_worker_is_seen(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sock: socket.socket, authenticated: bool) -> int:
        raise error

    monkeypatch.setattr(worker_daemon, "_worker", fail)
    with socket.socket() as sock, pytest.raises(type(error)):
        worker_daemon.worker(sock, True)
