"""A real HDFS on the loopback interface: Hadoop's mini cluster, a namenode and a datanode in one Java program."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.broker.harness import HarnessError
from tests.support.maven_library import maven_library

if TYPE_CHECKING:
    from hdfs_native import Client

_PROJECT: Final = Path(__file__).resolve().parent
_START_SECONDS: Final = 180.0
_FILES_AT_ONCE: Final = 32
"""The end of a file often takes half a second: the client waits until the namenode has heard of the last block."""
_CLASS: Final = "org.apache.hadoop.test.MiniDFSClusterManager"


@dataclass(frozen=True)
class HdfsCluster:
    """A cluster that runs."""

    port: int

    @property
    def address(self) -> str:
        """The address of the root folder."""
        return f"hdfs://127.0.0.1:{self.port}"

    @property
    def client(self) -> Client:
        """A client of the library, with all rights."""
        from hdfs_native import Client

        return Client(self.address)

    def upload(self, folder: Path, target: str) -> None:
        """Copy a local folder to the path `target`."""
        client = self.client

        def copy(path: Path) -> None:
            place = f"{target}/{path.relative_to(folder)}"
            if path.is_dir():
                client.mkdirs(place, 0o755, True)
                return
            with client.create(place) as file:
                file.write(path.read_bytes())

        with ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
            list(threads.map(copy, folder.rglob("*")))

    def files(self, folder: str) -> dict[str, bytes]:
        """The paths in a folder, and the bytes of the files there."""
        client = self.client
        found = [status.path for status in client.list_status(folder, True) if not status.isdir]
        return {path.removeprefix(f"{folder}/"): bytes(client.read(path).read()) for path in found}


@contextlib.contextmanager
def running_cluster(home: Path) -> Iterator[HdfsCluster]:
    """A cluster that keeps its files in `home`; it is stopped at the end."""
    details = home / "details.json"
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", f"-Djava.io.tmpdir={home}"]
    command = ["java", *options, "-cp", f"{maven_library(_PROJECT)}{os.sep}*", _CLASS, "-format", "-datanodes", "1"]
    command += ["-writeDetails", str(details)]
    with (home / "log").open("w+") as log, subprocess.Popen(command, cwd=home, stdout=log, stderr=log) as process:
        try:
            yield HdfsCluster(_port_of(process, details, home / "log"))
        finally:
            process.kill()


def _port_of(process: subprocess.Popen[bytes], details: Path, log: Path) -> int:
    """The port of the namenode, which the program writes into a file when all servers are up."""
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up and process.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            return int(json.loads(details.read_text())["namenode_port"])
        time.sleep(0.05)
    raise HarnessError(f"the HDFS cluster does not start:\n{log.read_text()}")
