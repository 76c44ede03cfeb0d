"""The memory that a rebuild of full-size index files takes: 5 M slots, 20 M entries, 420,000,040 bytes each.

The messages of the generated store have thousands of short keys each. So a small log fills whole index files, and one
split contains the entries of several files. The command rebuilds the store in a process of its own. The highest
resident size of each of its processes (the command, its JVM, the Python workers) is read from `/proc`. The exit status
is 1 if a bound is exceeded.

    python -m benchmarks.index_memory --files 3 --folder /tmp/spark-mq-memory
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from spark_mq.format.index_file import IndexLayout
from spark_mq.format.record import Record, encode_blank

TASK_BOUND = 3_000_000_000
DRIVER_BOUND = 1_000_000_000
_SEGMENT_SIZE = 1 << 30
_PROPERTIES_SIZE = 32_000
"""Bytes, a little less than the maximum for properties."""
_START = 1_795_000_000_000


def make_store(store: Path, entries: int, key_size: int) -> int:
    """Write a log of one queue with `entries` keys of `key_size` bytes; returns the bytes of the log."""
    random = np.random.default_rng(0)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", np.uint8)
    (store / "commitlog").mkdir(parents=True)
    base, written, number = 0, 0, 0
    file = (store / "commitlog" / f"{base:020d}").open("wb")
    while entries > 0:
        count = min(entries, _PROPERTIES_SIZE // (key_size + 1))
        keys = np.full((count, key_size + 1), ord(" "), np.uint8)
        keys[:, :key_size] = letters[random.integers(0, letters.size, (count, key_size))]
        properties = b"KEYS\1" + keys.tobytes()[:-1] + b"\2"
        record = Record(
            topic=b"orders",
            properties=properties,
            queue_offset=number,
            commit_log_offset=base + written,
            born_timestamp=_START + number,
            store_timestamp=_START + number,
        )
        if written + record.size + 8 > _SEGMENT_SIZE:
            file.write(encode_blank(_SEGMENT_SIZE - written))
            file.close()
            base, written = base + _SEGMENT_SIZE, 0
            file = (store / "commitlog" / f"{base:020d}").open("wb")
            continue
        file.write(record.encode())
        written += record.size
        entries -= count
        number += 1
    file.truncate(_SEGMENT_SIZE)
    file.close()
    return base + written


def processes(process: int) -> dict[str, str]:
    """The kind of a process and of all its descendants, by process id: `driver`, `JVM` or `task`."""
    parents, kinds = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            parent = re.search(r"^PPid:\s+(\d+)", status.read_text(), re.MULTILINE)
            command = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent is not None:
            is_java = b"java" in command.split(b"\0")[0]
            parents[status.parent.name] = parent[1]
            kinds[status.parent.name] = "JVM" if is_java else "task" if b"daemon" in command else "driver"
    below = {str(process)}
    while more := {name for name, parent in parents.items() if parent in below} - below:
        below |= more
    return {name: kinds[name] for name in below if name in kinds}


def peaks(process: int) -> dict[str, tuple[str, int]]:
    """Kind and highest resident size, in bytes, of a process and all its descendants, by process id."""
    found = {}
    for name, kind in processes(process).items():
        try:
            peak = re.search(r"^VmHWM:\s+(\d+)", Path("/proc", name, "status").read_text(), re.MULTILINE)
        except OSError:
            continue
        if peak is not None:
            found[name] = kind, int(peak[1]) << 10
    return found


def measure(command: list[str]) -> tuple[dict[str, int], float, dict[str, object]]:
    """Run a rebuild; returns the highest resident size of each kind of process, the seconds, and the report."""
    highest: dict[str, int] = {}
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        for kind, peak in peaks(process.pid).values():
            highest[kind] = max(highest.get(kind, 0), peak)
        time.sleep(0.1)
    assert process.stdout is not None
    output = process.stdout.read()
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
    return highest, time.monotonic() - started, json.loads(output)


def main() -> int:
    """Generate the store, measure, and print; returns 1 if a bound is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=3, help="full index files (3)")
    parser.add_argument("--key-size", type=int, default=4, help="bytes of a key (4); 1 makes the most entries")
    parser.add_argument("--folder", type=Path, required=True, help="for store and output; removed at the end")
    arguments = parser.parse_args()
    layout = IndexLayout()
    capacity = layout.index_num - 1
    store, output = arguments.folder / "store", arguments.folder / "rebuilt"
    shutil.rmtree(arguments.folder, ignore_errors=True)
    try:
        log_bytes = make_store(store, arguments.files * capacity, arguments.key_size)
        command = [
            sys.executable,
            "-m",
            "spark_mq.cli.main",
            "rebuild",
            str(store),
            "--output",
            str(output),
            "--assume-defaults",
        ]
        highest, seconds, report = measure([*command, "--assume-defaults", "--json", "--quiet"])
        sizes = [file.stat().st_size for file in sorted((output / "index").iterdir())]
    finally:
        shutil.rmtree(arguments.folder, ignore_errors=True)
    if sizes != [layout.file_size] * arguments.files or report["index_entries"] != arguments.files * capacity:
        sys.exit(f"the index files are not as requested: {sizes}, {report['index_entries']} entries")
    made = f"{arguments.files} index files of {layout.file_size:,} bytes"
    print(f"{made} from {log_bytes:,} bytes of log, {os.cpu_count()} cores")
    print(f"  {seconds:.1f} s; {report['stages']}")
    for kind, peak in sorted(highest.items()):
        print(f"  largest {kind:7} {peak / 1e6:8,.0f} MB")
    return int(highest["task"] >= TASK_BOUND or highest["driver"] >= DRIVER_BOUND or highest["JVM"] >= DRIVER_BOUND)


if __name__ == "__main__":
    sys.exit(main())
