"""A real S3 server on the loopback interface: S3Proxy, a Java program from Maven Central.

Its objects are the files of a local folder, and each folder in it is a bucket. So a test puts a store into a bucket by
copying files. The bucket `LAKE` is in the server's memory: only there can a folder be empty, and have the name of a
file, as on S3. Hadoop needs that.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.broker.harness import missing
from tests.support.maven_library import maven_library
from tests.support.own_servers import free_ports, wait_until_it_listens

__all__ = ["ACCESS_KEY", "LAKE", "SECRET_KEY", "S3Server", "missing", "running_server"]

ACCESS_KEY: Final = "spark-mq-tests"
SECRET_KEY: Final = "never-to-be-shown"
LAKE: Final = "lake"

_PROJECT: Final = Path(__file__).resolve().parent
_START_SECONDS: Final = 180.0
_LOGBACK: Final = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%msg%n%ex</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


@dataclass(frozen=True)
class S3Server:
    """A server that runs: its address, and the folder whose folders are its buckets."""

    host: str
    port: int
    folder: Path


@contextlib.contextmanager
def running_server(home: Path) -> Iterator[S3Server]:
    """An S3 server that keeps its files in `home`; it is stopped at the end."""
    library = maven_library(_PROJECT)
    folder = home / "buckets"
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    settings = {
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": ACCESS_KEY,
        "s3proxy.credential": SECRET_KEY,
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        # Arrow asks for checksums of answers, which this server does not have.
        "s3proxy.ignore-unknown-headers": "true",
        # The newer form, filesystem-nio2, refuses files that it did not write itself.
        "jclouds.provider": "filesystem",
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
        "jclouds.filesystem.basedir": str(folder),
    }
    in_memory = {"jclouds.provider": "transient", "s3proxy.bucket-locator.1": LAKE}
    files: list[str] = []
    for name, more in (("files", {}), ("memory", in_memory)):
        conf = home / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in {**settings, **more}.items()), encoding="utf-8")
        files += ["--properties", str(conf)]
    (home / "logback.xml").write_text(_LOGBACK, encoding="utf-8")
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", f"-Djava.io.tmpdir={home}"]
    options.append(f"-Dlogback.configurationFile={home / 'logback.xml'}")
    command = ["java", *options, "-cp", f"{library}{os.sep}*", "org.gaul.s3proxy.Main", *files]
    with (home / "log").open("w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_until_it_listens(process, port, home / "log", _START_SECONDS)
            yield S3Server("127.0.0.1", port, folder)
        finally:
            process.kill()
