"""`verify` of a generated store beside a rebuild of its queues and index, in turns, in one process.

The store has the queues and the index that the rebuild wrote, so the check reads all of them. `--damaged` also measures
a copy in which every unit of the queues is wrong: as many findings as messages. The largest resident memory of a Python
worker is read from `/proc` while the check runs.

`--commands` starts no JVM: it measures whole commands, each beside a rebuild just before it, in seconds of a processor,
which other work on the machine changes little. `repair --apply` makes a queue whose files are gone.

    python -m benchmarks.verify --size 1GiB --folder /tmp/spark-mq-bench
    python -m benchmarks.verify --size 1GiB --folder /tmp/spark-mq-bench --commands
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.generate_store import generate_store
from benchmarks.growth import rebuild_command
from benchmarks.index_memory import processes
from spark_mq import rebuild, verify
from spark_mq.cli.exit_status import DAMAGED
from spark_mq.format.amounts import parse_size
from spark_mq.format.consume_queue import UNIT_DTYPE


@contextmanager
def largest_worker() -> Iterator[list[int]]:
    """A context whose list gets the largest resident memory of a Python worker, in bytes, at its end."""
    result, stopped = [0], threading.Event()

    def watch() -> None:
        while not stopped.wait(0.05):
            for name, kind in processes(os.getpid()).items():
                if kind == "task":
                    result[0] = max(result[0], _resident(name))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield result
    finally:
        stopped.set()
        watcher.join()


def _resident(process: str) -> int:
    try:
        return int(Path("/proc", process, "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def damage_queues(store: Path, copy: Path) -> None:
    """Make a copy of the store, with links to its log and index, in which every unit has another tags code."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for name in ("commitlog", "index"):
        (copy / name).symlink_to(store / name)
    for file in (store / "consumequeue").glob("*/*/*"):
        units = np.fromfile(file, UNIT_DTYPE)
        units = units[: np.count_nonzero(units["store_size"])]
        units["tags_code"] += 1
        target = copy / file.relative_to(store)
        target.parent.mkdir(parents=True, exist_ok=True)
        units.tofile(target)
        os.truncate(target, file.stat().st_size)  # the rest is a hole, as in the store: 20,000 files have 120 GB


def measure_commands(store: Path, output: Path, repetitions: int) -> None:
    """Print a line for each command."""
    lost = sorted((store / "consumequeue").glob("*/*"))[0]
    commands = {"state": (), "check": (), "verify": ("--quiet",), "repair": ("--apply", "--quiet")}
    for name, options in commands.items():
        ratios, seconds, cpu = [], [], []
        for number in range(repetitions + 1):  # the first pair warms up
            shutil.rmtree(output, ignore_errors=True)
            _, beside = _run(rebuild_command(store, output))
            if name == "repair":
                shutil.rmtree(lost)
            here = _run([sys.executable, "-m", "spark_mq", name, str(store), *options])
            shutil.rmtree(store / ".spark_mq", ignore_errors=True)
            if number:
                seconds.append(here[0])
                cpu.append(here[1])
                ratios.append(here[1] / beside)
        assert lost.exists(), f"{lost} is not made again"
        medians = (statistics.median(values) for values in (seconds, cpu, ratios))
        print("{:8} {:5.2f} s, {:5.2f} s of a processor, {:5.2f} times a rebuild's".format(name, *medians))
    shutil.rmtree(output)


def _run(command: list[str]) -> tuple[float, float]:
    """The seconds of a command, and those of a processor."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
    if status not in (0, DAMAGED):  # the store has no config/
        sys.exit(f"{' '.join(command)}: exit status {status}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - started, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Generate the store if it does not exist, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GiB", help="bytes of records (1GiB)")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the store and scratch output")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--topics", type=int, default=4)
    parser.add_argument("--queues", type=int, default=8, help="queues in each topic")
    parser.add_argument("--damaged", action="store_true", help="also check a copy in which every unit is wrong")
    parser.add_argument("--commands", action="store_true", help="only whole commands, without Spark")
    arguments = parser.parse_args()
    size = parse_size("--size", arguments.size)
    store = arguments.folder / f"verify-store-{size}-{arguments.topics}-{arguments.queues}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if not (store / "made").exists():
        shutil.rmtree(store, ignore_errors=True)
        generate_store(store, log_size=size, topics=arguments.topics, queues=arguments.queues)
        made = [sys.executable, "-m", "spark_mq", "rebuild", str(store), "--assume-defaults"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        (store / "made").touch()
    output = arguments.folder / "verify-rebuilt"
    if arguments.commands:
        measure_commands(store, output, arguments.repetitions)
        return 0
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    rebuilds, checks, memory = [], [], 0
    for number in range(arguments.repetitions + 1):  # the first pair warms up
        shutil.rmtree(output, ignore_errors=True)
        started = time.perf_counter()
        rebuild(spark, str(store), str(output), assume_defaults=True)
        rebuilt = time.perf_counter()
        with largest_worker() as largest:
            result = verify(spark, str(store))
        checked = time.perf_counter()
        assert result.is_sound, result.verdict
        if number:
            rebuilds.append(rebuilt - started)
            checks.append(checked - rebuilt)
        memory = max(memory, largest[0])
        stages = result.report.stages
    shutil.rmtree(output)
    ratio = statistics.median(check / there for check, there in zip(checks, rebuilds, strict=True))
    print(f"{result.report.messages:,} messages, {result.report.queues:,} queues")
    print(f"rebuild {statistics.median(rebuilds):.2f} s ({min(rebuilds):.2f}-{max(rebuilds):.2f})")
    print(f"verify  {statistics.median(checks):.2f} s ({min(checks):.2f}-{max(checks):.2f}), {ratio:.2f} times")
    print(f"stages of the last check: {stages}")
    print(f"largest Python worker: {memory / 2**20:.0f} MiB")
    if arguments.damaged:
        copy = arguments.folder / "verify-damaged"
        damage_queues(store, copy)
        started = time.perf_counter()
        with largest_worker() as largest:
            result = verify(spark, str(copy))
        seconds = time.perf_counter() - started
        print(f"every unit wrong: {seconds:.2f} s, {result.counts}, largest worker {largest[0] / 2**20:.0f} MiB")
        shutil.rmtree(copy)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
