"""The start of this process's JVM, and the kernels that are compiled meanwhile.

What spark-submit prints about packages is shown only if it cannot get them.

spark-submit gets the packages of a session (Ivy) before the JVM can be asked for anything, and prints some twenty lines
about that on stderr. So the JVM's stderr is a pipe: its lines are held back until the JVM has started, and then those
about packages are left out. Everything that the JVM prints later is passed on at once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from spark_mq.cli.output import say, visible
from spark_mq.errors import OptionError, PackagesNotFetchedError

_STDERR = 2
_CHUNK = 64 << 10
_FIRST_LINE = ":: loading settings ::"
_LAST_LINE = re.compile(r"\s*\d+ artifacts copied, \d+ already retrieved")
_DOWNLOAD = re.compile(r"^downloading ", re.MULTILINE)
_OF_JAVA = re.compile(
    "WARNING: Using incubator modules:|NOTE: Picked up JDK_JAVA_OPTIONS:|Picked up JAVA_TOOL_OPTIONS:"
)
"""How lines begin that Java prints of its own accord, once for each JVM: spark-submit starts two."""
_JAVA_ERROR = re.compile(r'^Exception in thread "main" (?:[\w.$]+: )?(.*)', re.MULTILINE)
_SERVER_ERROR = re.compile(r"Server access error at url \S+ \((.*?)\)\s*$", re.MULTILINE)
_FAILED = re.compile(r"unresolved dependency|download failed")
_NOT_COORDINATES = "Maven Coordinates must be in the form"
HINT = (
    "Check the coordinates, and that Maven Central can be reached. For a mirror, give --spark-conf "
    "spark.jars.repositories=URL; for a proxy, set JDK_JAVA_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; "
    "without a network, give the jars themselves: --spark-conf spark.jars=FILE,..."
)


def start_jvm(packages: str) -> None:
    """Start the JVM of this process's Spark, if it does not run yet."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    reader, writer = os.pipe()
    errors = _Errors(packages)
    threading.Thread(target=errors.pass_on, args=(reader,), daemon=True).start()
    try:
        gateway = launch_gateway(popen_kwargs={"stderr": writer})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        os.close(writer)
        errors.ended.wait()
        if _NOT_COORDINATES in errors.text:
            raise OptionError(f"packages {packages!r}: each must be GROUP:ARTIFACT:VERSION") from error
        problem = package_problem(errors.text)
        if problem is not None:
            raise PackagesNotFetchedError(f"Spark cannot get {packages}: {visible(problem)}. {HINT}") from error
        errors.release()
        raise
    os.close(writer)
    errors.release()
    SparkContext._ensure_initialized(gateway=gateway)


class _Errors:
    """What a JVM prints on its stderr: held back until `release`, and then passed on."""

    def __init__(self, packages: str) -> None:
        self.ended = threading.Event()
        self._packages = packages
        self._lock = threading.Lock()
        self._held = b""
        self._is_held = True
        self._is_told = False

    @property
    def text(self) -> str:
        """What was held back."""
        return self._held.decode(errors="replace")

    def pass_on(self, reader: int) -> None:
        """Read until the JVM ends."""
        while chunk := os.read(reader, _CHUNK):
            with self._lock:
                if self._is_held:
                    self._held += chunk
                    if not self._is_told and _DOWNLOAD.search(self.text):  # it can take minutes
                        self._is_told = True
                        say(f"downloading {self._packages} and what it needs")
                else:
                    _write(chunk)
        os.close(reader)
        self.ended.set()

    def release(self) -> None:
        """Print the held lines that are not about packages, and hold nothing back from now on."""
        with self._lock:
            self._is_held = False
            _write("".join(f"{line}\n" for line in other_lines(self.text)).encode())


def other_lines(text: str) -> list[str]:
    """The lines that a starting JVM printed, without those about packages that it could get."""
    lines, is_about_packages = [], False
    for line in text.splitlines():
        if line.startswith(_FIRST_LINE):
            is_about_packages = True
        if not is_about_packages and not _OF_JAVA.match(line):
            lines.append(line)
        if _LAST_LINE.match(line):
            is_about_packages = False
    return lines


def package_problem(text: str) -> str | None:
    """Why a JVM that did not start could not get a package; None if it has another problem."""
    errors = [error for error in _JAVA_ERROR.findall(text) if _FAILED.search(error)]
    if not errors:
        return None
    server_errors = list(dict.fromkeys(_SERVER_ERROR.findall(text)))
    return "; ".join([errors[0], *server_errors])


def _write(content: bytes) -> None:
    with suppress(OSError):  # stderr may be closed
        while content:
            content = content[os.write(_STDERR, content) :]


def compile_in_background(modules: Sequence[str] = ()) -> None:
    """Start a process that compiles kernels, if some are missing in the cache.

    A JVM takes seconds to start, and uses one core. A task that needs a kernel in the meantime waits for it, or
    compiles another one.
    """
    from spark_mq.format.kernels.cache import cache_folder, is_compiled

    if not is_compiled(modules) and cache_folder() is not None and "NUMBA_DISABLE_JIT" not in os.environ:
        threading.Thread(target=_compile_elsewhere, args=(modules,), daemon=True).start()


def _compile_elsewhere(modules: Sequence[str]) -> None:
    with suppress(OSError):
        subprocess.run(
            [sys.executable, "-m", "spark_mq.format.kernels.compile", *modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C ends the command; the kernels are there for the next one
            check=False,
        )
