"""What a command's own Spark prints besides results: nothing, if nothing is wrong."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spark_mq import worker_daemon
from tests.support.log_writer import LogWriter

OF_THE_JVM = "WARNING: Using incubator modules: jdk.incubator.vector"
"""What Java prints of its own accord when Spark starts it; there is no setting against it."""


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
    deadline = time.monotonic() + 60
    while not all(factory.idleWorkers().isEmpty() for factory in factories) and time.monotonic() < deadline:
        for factory in factories:
            while not factory.idleWorkers().isEmpty():
                factory.idleWorkers().dequeue().stop()
                print("closed")
        time.sleep(3)
"""


def test_queries_that_leave_rows_unread_print_nothing_else(tmp_path: Path) -> None:
    log = LogWriter(segment_size=32 << 20)
    for number in range(24):
        log.append(1_795_000_000_000 + number, random.Random(number).randbytes(1 << 20))
    log.write(tmp_path / "store")
    command = [sys.executable, "-c", QUERIES, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if line != OF_THE_JVM] == []
    counts, closed = done.stdout.splitlines()[:3], done.stdout.splitlines()[3:]
    assert (done.returncode, counts) == (0, ["1"] * 3)
    # The ones that looked for the format, made the data source and planned the read.
    assert len(closed) >= 3


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
