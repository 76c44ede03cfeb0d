"""`spark-mq doctor`: what this machine lacks, what will be slow here, and what to do. No Spark is started."""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from spark_mq._version import __version__
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.output.terminal import print_answer
from spark_mq.format.amounts import size_text

_USES = {
    "spark": "Spark SQL, archives, streams, and jobs on a cluster",
    "connect": "sessions of Spark Connect",
    "delta": "archives, and look-ups in them without Spark",
    "s3": "stores and archives on S3",
    "hdfs": "stores on HDFS",
    "rocksdb": "stores with queues or settings in RocksDB",
    "sail": "Spark SQL without Java",
    "report": "the page of `spark-mq report`",
}
"""What the extras of `spark-mq` are for; those for development are left out."""
_EXTRA = re.compile(r"([\w.-]+)[^;]*(?:; *extra == ['\"](\w+)['\"])?")
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LEAST_JAVA = 17
_LEAST_OPEN_FILES = 1024
_INDEX_FILES, _PART_OF_LOG = 2 * 420_000_000, 128 << 20
"""Bytes: the index files that a job has in memory, and what each of its threads reads (docs/where-it-runs.md)."""
_LEAST_ROOM = 1 << 30


class State(StrEnum):
    """What a check says."""

    OK = "ok"
    SLOW = "slow"
    MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """What is here of one thing, and a line about what to do if that is too little."""

    name: str
    state: State
    found: str
    remedy: str = ""


@command(
    "doctor",
    "--json",
    example="",
    description="""
    Print what this machine has of what spark-mq needs: what is missing, what will be slow, and what to do about it.
    """,
    epilog="Nothing is installed, and Spark is not started. What is missing matters only for what its line names.",
)
def doctor(arguments: argparse.Namespace) -> int:
    """Print the checks."""
    found = [*_packages(), _java(), _spark(), _delta_jars(), _kernels(), _memory(), _open_files(), _room()]
    print_answer(arguments.json, lambda: {"checks": [asdict(one) for one in found]}, lambda: _lines(found))
    return FOUND


def _lines(found: list[Check]) -> Iterator[str]:
    for one in found:
        yield f"{one.state:<8} {one.name:<10} {one.found}"
        if one.remedy:
            yield f"{'':8} {'':10} do: {one.remedy}"
    counts = [(state, sum(one.state is state for one in found)) for state in (State.MISSING, State.SLOW)]
    yield ", ".join(f"{count} {state}" for state, count in counts if count) or "everything is here"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _packages() -> Iterator[Check]:
    """The packages that all commands need, and those of each extra."""
    needed: dict[str, list[str]] = {}
    with suppress(PackageNotFoundError):  # of a zip file, nothing is known
        for text in requires("spark-mq") or ():
            match = _EXTRA.match(text)
            if match is not None and match[1] != "spark-mq":
                needed.setdefault(match[2] or "", []).append(match[1])
    versions = {name: _version(name) for names in needed.values() for name in names}
    lacking = [name for name in needed.get("", ()) if versions[name] is None]
    if (versions.get("pandas") or "").startswith("3."):
        lacking.append("pandas<3")
    have = ", ".join(f"{name} {versions[name]}" for name in needed.get("", ()) if versions[name])
    install = f"pip install {' '.join(map(repr, lacking))}" if lacking else ""
    state = State.MISSING if lacking else State.OK
    yield Check("packages", state, f"spark-mq {__version__}, Python {sys.version.split()[0]}, {have}", install)
    for extra, use in ((extra, use) for extra, use in _USES.items() if extra in needed):
        absent = [name for name in needed[extra] if versions[name] is None]
        text = f"{use}: {', '.join(absent) or 'all'} {'not ' if absent else ''}installed"
        install = f"pip install 'spark-mq[{extra}]'" if absent else ""
        yield Check(f"[{extra}]", State.MISSING if absent else State.OK, text, install)


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = f"only Spark needs it: install Java {_LEAST_JAVA} or later, such as openjdk-{_LEAST_JAVA}-jdk-headless"
    said = None
    with suppress(OSError, subprocess.TimeoutExpired):
        if java is not None:
            done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
            said = _JAVA_VERSION.search(done.stderr)
    if said is None:
        return Check("Java", State.MISSING, f"{java} does not run" if java else "no java on the path", remedy)
    is_enough = int(said[1]) >= _LEAST_JAVA
    return Check("Java", State.OK if is_enough else State.MISSING, f"{said[1]}: {java}", "" if is_enough else remedy)


