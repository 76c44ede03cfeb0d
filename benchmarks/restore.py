"""`make bench`, restore: a store made again out of a store, beside `cp` of the result, and beside a real broker.

Each repetition is a pair, one after the other: a restore with queues and index, and `cp -a` of the store that it made,
flushed to the disk. Ratios are taken pair by pair, figures are medians. With `--broker`, a real broker is then sent
messages of about the same size over loopback, and the rates are compared. With `--memory`, the command restores the
store once in processes of its own, and the highest resident size of each kind of process is printed instead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.archive import made_store, timed
from benchmarks.index_memory import measure
from spark_mq.cli.spark import spark_session
from spark_mq.format.amounts import parse_size
from spark_mq.restorer.restore import restore
from spark_mq.restorer.store_job import RestoreReport
from tests.broker import harness

_SENT = 30_000
_BODY = 256


def copy(store: Path, target: Path) -> None:
    """Copy a store with `cp`, and flush it to the disk."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(store), str(target)], check=True)
    subprocess.run(["sync", "-f", str(target)], check=True)


def sent_per_second() -> float:
    """The messages that a real broker takes in a second from one client that waits for each answer."""
    with (
        tempfile.TemporaryDirectory() as folder,
        harness.Broker(harness.VERSIONS[0], Path(folder) / "store", {}) as broker,
    ):
        started = time.perf_counter()
        sent = harness.send(broker, "sequence", 1, _SENT, body=_BODY)
        return sent / (time.perf_counter() - started)


def print_memory(store: Path, made: Path, options: list[str]) -> None:
    """Restore with the command, and print the highest resident size of each kind of process."""
    remove(made)
    command = [sys.executable, "-m", "spark_mq", "restore", str(store), str(made), "--json", "--quiet", *options]
    highest, seconds, report = measure(command)
    sizes = ", ".join(f"{kind} {size // 1_000_000} MB" for kind, size in sorted(highest.items()))
    print(f"{report['messages']:,} messages {' '.join(options)}: {sizes}, {seconds:.1f} s with the start of Spark")


def remove(made: Path) -> None:
    """Remove a restored store, and its table of offsets."""
    for old in (made, Path(f"{made}_offsets")):
        shutil.rmtree(old, ignore_errors=True)


def main() -> int:
    """Measure, and print the figures and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1GiB", help="bytes of records (1GiB)")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the stores")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--renumber", action="store_true", help="give messages new offsets")
    parser.add_argument("--broker", action="store_true", help="compare with a real broker, too (needs Maven)")
    parser.add_argument("--broker-conf", help="the settings of the new store, with --memory")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of time")
    arguments = parser.parse_args()
    store = made_store(arguments.folder, parse_size("--size", arguments.size))
    made, copied = arguments.folder / "restored", arguments.folder / "copied"
    if arguments.memory:
        options = ["--renumber"] if arguments.renumber else []
        conf = [f"--broker-conf={arguments.broker_conf}"] if arguments.broker_conf else []
        print_memory(store, made, options + conf)
        return 0
    pairs: list[tuple[float, float]] = []
    report: RestoreReport | None = None
    with spark_session("spark-mq benchmark of restore") as spark:
        for number in range(arguments.repetitions + 1):
            remove(made)
            report = restore(spark, str(store), str(made), renumber=arguments.renumber)
            seconds = timed(lambda: copy(made, copied))
            if number:  # the first pair warms up
                pairs.append((report.seconds, seconds))
    assert report is not None
    restored, copying = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
    rate = report.messages / restored
    print(f"{report.messages:,} messages: restore {restored:.2f} s ({rate:,.0f} a second), cp {copying:.2f} s")
    print(f"restore takes {ratio:.1f} times as long as cp; stages: {report.stages}")
    result: dict[str, object] = {"pairs": pairs, "cores": os.cpu_count(), "stages": report.stages}
    if arguments.broker and (lacking := harness.missing()):
        print(f"not compared with a broker: {lacking}")
    elif arguments.broker:
        sent = sent_per_second()
        print(f"a broker takes {sent:,.0f} messages a second over loopback: restore is {rate / sent:.0f} times as fast")
        result["sent_per_second"] = sent
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
