"""Spark as processes of its own: a standalone cluster, a Spark Connect server, and a Python that lacks the package.

Everything listens on 127.0.0.1. A process ends with its block, or by the kernel's hand where this process dies first.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import site
import subprocess
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from tests.support.class_archive import java_options

_START_SECONDS = 240.0
_RUN_SECONDS = 480.0
_END_SECONDS = 10.0


@dataclass(frozen=True)
class Python:
    """A Python environment with Spark in it."""

    executable: Path

    @property
    def spark_home(self) -> Path:
        """Where pyspark is, which is a whole Spark."""
        (packages,) = self.executable.parent.parent.glob("lib/python3*/site-packages")
        # Not the link to it: the archive of Java classes belongs to jars by their paths.
        return (packages / "pyspark").resolve()

    def spark(self, script: str) -> str:
        """A script of Spark's `bin`."""
        return str(self.spark_home / "bin" / script)

    def environment(self, **more: str) -> dict[str, str]:
        """For Spark's processes. No home, as for many services: nothing of ours may need one.

        They share the compiled kernels of the tests, which take half a minute otherwise.
        """
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "HOME": "/dev/null",
            "JDK_JAVA_OPTIONS": java_options(),
            "PYSPARK_PYTHON": str(self.executable),
            "SPARK_HOME": str(self.spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
            **more,
        }


def python_without_the_package(folder: Path) -> Python:
    """An environment with links to all that this one has installed, but this package."""
    venv.create(folder)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for installed in site.getsitepackages():
        found = distributions(name="spark-mq", path=[installed])
        ours = {file.parts[0] for distribution in found for file in distribution.files or []}
        for entry in Path(installed).iterdir():
            if entry.name not in ours and entry.name != "__pycache__" and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    return Python(folder / "bin" / "python")


def start(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path, errors: Path
) -> subprocess.Popen[bytes]:
    """Start a process in `folder`, as the head of a group of its own; `output` and `errors` get what it prints."""
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "TERM", *command]
    with output.open("wb") as stdout, errors.open("ab") as stderr:
        return subprocess.Popen(
            command,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], log: Path, ready: str) -> Iterator[re.Match[str]]:
    """A process that runs while the block does; gives what it printed to `log` that matches `ready`."""
    process = start(command, environment, log.parent, log, log)
    try:
        yield _wait_for(ready, log, process)
    finally:
        end(process)


def _wait_for(pattern: str, log: Path, process: subprocess.Popen[bytes]) -> re.Match[str]:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"no line {pattern!r} in {log}:\n{log.read_text(errors='replace')[-3000:]}")


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    status: int
    output: str
    errors: str


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Done:
    """Run a command to its end, in `folder`, where nothing of the project lies."""
    output, errors = folder / "stdout.log", folder / "stderr.log"
    process = start(command, environment, folder, output, errors)
    try:
        status = process.wait(_RUN_SECONDS)
    finally:
        end(process)
    return Done(status, output.read_text(), errors.read_text())


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster of two workers."""

    master: str
    python: Python
    hidden: Path | None
    """A folder in which the workers see nothing of what others see there; None where they cannot be given one."""


@contextmanager
def standalone_cluster(python: Python, folder: Path) -> Iterator[Cluster]:
    """A master and two workers of one core and 1 GiB each."""
    environment = python.environment(
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS="-Dspark.master.rest.enabled=false",
        SPARK_LOCAL_DIRS=str(folder),
    )
    spark_class = [python.spark("spark-class")]
    listen = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    master_class, worker_class = (f"org.apache.spark.deploy.{kind}" for kind in ("master.Master", "worker.Worker"))
    hidden = folder / "hidden"
    hidden.mkdir()
    hiding = _hiding(hidden)
    with ExitStack() as processes:
        command = [*spark_class, master_class, *listen]
        url = r"Starting Spark master at (spark://\S+)"
        master = processes.enter_context(running(command, environment, folder / "master.log", url))[1]
        for worker in ("worker-1", "worker-2"):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / worker)]
            command = [*hiding, *spark_class, worker_class, *listen, *size, master]
            ready = "Successfully registered with master"
            processes.enter_context(running(command, environment, folder / f"{worker}.log", ready))
        yield Cluster(master, python, hidden if hiding else None)


def _hiding(folder: Path) -> list[str]:
    """What to start a command with so that it sees an empty folder in place of `folder`; nothing without the right."""
    unshare = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]
    if shutil.which("unshare") and subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0:
        return unshare
    return []
