"""`make bench`, restore: a store made again out of a store, beside `cp` of the result, and beside a real broker.

Each repetition is a pair, one after the other: a restore with queues and index, and `cp -a` of the store that it made,
flushed to the disk. Ratios are taken pair by pair, figures are medians. With `--broker`, a real broker is then sent
messages of about the same size over loopback, and the rates are compared.
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
from spark_mq.cli.spark import spark_session
from spark_mq.restorer.report import RestoreReport
from spark_mq.restorer.restore import restore
from spark_mq.source.option_values import parse_size

_SENT = 30_000
_BODY = 256


def copy(store: Path, target: Path) -> None:
    """Copy a store with `cp`, and flush it to the disk."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(store), str(target)], check=True)
    subprocess.run(["sync", "-f", str(target)], check=True)


def sent_per_second() -> float:
    """The messages that a real broker takes in a second from one client that waits for each answer."""
    from tests.broker import harness

    with (
        tempfile.TemporaryDirectory() as folder,
        harness.Broker(harness.VERSIONS[0], Path(folder) / "store", {}) as broker,
    ):
        started = time.perf_counter()
        sent = harness.send(broker, "sequence", 1, _SENT, body=_BODY)
        return sent / (time.perf_counter() - started)


def main() -> int:
    """Measure, and print the figures and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1GiB", help="bytes of records (1GiB)")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the stores")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--renumber", action="store_true", help="give messages new offsets")
    parser.add_argument("--broker", action="store_true", help="compare with a real broker, too (needs Maven)")
    arguments = parser.parse_args()
    store = made_store(arguments.folder, parse_size("--size", arguments.size))
    made, copied = arguments.folder / "restored", arguments.folder / "copied"
    pairs: list[tuple[float, float]] = []
    report: RestoreReport | None = None
    with spark_session("spark-mq benchmark of restore") as spark:
        for number in range(arguments.repetitions + 1):
            for old in (made, Path(f"{made}_offsets")):
                shutil.rmtree(old, ignore_errors=True)
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
    if arguments.broker:
        sent = sent_per_second()
        print(f"a broker takes {sent:,.0f} messages a second over loopback: restore is {rate / sent:.0f} times as fast")
        result["sent_per_second"] = sent
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
