"""`make bench`, archive: throughput compared with a plain Parquet write, a look-up by key compared with a full scan.

Each repetition is a pair, one after the other: a plain write of the same DataFrame, and an archive of the same store
into new tables. Ratios are taken pair by pair, figures are medians.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.generate_store import generate_store
from spark_mq.archive.archive_tables import StoreIdentity
from spark_mq.archive.archived_store import query_message
from spark_mq.archive.delta import delta_settings
from spark_mq.archive.maintenance import maintain
from spark_mq.archive.report import ArchiveReport
from spark_mq.archive.streams import archive_rows, source_schema
from spark_mq.archive.writer import archive
from spark_mq.cli.spark import spark_session
from spark_mq.format.amounts import parse_size


def timed(run: Callable[[], object]) -> float:
    """The seconds that `run` takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def made_store(folder: Path, size: int) -> Path:
    """The generated store of this size, which is made once."""
    store = folder / f"archive-store-{size}"
    if not (store / "made").exists():
        shutil.rmtree(store, ignore_errors=True)
        generate_store(store, log_size=size, segment_size=256 << 20)
        (store / "made").touch()
    return store


def plain_write(spark: SparkSession, store: Path, output: Path) -> None:
    """Write the rows of an archive as plain Parquet files."""
    messages = spark.read.format("rocketmq").schema(source_schema()).load(str(store))
    archive_rows(messages, StoreIdentity("c", "b", "s")).write.mode("overwrite").parquet(str(output))


def new_archive(spark: SparkSession, store: Path, folder: Path) -> ArchiveReport:
    """Archive the store into new tables; returns the report."""
    shutil.rmtree(folder, ignore_errors=True)
    return archive(spark, str(store), str(folder / "messages"))


def full_scan(spark: SparkSession, table: str, key: str) -> None:
    """Read the messages with a key by a scan, without the table of keys."""
    spark.read.format("delta").load(table).where(F.array_contains("keys", key)).collect()


def main() -> int:
    """Measure, and print the figures and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1GiB", help="bytes of records (1GiB)")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the store and the archive")
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    size = parse_size("--size", arguments.size)
    store, lake, plain = made_store(arguments.folder, size), arguments.folder / "lake", arguments.folder / "plain"
    table = str(lake / "messages")
    pairs: list[tuple[float, float, float]] = []
    with spark_session("spark-mq benchmark of the archive", delta_settings) as spark:
        for number in range(arguments.repetitions + 1):
            seconds = timed(lambda: plain_write(spark, store, plain))
            report = new_archive(spark, store, lake)
            if number:  # the first pair warms up
                pairs.append((seconds, report.stages["messages"], report.seconds))
        rows = spark.read.format("delta").load(f"{table}_keys").where("key_type = 'KEYS'").limit(1).collect()
        topic, key = rows[0].topic, rows[0].key
        found = {}
        for layout in ("as appended", "clustered"):
            if layout == "clustered":
                maintain(spark, table, file_size=64 << 20, dry_run=False)
            query_message(spark, table, topic, key).count()
            looked_up = [timed(lambda: query_message(spark, table, topic, key).collect()) for _ in range(5)]
            scanned = [timed(lambda: full_scan(spark, table, key)) for _ in range(5)]
            found[layout] = (statistics.median(looked_up), statistics.median(scanned))
    write, messages, whole = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{report.rows:,} messages, {report.keys:,} keys")
    print(
        f"plain Parquet write {write:.2f} s; archive: messages {messages:.2f} s, with keys and all else {whole:.2f} s"
    )
    ratios = [statistics.median(pair[0] / pair[part] for pair in pairs) for part in (1, 2)]
    print(f"throughput relative to the plain write: messages {ratios[0]:.2f} (aim 0.7), all {ratios[1]:.2f}")
    for layout, (look_up, scan) in found.items():
        print(f"{layout}: look-up by key {look_up:.2f} s, full scan {scan:.2f} s, {scan / look_up:.1f} times as long")
    print(json.dumps({"pairs": pairs, "look_ups": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
