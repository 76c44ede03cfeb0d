"""Scans through Spark beside a plain read of the same file, and where their time goes.

Each scan reads every row and discards it in the JVM. The CPU time of the Python workers, of the JVM and of the driver
is read from `/proc`. "handed over" passes ready batches of the same columns and does nothing else: the limit that Spark
sets.

    python -m benchmarks.scans --size 1GiB --folder /tmp/spark-mq-bench

With `--engine sail`, each scan runs in Spark and in Sail in turns: the table has the rates of both, and the ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.rebuild import StageClock
from benchmarks.run import WITH_BODIES, WITHOUT_BODIES, decode, generated, hand_over, plain_read, sample_batch, scan
from spark_mq.cli.spark import spark_session
from spark_mq.format.message_schema import MESSAGE_SCHEMA

PLAIN_SECONDS = 0.12
"""The seconds of a plain read on the machine of the aims."""


@dataclass(frozen=True)
class Scan:
    """A scan that is measured: its columns, as a schema, and its aim in million messages a second."""

    name: str
    schema: str | None
    aim: float

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return MESSAGE_SCHEMA.names if self.schema is None else [part.split()[0] for part in self.schema.split(", ")]


SCANS = (
    Scan("7 columns, without bodies", WITHOUT_BODIES, 2.2),
    Scan("8 columns, with bodies", WITH_BODIES, 1.7),
    Scan("all 22 columns", None, 1.0),
)


def measure(name: str, log: Path, repetitions: int, warm_ups: int, run: Callable[[], object]) -> dict[str, float]:
    """Medians: the seconds of `run`, of a plain read before each, and the CPU seconds of each kind of process."""
    for _ in range(warm_ups):
        run()
    rows: list[dict[str, float]] = []
    for _ in range(repetitions):
        plain, clock = plain_read(log), StageClock()
        clock.begin()
        run()
        clock.end(name)
        rows.append({**clock.stages[name], "plain": plain})
    result = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    return result | {"least": min(row["seconds"] for row in rows), "most": max(row["seconds"] for row in rows)}


def print_row(name: str, messages: int, figures: dict[str, float], aim: float | None = None) -> None:
    """Print a row of the table."""
    normal = figures["seconds"] * PLAIN_SECONDS / figures["plain"]
    print(
        f"| {name} | {figures['seconds']:.2f} ({figures['least']:.2f}-{figures['most']:.2f}) | {figures['plain']:.3f} "
        f"| {messages / figures['seconds'] / 1e6:.2f} | {messages / normal / 1e6:.2f} | {'' if aim is None else aim} "
        f"| {figures['task']:.2f} | {figures['JVM']:.2f} | {figures['driver']:.2f} |",
        flush=True,
    )


def measure_all(spark: SparkSession, store: Path, messages: int, arguments: argparse.Namespace) -> None:
    """Measure the chosen scans, and print a table."""
    print("| what | seconds | plain read | M messages/s | at 0.12 s | aim | workers' CPU | JVM's | driver's |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    log, repetitions, warm_ups = store / "commitlog", arguments.repetitions, arguments.warm_ups
    for each in (each for each in SCANS if arguments.only in each.name):
        figures = measure(each.name, log, repetitions, warm_ups, lambda: scan(spark, store, each.schema))  # noqa: B023
        print_row(each.name, messages, figures, each.aim)
        if arguments.scans_only:
            continue
        batch = sample_batch(store, each.columns)
        batches = -(-messages // 16 // batch.num_rows)
        figures = measure(each.name, log, repetitions, 1, lambda: hand_over(spark, batch, 16, batches))  # noqa: B023
        print_row("- handed over", messages, figures)
        figures = measure(each.name, log, repetitions, 1, lambda: decode(store, each.columns))  # noqa: B023
        print_row("- decoded in one process", messages, figures)


def seconds_of(run: Callable[[], object]) -> float:
    """The seconds of one run."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def compare_engines(spark: SparkSession, store: Path, messages: int, arguments: argparse.Namespace) -> None:
    """Scan in Spark and in Sail in turns, and print a table."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    from spark_mq import RocketMQDataSource
    from spark_mq._compat import register_source
    from spark_mq.sail import sail_server

    sail: Any = RemoteSession.builder.remote(sail_server()).create()
    register_source(sail, RocketMQDataSource)
    print("| what | Spark, seconds | Sail, seconds | Spark, M messages/s | Sail, M messages/s | ratio, by pairs |")
    print("| --- | --- | --- | --- | --- | --- |")
    for each in (each for each in SCANS if arguments.only in each.name):
        pairs = [
            [seconds_of(lambda: scan(engine, store, each.schema)) for engine in (spark, sail)]  # noqa: B023
            for _ in range(arguments.warm_ups + arguments.repetitions)
        ][arguments.warm_ups :]
        ratios = sorted(ours / theirs for ours, theirs in pairs)
        medians = [statistics.median(seconds) for seconds in zip(*pairs, strict=True)]
        rates = " | ".join(f"{messages / seconds / 1e6:.2f}" for seconds in medians)
        print(
            f"| {each.name} | {medians[0]:.2f} | {medians[1]:.2f} | {rates} "
            f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) |",
            flush=True,
        )


def main() -> int:
    """Generate the store if it does not exist, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1GiB", help="bytes of records (1GiB)")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the store")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--warm-ups", type=int, default=2, help="scans before the measured ones (2)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only scans that have this text in their name")
    parser.add_argument("--engine", choices=("spark", "sail"), default="spark", help="sail: compare it with Spark")
    parser.add_argument("--scans-only", action="store_true", help="leave out the parts of a scan")
    parser.add_argument("--spark-conf", action="append", default=[], metavar="NAME=VALUE", help="settings of Spark")
    arguments = parser.parse_args()
    store = generated(arguments.folder, arguments.size, 450)
    messages = json.loads((store / "generated.json").read_text())["messages"]
    settings = dict(setting.split("=", 1) for setting in arguments.spark_conf)
    started = time.perf_counter()
    with spark_session("scans", given=settings) as spark:
        (measure_all if arguments.engine == "spark" else compare_engines)(spark, store, messages, arguments)
    print(f"{messages:,} messages; {time.perf_counter() - started:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
