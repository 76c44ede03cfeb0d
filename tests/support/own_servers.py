"""Servers of tests, each in a process of its own: its ports, and waiting for it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from tests.broker.harness import HarnessError


def free_ports(count: int) -> list[int]:
    """Different ports on which nobody listens."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in found]


def wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float) -> None:
    """Wait for a server, which writes into a log. Raises `HarnessError` with the log if it does not start."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        time.sleep(0.05)
    raise HarnessError(f"a server does not start on port {port}:\n{log.read_text()}")
