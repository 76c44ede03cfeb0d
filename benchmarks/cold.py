"""A rebuild as a user runs it: one command from process start to exit, beside the Java store, and where its time goes.

In each repetition the Java store and then the command rebuild the same log, each in a process that starts and ends, up
to flushed files. Then a process that measures itself rebuilds it once more, and prints a table of its parts:
milliseconds of all parts together are the time of the whole command. What several threads do at the same time counts
once for each of them, so the parts after planning are scaled to the time that passed.

    python -m benchmarks.cold --size 1GiB --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import importlib._bootstrap
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTS = ("interpreter", "imports", "kernels loaded", "planning", "dispatch", "write queues and index", "commit", "exit")


class Clock:
    """The seconds of parts: of the outermost call of each thread to any of the measured functions."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = {}
        self.phase = "planning"
        self._inside = threading.local()

    def measured(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose calls are measured as a part of the phase in which they end."""

        def call(*arguments: Any, **named: Any) -> Any:
            if getattr(self._inside, "part", None):
                return function(*arguments, **named)
            self._inside.part, started = part, time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self._inside.part = None
                of_phase = self.seconds.setdefault(self.phase, {})
                of_phase[part] = of_phase.get(part, 0.0) + time.perf_counter() - started

        return call


def measure_itself(started: float, words: list[str]) -> None:
    """Run a command in this process, which was started at `started`, and print the seconds of its parts as JSON."""
    began, clock = time.perf_counter(), Clock()
    bootstrap: Any = importlib._bootstrap
    bootstrap._find_and_load = clock.measured("imports", bootstrap._find_and_load)
    from spark_mq.cli import entry
    from spark_mq.format.kernels import machine_code
    from spark_mq.job.progress import Progress

    for name in ("read_code", "loaded"):
        setattr(machine_code, name, clock.measured("kernels loaded", getattr(machine_code, name)))
    bounds: dict[str, float] = {}
    stage = Progress.stage

    def noted(self: Progress, name: str, *rest: Any) -> Any:
        clock.phase = "dispatch" if name == "dispatch" else "write queues and index"
        bounds.setdefault(clock.phase, time.perf_counter())
        return stage(self, name, *rest)

    def committing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            clock.phase = "commit"
            bounds.setdefault(clock.phase, time.perf_counter())
            return function(*arguments)

        return call

    Progress.stage = noted  # type: ignore[assignment, method-assign]
    from spark_mq.job.output_committer import OutputCommitter

    OutputCommitter.commit = committing(OutputCommitter.commit)  # type: ignore[method-assign]
    status = entry.run(words)
    ended = time.perf_counter()
    phases = {"planning": began, **bounds}
    stops = [*list(phases.values())[1:], ended]
    parts = dict.fromkeys(PARTS, 0.0) | {"interpreter": began - started}
    for (phase, start), stop in zip(phases.items(), stops, strict=True):
        inside = clock.seconds.get(phase, {})
        scale = min(1.0, (stop - start) / max(sum(inside.values()), 1e-9))
        for part, seconds in inside.items():
            parts[part] += scale * seconds
        parts[phase] += stop - start - scale * sum(inside.values())
    print(json.dumps({"parts": parts, "ended": ended}), file=sys.stderr)
    sys.exit(status)


def run(command: list[str]) -> tuple[float, float, int, str]:
    """The seconds of a command from start to exit, its CPU seconds, its largest resident size, and its stderr."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: {said}")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss << 10, said


def java_seconds(store: Path, scratch: Path) -> float | None:
    """The seconds of the Java store's rebuild of the log, from the start of its process to its exit."""
    from tests.broker import harness

    if harness.missing() is not None:
        print(f"no rebuild by the Java store: {harness.missing()}", file=sys.stderr)
        return None
    harness.build(harness.VERSIONS[0])
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(store / "commitlog", scratch / "commitlog")
    segment_size = next((scratch / "commitlog").iterdir()).stat().st_size
    os.sync()
    started = time.perf_counter()
    harness.java_rebuild(scratch, {"mappedFileSizeCommitLog": str(segment_size)})
    seconds = time.perf_counter() - started
    shutil.rmtree(scratch)
    return seconds


def main() -> int:
    """Measure, and print the figures, the table and one JSON line."""
    from benchmarks.generate_store import generate_store
    from spark_mq.format.amounts import parse_size

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GiB", help="bytes of records (1GiB)")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the store and scratch output")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--skip-java", action="store_true", help="leave out the Java store's own rebuild")
    arguments = parser.parse_args()
    size = parse_size("--size", arguments.size)
    store, output = arguments.folder / f"rebuild-store-{size}", arguments.folder / "rebuilt"
    if not (store / "made").exists():
        shutil.rmtree(store, ignore_errors=True)
        generate_store(store, log_size=size)
        (store / "made").touch()
    words = ["rebuild", str(store), "--output", str(output), "--assume-defaults", "--quiet", "--engine", "local"]
    command = [sys.executable, "-m", "spark_mq", *words]
    run(command)  # compiles kernels and modules
    shutil.rmtree(output)
    rows, java, all_parts = [], [], []
    for _ in range(arguments.repetitions):
        seconds = None if arguments.skip_java else java_seconds(store, arguments.folder / "java")
        rows.append(run(command)[:3])
        shutil.rmtree(output)
        if seconds is not None:
            java.append(seconds)
        started = time.perf_counter()
        whole, _, _, said = run([sys.executable, "-m", "benchmarks.cold", "--itself", str(started), *words])
        shutil.rmtree(output)
        found = json.loads(said.splitlines()[-1])
        all_parts.append(found["parts"] | {"exit": started + whole - found["ended"]})
    walls, cpus, sizes = zip(*rows, strict=True)
    print(f"rebuild, cold: {statistics.median(walls):.2f} s ({min(walls):.2f}-{max(walls):.2f}), ", end="")
    print(f"CPU {statistics.median(cpus):.2f} s ({min(cpus):.2f}-{max(cpus):.2f}), {max(sizes) >> 20} MiB at most")
    if java:
        ratio = statistics.median(there / here for there, here in zip(java, walls, strict=True))
        spread = f"{min(java):.2f}-{max(java):.2f}"
        print(f"the Java store, cold: {statistics.median(java):.2f} s ({spread}), {ratio:.2f} times by pairs")
    print("| part | milliseconds |\n| --- | --- |")
    for part in PARTS:
        print(f"| {part} | {1000 * statistics.median(parts[part] for parts in all_parts):.0f} |")
    print(json.dumps({"seconds": walls, "cpu": cpus, "java": java, "parts": all_parts}))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--itself"]:
        measure_itself(float(sys.argv[2]), sys.argv[3:])
    sys.exit(main())
