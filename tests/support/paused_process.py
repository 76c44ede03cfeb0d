"""Commands in processes of their own, which stop at a moment of their work, so that a test can kill them there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.stores import PROJECT

PAUSING = PROJECT / "tests" / "cli" / "pausing"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable}


def spark_mq(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "spark_mq.cli.main", *arguments]


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own; at the end all its processes are killed, also where the test has failed."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            kill_session(process.pid)


@contextmanager
def paused(command: list[str], pause: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A job that has come to a moment and stays there; at the end all its processes are killed."""
    marker = folder / "paused"
    marker.unlink(missing_ok=True)
    path = os.pathsep.join([str(PAUSING), str(PROJECT)])
    told = {**environment(), "PYTHONPATH": path, "SPARK_MQ_PAUSE": pause, "SPARK_MQ_PAUSED": str(marker)}
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            command, env=told, start_new_session=True, stdout=output, stderr=subprocess.STDOUT, text=True
        )
        try:
            deadline = time.monotonic() + 300
            while not marker.exists():
                output.seek(0)
                assert process.poll() is None, f"the job ended before {pause}: {output.read()}"
                assert time.monotonic() < deadline, f"the job did not come to {pause}"
                time.sleep(0.01)
            assert process.poll() is None
            yield process
        finally:
            kill_session(process.pid)
            process.wait()


def kill_session(session: int) -> None:
    """End all processes of a session by SIGKILL: Spark's workers are in a process group of their own."""
    members = True
    while members:
        members = False
        for name in os.listdir("/proc"):
            with suppress(ProcessLookupError, FileNotFoundError):
                if name.isdigit() and os.getsid(int(name)) == session and is_running(name):
                    os.kill(int(name), signal.SIGKILL)
                    members = True


def is_running(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


def killed(command: list[str], pause: str, folder: Path) -> None:
    """Run a command up to a moment, see that it is alive there, and kill it and all its processes."""
    with paused(command, pause, folder) as process:
        assert process.poll() is None
