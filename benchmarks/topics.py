"""A read by topic: by consume queues, and by a scan of the log, for topics of very different size.

The store has 100 topics; the largest has a fifth of the messages, the smallest less than a fifth of a percent. Some
topics are read in one process, without Spark, in turns: by queues whatever that costs, by a scan, and as the planner
chooses. With `--cold`, the pages of the store are dropped from the page cache before each read. With `--spark`, Spark
reads, with two cores: as the planner chooses, and by a scan, which mode FAILFAST needs. A data source of one row shows
what Spark itself costs.

    python -m benchmarks.topics --size 1GiB --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from pyspark.sql import DataFrame, SparkSession

from benchmarks.first_programs import OneRow
from benchmarks.generate_store import generate_store
from spark_mq import MessageStore
from spark_mq.format.amounts import parse_size
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.job.tasks import LocalTasks
from spark_mq.source import topic_plan
from spark_mq.source.options import parse_options
from spark_mq.store.queue.unit_cover import CLEARLY_LESS, coalesced, cost_of
from tests.support.in_process import message_batches

_SCHEMA = "topic STRING, queue_id INT, queue_offset BIGINT, store_timestamp TIMESTAMP, body BINARY"
_COLUMNS = tuple(part.split()[0] for part in _SCHEMA.split(", "))
_TOPICS, _QUEUES = 100, 4
_SHARES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.2)
"""Of each of these parts of the log, the topic that is nearest to it is read."""
_BY_QUEUES, _BY_SCAN = 1000.0, 0.0
"""Values of `CLEARLY_LESS` with which the planner always uses queues, or never."""


def make_store(folder: Path, size: int, message_size: int) -> Path:
    """A generated store with consume queues, and a checkpoint as after a clean stop."""
    store = folder / f"topics-{size}-{message_size}"
    if (store / "checkpoint").exists():
        return store
    shutil.rmtree(store, ignore_errors=True)
    generate_store(
        store, log_size=size - (1 << 20), message_size=message_size, topics=_TOPICS, queues=_QUEUES, skew=1.0
    )
    rebuild_with(LocalTasks(), RebuildRequest.of(str(store), only="consumequeue"))
    with MessageStore(str(store)) as opened:
        last_units = [queue.unit(queue.written_end - 1)[0] for queue in opened.queues.values()]
        newest = opened.records.store_timestamp(max(last_units))
    (store / "checkpoint").write_bytes(struct.pack(">qqqqq", newest, newest, 0, 0, 0).ljust(4096, b"\0"))
    return store


def topics_of(store: Path) -> dict[str, float]:
    """By topic, its part of the messages; topics near the parts that are measured, each once."""
    with MessageStore(str(store)) as opened:
        counts: dict[str, int] = {}
        for (topic, _), queue in opened.queues.items():
            counts[topic] = counts.get(topic, 0) + queue.written_end
    everything = sum(counts.values())
    nearest = [min(counts, key=lambda topic: abs(counts[topic] / everything - share)) for share in _SHARES]
    return {topic: counts[topic] / everything for topic in dict.fromkeys(nearest)}


def read(store: Path, topic: str) -> int:
    """The number of rows of a topic, which are read as the tasks of Spark read them."""
    return sum(batch.num_rows for batch in message_batches(_COLUMNS, path=str(store), topic=topic))


def drop_pages(store: Path) -> None:
    """Drop the pages of the store's files from the page cache."""
    for file in (*(store / "commitlog").iterdir(), *(store / "consumequeue").glob("*/*/*")):
        handle = os.open(file, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def seconds_of(store: Path, topic: str, clearly_less: float, is_cold: bool) -> float:
    """The seconds of one read, with this limit for reads by queues."""
    with mock.patch.object(topic_plan, "CLEARLY_LESS", clearly_less):
        if is_cold:
            drop_pages(store)
        started = time.perf_counter()
        read(store, topic)
        return time.perf_counter() - started


def print_spark_table(
    store: Path, topics: dict[str, float], repetitions: int, is_cold: bool, schema: str | None
) -> None:
    """Measure reads through Spark, and print a line for each topic."""
    from spark_mq.cli.spark import spark_session

    with spark_session("reads by topic") as spark:
        spark.dataSource.register(OneRow)
        _print_spark_table(spark, store, topics, repetitions, is_cold, schema)


def _print_spark_table(
    spark: SparkSession, store: Path, topics: dict[str, float], repetitions: int, is_cold: bool, schema: str | None
) -> None:

    def of_store(topic: str, mode: str) -> DataFrame:
        read = spark.read.format("rocketmq").options(topic=topic, mode=mode)
        return (read if schema is None else read.schema(schema)).load(str(store))

    reads: dict[str, Callable[[str], DataFrame]] = {
        "one row": lambda topic: spark.read.format("one_row").load(),
        "planner": lambda topic: of_store(topic, "PERMISSIVE"),
        "scan": lambda topic: of_store(topic, "FAILFAST"),
    }

    def seconds(frame: DataFrame) -> float:
        if is_cold:
            drop_pages(store)
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    for find in reads.values():
        seconds(find(next(iter(topics))))
    print("| messages | one row s | planner s | scan s | ratio | ratio beyond one row |")
    print("| --- | --- | --- | --- | --- | --- |")
    for topic, share in topics.items():
        taken: dict[str, list[float]] = {name: [] for name in reads}
        for _ in range(repetitions):
            for name, find in reads.items():
                taken[name].append(seconds(find(topic)))
        own, planner, scan = (statistics.median(taken[name]) for name in reads)
        beyond = (planner - own) / (scan - own)
        print(
            f"| {share:.2%} | {own:.2f} | {planner:.2f} | {scan:.2f} | {planner / scan:.2f} | {beyond:.2f} |",
            flush=True,
        )


def log_bytes_by_queues(store: Path, topic: str) -> int:
    """The bytes of the log that a read by queues reads."""
    with MessageStore(str(store)) as opened, mock.patch.object(topic_plan, "CLEARLY_LESS", _BY_QUEUES):
        options = parse_options({"path": str(store), "topic": topic})
        cover = topic_plan.topic_cover(options, opened, None)
        assert isinstance(cover, topic_plan.TopicCover)
        starts, stops = coalesced(cover.units.offsets, cover.units.sizes, cost_of(opened.location).gap)
        return int((stops - starts).sum()) + cover.log_cover.scanned


def main() -> None:
    """Measure, and print a line for each topic."""
    parser = argparse.ArgumentParser(description="Measure reads by topic.")
    parser.add_argument("--size", default="1GiB", help="bytes of the log (1GiB)")
    parser.add_argument("--message-size", type=int, default=450, help="mean bytes of a message (450)")
    parser.add_argument("--folder", default="/tmp/spark-mq-bench", help="a folder for the store")
    parser.add_argument("--repetitions", type=int, default=3, help="reads of each kind (3)")
    parser.add_argument("--cold", action="store_true", help="measure reads of files that are not in the page cache")
    parser.add_argument("--spark", action="store_true", help="measure reads through Spark")
    parser.add_argument("--all-columns", action="store_true", help="with --spark: read all 22 columns")
    parser.add_argument("--only", type=float, metavar="SHARE", help="only the topic that is nearest to this part")
    parser.add_argument("--make", action="store_true", help="only make the store")
    arguments = parser.parse_args()
    store = make_store(Path(arguments.folder), parse_size("--size", arguments.size), arguments.message_size)
    if arguments.make:
        return
    topics = topics_of(store)
    if arguments.only is not None:
        nearest = min(topics, key=lambda topic: abs(topics[topic] - arguments.only))
        topics = {nearest: topics[nearest]}
    if arguments.spark:
        schema = None if arguments.all_columns else _SCHEMA
        print_spark_table(store, topics, arguments.repetitions, arguments.cold, schema)
        return
    read(store, next(iter(topics)))
    limits = {"queues": _BY_QUEUES, "scan": _BY_SCAN, "planner": CLEARLY_LESS}
    log_size = sum(file.stat().st_size for file in (store / "commitlog").iterdir())
    print("| messages | log read | queues s | scan s | ratio | planner s | planner / better |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for topic, share in topics.items():
        part = log_bytes_by_queues(store, topic) / log_size
        taken: dict[str, list[float]] = {name: [] for name in limits}
        for _ in range(arguments.repetitions):
            for name, limit in limits.items():
                taken[name].append(seconds_of(store, topic, limit, arguments.cold))
        queues, scan, planner = (statistics.median(taken[name]) for name in limits)
        print(
            f"| {share:.2%} | {part:.2%} | {queues:.2f} | {scan:.2f} | {queues / scan:.2f} | {planner:.2f} "
            f"| {planner / min(queues, scan):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
