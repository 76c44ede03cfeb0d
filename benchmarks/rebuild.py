"""A rebuild of queues and index beside the Java store's own, on two cores and on one, and where its time goes.

For each number of cores, a process of its own warms up, and rebuilds several times, up to flushed files; before each
rebuild, the Java store rebuilds the same log with its one thread. For every stage, the CPU time of the Python workers,
of the JVM and of the driver is read from `/proc`: the rest of the cores' time is waiting. Queues and index are written
at the same time: the stage that ends last has the time after the end of the other.

    python -m benchmarks.rebuild --size 1GiB --folder /tmp/spark-mq-bench

With `--second-core`, rebuilds without Spark take turns: on one core, on two, and two at once in processes that share
nothing, each on a core of its own. The last says what the machine's second core is worth.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.generate_store import generate_store
from benchmarks.index_memory import processes
from benchmarks.run import java_rebuild, plain_read
from spark_mq.format.amounts import parse_size
from spark_mq.job.tasks import ENGINES, LocalTasks, Tasks, spark_tasks

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process: int) -> dict[str, float]:
    """The CPU seconds so far of the process, of its JVM, and of its Python workers."""
    seconds = {"driver": 0.0, "JVM": 0.0, "task": 0.0}
    for name, kind in processes(process).items():
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        seconds[kind] += (int(fields[11]) + int(fields[12])) / _TICKS
    return seconds


class StageClock:
    """Seconds and CPU seconds of the stages of rebuilds, summed by name; what is outside of stages is `rest`."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, float]] = {}
        self._began = 0.0
        self._cpu: Mapping[str, float] = {}

    def begin(self) -> None:
        """Start the clock."""
        self._began, self._cpu = time.perf_counter(), cpu_seconds(os.getpid())

    def end(self, name: str) -> None:
        """Add the time since the last call to a stage."""
        began, cpu = self._began, self._cpu
        self.begin()
        stage = self.stages.setdefault(name, {"seconds": 0.0, "driver": 0.0, "JVM": 0.0, "task": 0.0})
        stage["seconds"] += self._began - began
        for kind, seconds in self._cpu.items():
            stage[kind] += seconds - cpu.get(kind, 0.0)


@contextmanager
def tasks_of(engine: str, cores: int) -> Iterator[Tasks]:
    """A context with the tasks of an engine, on some cores."""
    if engine == "local":
        yield LocalTasks(cores)
        return
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master local[{cores}] pyspark-shell"
    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    with spark_tasks(spark) as tasks:
        yield tasks
    spark.stop()


def measure(store: Path, folder: Path, cores: int, repetitions: int, with_java: bool, tasks: Tasks) -> dict[str, Any]:
    """Rebuild several times in this process; returns the seconds of each, those of Java, and the stages."""
    from spark_mq.indexer.rebuild import rebuild_with
    from spark_mq.indexer.rebuild_request import RebuildRequest
    from spark_mq.job.progress import StageProgress

    clock = StageClock()

    def on_progress(stage: StageProgress) -> None:
        if stage.is_done or (not stage.done and stage.name == "dispatch"):
            clock.end(stage.name if stage.is_done else "before dispatch")

    timed = replace(tasks, on_progress=on_progress)

    def rebuild(output: Path) -> float:
        shutil.rmtree(output, ignore_errors=True)
        clock.begin()
        started = time.perf_counter()
        rebuild_with(timed, RebuildRequest.of(str(store), str(output), assume_defaults=True))
        seconds = time.perf_counter() - started
        clock.end("after the last stage")
        return seconds

    for _ in range(3):
        rebuild(folder / "rebuilt")
    clock.stages.clear()
    seconds, java, plain = [], [], []
    for _ in range(repetitions):
        if with_java:
            java += [sum(times) for times in java_rebuild(store, folder / "java", 1)]
        plain.append(plain_read(store / "commitlog"))
        seconds.append(rebuild(folder / "rebuilt"))
    shutil.rmtree(folder / "rebuilt")
    stages = {name: {kind: value / repetitions for kind, value in of.items()} for name, of in clock.stages.items()}
    return {"seconds": seconds, "java": java, "plain": plain, "stages": stages}