def _spark() -> Check:
    found = next((one for name in ("pyspark", "pyspark-client") if (one := _version(name)) is not None), None)
    if found is None:
        remedy = "look-ups and jobs on this machine need none; else: pip install 'spark-mq[spark]'"
        return Check("Spark", State.MISSING, "PySpark is not installed", remedy)
    number = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if number >= (4, 2):
        remote = os.environ.get("SPARK_REMOTE")
        return Check("Spark", State.OK, f"{found}, at {remote} (SPARK_REMOTE)" if remote else found)
    if number < (4, 0):
        return Check("Spark", State.MISSING, f"{found} has no Python data sources", "pip install 'spark-mq[spark]'")
    return Check("Spark", State.SLOW, found, "pushdown needs 4.1, and limits of a stream's batches need 4.2")


def _delta_jars() -> Check:
    """Whether Spark has fetched Delta Lake already, as the first command for an archive does."""
    jars = sorted(Path.home().glob(".ivy2*/jars/io.delta_delta-spark_*.jar"))
    if jars:
        return Check("Delta jars", State.OK, str(jars[-1]))
    remedy = "the first command for an archive fetches them: Maven Central, or a mirror (spark.jars.repositories)"
    return Check("Delta jars", State.SLOW, f"none in {Path.home()}/.ivy2*/jars", remedy)


def _kernels() -> Check:
    from spark_mq.format.kernels.cache import cache_folder, is_compiled

    folder = cache_folder()
    if folder is None:
        remedy = "set NUMBA_CACHE_DIR to a folder that only this user can write"
        return Check("kernels", State.SLOW, "no folder: each process compiles them", remedy)
    if is_compiled():
        return Check("kernels", State.OK, f"compiled: {folder}")
    return Check("kernels", State.SLOW, f"not all are compiled: {folder}", "spark-mq compile")


def _memory() -> Check:
    """The memory that a process can still get, also in a container, and what a job on all cores can use."""
    free = _free_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    needed = _INDEX_FILES + cores * _PART_OF_LOG
    text = f"{size_text(free)} are free; a job on {cores} cores can use {size_text(needed)}" if free else "not known"
    is_enough = free is None or free >= needed
    return Check("memory", State.OK if is_enough else State.SLOW, text, "" if is_enough else "fewer --cores")


def _free_memory() -> int | None:
    with suppress(OSError, ValueError, KeyError):
        lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int({words[0]: words[1] for words in lines}["MemAvailable:"])
        with suppress(OSError, ValueError):  # of a container; `max` is no limit
            used = int(Path("/sys/fs/cgroup/memory.current").read_text())
            free = min(free, max(int(Path("/sys/fs/cgroup/memory.max").read_text()) - used, 0))
        return free
    return None


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_enough = soft >= _LEAST_OPEN_FILES or soft == resource.RLIM_INFINITY
    remedy = "" if is_enough else f"ulimit -n {_LEAST_OPEN_FILES}: a store's files are closed and opened again else"
    text = f"a process may have {soft:,} (limit {hard:,})"
    return Check("open files", State.OK if is_enough else State.SLOW, text, remedy)


def _room() -> Check:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    is_enough = free >= _LEAST_ROOM
    text = f"{size_text(free)} are free in {folder}; verify needs there a tenth of the log's size"
    return Check("room", State.OK if is_enough else State.SLOW, text, "" if is_enough else "TMPDIR, or --scratch DIR")
