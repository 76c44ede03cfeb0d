"""What a command's own Spark prints besides results: nothing, if nothing is wrong."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spark_mq import worker_daemon
from tests.hostile import LogWriter

OF_THE_JVM = "WARNING: Using incubator modules: jdk.incubator.vector"
"""What Java prints of its own accord when Spark starts it; there is no setting against it."""


def test_queries_that_leave_rows_unread_print_nothing_else(tmp_path: Path) -> None:
    log = LogWriter(segment_size=32 << 20)
    for number in range(24):
        log.append(1_795_000_000_000 + number, random.Random(number).randbytes(1 << 20))
    log.write(tmp_path / "store")
    query = "SELECT crc32(body) AS crc, body FROM messages LIMIT 1"
    command = [sys.executable, "-m", "spark_mq.cli.main", "sql", ";".join([query] * 3), "--format", "json"]
    done = subprocess.run(
        [*command, "--store", f"s={tmp_path / 'store'}", "--option", "splitSize=2m"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if line != OF_THE_JVM] == []
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)


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
