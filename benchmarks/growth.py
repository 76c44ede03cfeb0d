"""How time and memory of whole commands grow: with the log, its queues, and its index files; Spark only for archives.

Each store is generated. Commands rebuild it, check it, search it for a key, scan it and restore it; then it is removed.
Seconds of a processor and the highest resident size are those of the process. A busy machine changes them less than the
seconds that passed. An archive has more processes: the table has the largest.

    python -m benchmarks.growth --folder /tmp/spark-mq-growth --plot benchmarks/growth.svg

A row is named `KIND:GiB:QUEUES:INDEX FILES`. Messages are of 450 bytes (`dense`), or of 64 KiB whose bodies are holes
of the file (`sparse`), so that a log of 64 GiB needs 8 GiB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.index_memory import peaks
from spark_mq.format.index_file import IndexLayout

_QUEUES_PER_TOPIC = 8
_GIB = 1 << 30
_ROWS = (
    *(f"dense:{gib}:32:1" for gib in (1, 4, 16)),
    *(f"sparse:{gib}:32:1" for gib in (4, 16, 64)),
    *(f"dense:1:{queues}:1" for queues in (1_000, 20_000)),
    *(f"dense:1:32:{files}" for files in (10, 50)),
)
OPERATIONS = ("rebuild", "verify", "key", "scan", "restore", "archive")
_NOT_FOUND = 3
SCANNED = ["topic", "queue_id", "queue_offset", "commit_log_offset", "store_timestamp", "tags", "keys"]


@dataclass(frozen=True)
class Point:
    """One command on one store: seconds that passed and seconds of a processor, and bytes of its largest process."""

    row: str
    operation: str
    messages: int
    seconds: float
    cpu: float
    largest: int


def command(*words: str | Path) -> list[str]:
    """A command of the package."""
    return [sys.executable, "-m", "spark_mq", *map(str, words)]


def rebuild_command(store: Path, output: Path) -> list[str]:
    """The command that rebuilds a store of a broker with default settings, and prints no progress."""
    return [*command("rebuild", store, "--output", output), "--quiet", "--assume-defaults"]


def run(words: list[str]) -> tuple[float, float, int]:
    """The seconds of a command, its CPU seconds, and the highest resident size of any of its processes."""
    started, largest = time.perf_counter(), 0
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        largest = max([largest, *(peak for _, peak in peaks(process.pid).values())])
        time.sleep(0.1)
    _, status, used = ended
    if os.waitstatus_to_exitcode(status) not in (0, _NOT_FOUND):
        sys.exit(f"{' '.join(words)}: exit status {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, max(largest, used.ru_maxrss << 10)


def points(folder: Path, row: str, operations: list[str]) -> Iterator[Point]:
    """Generate the store of a row, and measure commands on it; a rebuild comes first, because the others need it."""
    kind, gib, queues, files = row.split(":")
    store, other, conf = folder / "store", folder / "other", folder / "broker.conf"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        made = _generate(store, kind == "sparse", int(float(gib) * _GIB), int(queues))
        default = IndexLayout()
        entries = -(-made["keys"] // int(files)) if files != "1" else default.index_num - 1
        slots = max(entries // 4, 1) if files != "1" else default.hash_slot_num
        conf.write_text(f"maxHashSlotNum={slots}\nmaxIndexNum={entries + 1}\n")
        own = ["--broker-conf", str(conf)]
        commands = {
            "rebuild": [*command("rebuild", store, "--quiet"), *own],
            "verify": [*command("verify", store, "--quiet"), *own],
            "key": command("query-by-key", store, "orders", "ORD-no-message-has-it"),
            "scan": [sys.executable, "-m", "benchmarks.growth", "--scan", str(store)],
            "restore": [*command("restore", store, other, "--quiet", "--engine", "local"), *own],
            "archive": command("archive", store, other / "messages"),
        }
        for operation in ("rebuild", *(one for one in operations if one != "rebuild")):
            os.sync()  # what is still to be written to disk would slow the command
            yield Point(row, operation, made["messages"], *run(commands[operation]))
            shutil.rmtree(other, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _generate(store: Path, is_sparse: bool, log_size: int, queues: int) -> dict[str, int]:
    """Generate a store in a process of its own: a command counts the memory of the process that starts it, too."""
    words = [sys.executable, "-m", "benchmarks.generate_store", str(store), "--log-size", str(log_size)]
    words += ["--topics", str(queues // _QUEUES_PER_TOPIC), "--queues", str(_QUEUES_PER_TOPIC)]
    words += ["--message-size", "64KiB", "--sparse"] if is_sparse else []
    made: dict[str, int] = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    return made


def plot(found: list[Point], file: Path) -> None:
    """Draw CPU seconds and memory of each operation: over the log of both kinds, over queues, over index files."""
    from matplotlib import pyplot

    draw: Any = pyplot  # its types are incomplete
    splits = [tuple(point.row.split(":")) for point in found]
    smallest = min(float(gib) for kind, gib, *_ in splits if kind == "dense")
    columns: list[tuple[str, int, Callable[[tuple[str, ...]], bool]]] = [
        ("GiB of log, messages of 450 bytes", 1, lambda row: row[0] == "dense" and row[2:] == ("32", "1")),
        ("GiB of log, messages of 64 KiB", 1, lambda row: row[0] == "sparse"),
        (f"queues, {smallest:g} GiB", 2, lambda row: row[0] == "dense" and float(row[1]) == smallest and row[3] == "1"),
        (f"index files, {smallest:g} GiB", 3, lambda row: row[0] == "dense" and row[1:3] == (f"{smallest:g}", "32")),
    ]
    figure, axes = draw.subplots(2, len(columns), figsize=(18, 7), constrained_layout=True)
    for column, (label, at, belongs) in enumerate(columns):
        for operation in OPERATIONS:
            chosen = sorted(
                (float(row[at]), point.cpu, point.largest / (1 << 20))
                for row, point in zip(splits, found, strict=True)
                if point.operation == operation and belongs(row)
            )
            for line, values in enumerate(([cpu for _, cpu, _ in chosen], [memory for *_, memory in chosen])):
                if values:
                    axes[line][column].plot([across for across, *_ in chosen], values, marker="o", label=operation)
        for line, name in enumerate(("seconds of a processor", "largest process, MiB")):
            axes[line][column].set_ylabel(name)
            axes[line][column].set_xlabel(label)
            axes[line][column].set_ylim(bottom=0)
            axes[line][column].legend()
    figure.savefig(file)


def main() -> int:
    """Measure every row, and print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="for stores and output; removed after each row")
    parser.add_argument("--rows", nargs="*", default=_ROWS, metavar="ROW", help="rows, as described above")
    parser.add_argument("--operations", nargs="*", default=OPERATIONS[:-1], choices=OPERATIONS)
    parser.add_argument("--points", type=Path, help="a JSON file of earlier points; new ones are added")
    parser.add_argument("--plot", type=Path, help="an SVG file")
    parser.add_argument("--scan", type=Path, metavar="STORE", help="only scan a store, in this process")
    arguments = parser.parse_args()
    if arguments.scan is not None:
        from benchmarks.run import decode

        decode(arguments.scan, SCANNED)
        return 0
    found: list[Point] = []
    if arguments.points is not None and arguments.points.exists():
        found = [Point(**point) for point in json.loads(arguments.points.read_text())]
    print("| kind | GiB | queues | index files | messages | operation | seconds | CPU | largest, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in arguments.rows:
        for point in points(arguments.folder, row, list(arguments.operations)):
            found = [one for one in found if (one.row, one.operation) != (point.row, point.operation)] + [point]
            print(
                f"| {row.replace(':', ' | ')} | {point.messages:,} | {point.operation} | {point.seconds:.1f} | "
                f"{point.cpu:.2f} | {point.largest >> 20} |",
                flush=True,
            )
            if arguments.points is not None:
                arguments.points.write_text(json.dumps([asdict(one) for one in found]))
    if arguments.plot is not None:
        plot(found, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
