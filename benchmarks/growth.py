"""How the time and memory of a rebuild grow with the log and with the number of queues.

Each store is generated, rebuilt by the command in a process of its own, and removed. The highest resident size of each
kind of process (the command, its JVM, the largest Python worker) is read from `/proc`. Seconds are those of the report,
without the start of Spark.

    python -m benchmarks.growth --folder /tmp/spark-mq-growth --plot benchmarks/growth.svg
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.generate_store import generate_store
from benchmarks.index_memory import measure

_QUEUES_PER_TOPIC = 8
_GIB = 1 << 30


@dataclass(frozen=True)
class Point:
    """One rebuild: its size, its seconds, and megabytes of the driver, the JVM and the largest task."""

    log_gib: float
    queues: int
    messages: int
    seconds: float
    dispatch: float
    write_queues: float
    write_index: float
    driver: int
    jvm: int
    task: int


def rebuild_command(store: Path, output: Path) -> list[str]:
    """The command that rebuilds a store of a broker with default settings, and prints no progress."""
    rebuild = [sys.executable, "-m", "spark_mq", "rebuild", str(store), "--output", str(output)]
    return [*rebuild, "--quiet", "--assume-defaults"]


def rebuild(folder: Path, log_size: int, queues: int) -> Point:
    """Generate a store, rebuild it, and remove both."""
    store, output = folder / "store", folder / "rebuilt"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        made = generate_store(store, log_size=log_size, topics=queues // _QUEUES_PER_TOPIC, queues=_QUEUES_PER_TOPIC)
        os.sync()  # what is still to be written to disk would slow the rebuild
        highest, _, report = measure([*rebuild_command(store, output), "--json"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if report["units"] != made.messages or report["index_entries"] != made.keys:
        sys.exit(f"{report['units']} units and {report['index_entries']} entries, not {made}")
    stages = dict(report["stages"])  # type: ignore[call-overload]
    return Point(
        log_gib=made.log_bytes / _GIB,
        queues=queues,
        messages=made.messages,
        seconds=float(str(report["seconds"])),
        dispatch=stages["dispatch"],
        write_queues=stages["write queues"],
        write_index=stages["write index"],
        driver=highest["driver"] // 1_000_000,
        jvm=highest["JVM"] // 1_000_000,
        task=highest["task"] // 1_000_000,
    )


def plot(points: list[Point], file: Path) -> None:
    """Draw seconds and memory over the size of the log, and over the number of queues."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7), constrained_layout=True)
    few = min(point.queues for point in points)
    smallest = min(point.log_gib for point in points)
    by_size = [point for point in points if point.queues == few]
    by_queues = [point for point in points if point.log_gib == smallest]
    for column, (chosen, name, label) in enumerate(
        [(by_size, "log_gib", f"GiB of log, {few} queues"), (by_queues, "queues", f"queues, {smallest:.0f} GiB of log")]
    ):
        across = [getattr(point, name) for point in chosen]
        for value in ("seconds", "dispatch", "write_queues", "write_index"):
            axes[0][column].plot(across, [getattr(point, value) for point in chosen], marker="o", label=value)
        for value in ("driver", "jvm", "task"):
            axes[1][column].plot(across, [getattr(point, value) for point in chosen], marker="o", label=value)
        axes[0][column].set_ylabel("seconds")
        axes[1][column].set_ylabel("largest process, MB")
        for axis in (axes[0][column], axes[1][column]):
            axis.set_xlabel(label)
            axis.set_ylim(bottom=0)
            axis.legend()
    figure.savefig(file)


def main() -> int:
    """Measure every point, and print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for stores and output; removed after each rebuild")
    parser.add_argument("--gib", type=float, nargs="*", default=[1, 4, 16], help="sizes of the log with 32 queues")
    parser.add_argument("--queues", type=int, nargs="*", default=[1_000, 20_000], help="queues, with the first size")
    parser.add_argument("--plot", type=Path, help="an SVG file")
    arguments = parser.parse_args()
    sizes = [(gib, 32) for gib in arguments.gib] + [(arguments.gib[0], queues) for queues in arguments.queues]
    rebuild(arguments.folder, 16 << 20, 32)  # compiles the kernels, if they are not compiled
    points = []
    print(f"{os.cpu_count()} cores")
    print("| GiB | queues | messages | seconds | dispatch | queues | index | driver MB | JVM MB | task MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for gib, queues in sizes:
        point = rebuild(arguments.folder, int(gib * _GIB), queues)
        points.append(point)
        print(
            f"| {gib:g} | {queues:,} | {point.messages:,} | {point.seconds:.1f} | {point.dispatch:.1f} | "
            f"{point.write_queues:.1f} | {point.write_index:.1f} | {point.driver:,} | {point.jvm:,} | {point.task:,} |",
            flush=True,
        )
    if arguments.plot is not None:
        plot(points, arguments.plot)
    print(json.dumps([asdict(point) for point in points]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