def rebuild_when_told(store: Path, output: Path, orders: Connection) -> None:
    """In a process of its own: rebuild on the cores that come, and say when it is done; no core ends it."""
    from spark_mq.indexer.rebuild import rebuild_with
    from spark_mq.indexer.rebuild_request import RebuildRequest

    while chosen := orders.recv():
        os.sched_setaffinity(0, chosen)
        shutil.rmtree(output, ignore_errors=True)
        rebuild_with(LocalTasks(len(chosen)), RebuildRequest.of(str(store), str(output), assume_defaults=True))
        orders.send(None)


def print_second_core(store: Path, folder: Path, repetitions: int) -> None:
    """Print how much faster two cores are than one, and two processes at once than one after the other."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    ends = []
    for number in range(2):
        here, there = multiprocessing.Pipe()
        arguments = (store, folder / f"rebuilt-{number}", there)
        multiprocessing.Process(target=rebuild_when_told, args=arguments, daemon=True).start()
        ends.append(here)

    def seconds(*orders: list[int]) -> float:
        started = time.perf_counter()
        for end, order in zip(ends, orders, strict=False):
            end.send(order)
        for end, _ in zip(ends, orders, strict=False):
            end.recv()
        return time.perf_counter() - started

    turns = [(seconds([first]), seconds([first, second]), seconds([first], [second])) for _ in range(repetitions + 1)]
    one, two, at_once = (statistics.median(part) for part in zip(*turns[1:], strict=True))
    ratio = statistics.median(alone / both for alone, both, _ in turns[1:])
    limit = statistics.median(2 * alone / pair for alone, _, pair in turns[1:])
    print(f"one core {one:.2f} s, two {two:.2f} s: {ratio:.2f} times; two processes {at_once:.2f} s: {limit:.2f} times")
    for number in range(2):
        shutil.rmtree(folder / f"rebuilt-{number}")


def print_result(cores: int, result: dict[str, Any]) -> None:
    """Print the figures of one process."""
    seconds, java, plain, stages = (result[name] for name in ("seconds", "java", "plain", "stages"))
    median = statistics.median(seconds)
    spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
    print(f"{cores} cores: {median:.2f} s ({spread}); plain read {statistics.median(plain):.2f} s")
    if java:
        ratio = statistics.median(there / here for there, here in zip(java, seconds, strict=True))
        print(f"  the Java store {statistics.median(java):.2f} s ({min(java):.2f}-{max(java):.2f}), {ratio:.2f} times")
    print("| stage (means) | seconds | workers' CPU | JVM's CPU | driver's CPU | cores idle |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, stage in stages.items():
        idle = cores * stage["seconds"] - stage["task"] - stage["JVM"] - stage["driver"]
        cpu = " | ".join(f"{stage[kind]:.2f}" for kind in ("task", "JVM", "driver"))
        print(f"| {name} | {stage['seconds']:.2f} | {cpu} | {max(idle, 0):.2f} |")


def main() -> int:
    """Generate the store if it does not exist, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GiB", help="bytes of records (1GiB)")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the store and scratch output")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="*", default=[2, 1])
    parser.add_argument("--engine", choices=ENGINES, default="spark", help="where the tasks run (spark)")
    parser.add_argument("--skip-java", action="store_true", help="leave out the Java store's own rebuild")
    parser.add_argument("--second-core", action="store_true", help="what a second core is worth, without Spark")
    parser.add_argument("--one-process", action="store_true", help="measure in this process, and print JSON")
    arguments = parser.parse_args()
    size = parse_size("--size", arguments.size)
    store = arguments.folder / f"rebuild-store-{size}"
    if not (store / "made").exists():
        shutil.rmtree(store, ignore_errors=True)
        generate_store(store, log_size=size)
        (store / "made").touch()
    if arguments.second_core:
        print_second_core(store, arguments.folder, arguments.repetitions)
        return 0
    if arguments.one_process:
        with_java = not arguments.skip_java
        cores = arguments.cores[0]
        # `local[1]` alone leaves the other cores to the JVM.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        with tasks_of(arguments.engine, cores) as tasks:
            result = measure(store, arguments.folder, cores, arguments.repetitions, with_java, tasks)
        print(json.dumps(result))
        return 0
    for number, cores in enumerate(arguments.cores):
        command = [sys.executable, "-m", "benchmarks.rebuild", "--one-process", "--cores", str(cores)]
        command += ["--size", arguments.size, "--folder", str(arguments.folder)]
        command += ["--repetitions", str(arguments.repetitions), "--engine", arguments.engine]
        command += ["--skip-java"] if number or arguments.skip_java else []
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        print_result(cores, json.loads(output.splitlines()[-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
