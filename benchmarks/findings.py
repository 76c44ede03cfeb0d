"""The memory of `spark-mq verify` with many findings: the highest resident size of each of its processes.

The store is generated and rebuilt once for each size, and then damaged: every unit of the queues gets another tags
code, and every entry of the index another time (`units`); or the magic of every second record is flipped (`records`).
The command writes all findings as Parquet, and its report as text.

    python -m benchmarks.findings --folder /tmp/spark-mq-findings --size 50MiB 880MiB
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.generate_store import generate_store
from benchmarks.index_memory import peaks
from spark_mq.format.amounts import parse_size
from spark_mq.format.consume_queue import UNIT_DTYPE
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, HEADER, IndexHeader, IndexLayout

_MESSAGE_SIZE = 300


def damage_units(store: Path) -> None:
    """Make every unit and every index entry wrong."""
    for file in (store / "consumequeue").glob("*/*/*"):
        units = np.memmap(file, UNIT_DTYPE, "r+")
        units["tags_code"][: np.count_nonzero(units["store_size"])] += 1
    entries_at = IndexLayout().entries_at
    for file in (store / "index").iterdir():
        count = IndexHeader(*HEADER.unpack(file.read_bytes()[: HEADER.size])).next_entry
        entries = np.memmap(file, ENTRY_DTYPE, "r+", entries_at, count)
        entries["time_difference"][1:] += 1
        assert entries.nbytes == count * ENTRY_SIZE


def damage_records(store: Path, unused: bytes = b"\xda\xa3\x20\xa7") -> None:
    """Flip a bit in the magic of every second record."""
    for file in (store / "commitlog").iterdir():
        data = np.memmap(file, np.uint8, "r+")
        at = [match.start() for match in re.finditer(re.escape(unused), data.data)]
        data[np.array(at[::2])] ^= 1


def check(store: Path, report: Path) -> tuple[dict[str, int], float, int]:
    """Run the command; the highest resident size of each kind of process, the seconds, and the number of findings."""
    highest: dict[str, int] = {}
    started = time.monotonic()
    command = [sys.executable, "-m", "spark_mq", "verify", str(store), "--report", str(report), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        for kind, peak in peaks(process.pid).values():
            highest[kind] = max(highest.get(kind, 0), peak)
        time.sleep(0.1)
    assert process.stdout is not None
    text = process.stdout.read()
    if process.returncode != 1:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}\n{text}")
    return highest, time.monotonic() - started, pq.ParquetFile(report).metadata.num_rows


def main() -> int:
    """Measure each size, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for stores and reports; removed after each size")
    parser.add_argument("--size", nargs="*", default=["50MiB", "880MiB"], help="bytes of records")
    parser.add_argument("--damage", choices=["units", "records"], default="units")
    arguments = parser.parse_args()
    print("| log | findings | seconds | driver MB | JVM MB | largest task MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for size in arguments.size:
        store = arguments.folder / "store"
        shutil.rmtree(arguments.folder, ignore_errors=True)
        try:
            generate_store(store, log_size=parse_size("--size", size), message_size=_MESSAGE_SIZE)
            if arguments.damage == "units":
                rebuild = [sys.executable, "-m", "spark_mq", "rebuild", str(store), "--assume-defaults", "--quiet"]
                subprocess.run(rebuild, stdout=subprocess.DEVNULL, check=True)
                damage_units(store)
            else:
                damage_records(store)
            highest, seconds, found = check(store, arguments.folder / "findings.parquet")
        finally:
            shutil.rmtree(arguments.folder, ignore_errors=True)
        megabytes = " | ".join(f"{highest.get(kind, 0) // 1_000_000:,}" for kind in ("driver", "JVM", "task"))
        print(f"| {size} | {found:,} | {seconds:.1f} | {megabytes} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
