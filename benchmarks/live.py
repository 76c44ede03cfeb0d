"""Reads of a running broker beside the Java pull consumer, and how late a stream is.

A real broker on loopback has a topic with 8 queues. First, everything is read in turns: by Java's
DefaultMQPullConsumer (a thread for each queue), by Spark, and by the same reader without Spark, in one process. All
count messages and bytes of bodies, which have to be equal. This is done twice: with the broker's default limits (32
messages or 256 KiB a pull), and with limits of 1024 messages and 4 MiB. CPU seconds are those of the broker and of the
reader: on two cores, their sum decides. Ratios are taken pair by pair. What is handed over without a broker is what
Spark alone costs. One more read has a limit of bytes in a second.

Then a message is sent each 50 ms, and a stream reads the topic with a processing time of 0: the delay is the time from
the store timestamp to the moment in which `foreachBatch` has the row.

    python -m benchmarks.live --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from benchmarks.rebuild import cpu_seconds
from benchmarks.run import hand_over
from spark_mq.cli.spark import spark_session
from spark_mq.live import datasource as live
from spark_mq.live.messages import PARTITION_OFFSETS
from spark_mq.producer.writer import parse_topic_write_options, topic_writer
from tests.broker import harness

_TOPICS, _QUEUES = ("Messages", "Ticks"), 8
_BATCH_ROWS = 4096
_BODY_SIZES = 100, 900
_LIMITS = {"maxTransferCountOnMessageInMemory": (32, 1024), "maxTransferBytesOnMessageInMemory": (256 << 10, 4 << 20)}
"""Settings of the broker that limit a pull: the default, and larger ones."""
_LIMIT = 20_000_000
"""Bytes that a task may pull in a second, in one of the reads."""
_TICK = 0.05
_WARM_UP = 10.0
"""Seconds of a stream that do not count."""


@dataclass
class Figure:
    """The seconds of each read, and the CPU seconds of the broker and of the reader."""

    seconds: list[float] = field(default_factory=list)
    broker: list[float] = field(default_factory=list)
    reader: list[float] = field(default_factory=list)

    @property
    def cpu(self) -> tuple[float, float]:
        """The medians of the CPU seconds of the broker and of the reader."""
        return statistics.median(self.broker), statistics.median(self.reader)


def make_topics(store: Path) -> None:
    """Give a store without messages its topics."""
    topic = {"perm": 6, "readQueueNums": _QUEUES, "writeQueueNums": _QUEUES, "topicFilterType": "SINGLE_TAG"}
    (store / "config").mkdir(parents=True)
    topics = {name: topic | {"topicName": name} for name in _TOPICS}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))


def bodies(count: int) -> Iterator[pa.RecordBatch]:
    """Messages with bodies of random sizes."""
    random = np.random.default_rng(0)
    low, high = _BODY_SIZES
    text = random.bytes(1 << 20)
    for first in range(0, count, 1 << 16):
        sizes = random.integers(low, high + 1, min(1 << 16, count - first))
        starts = random.integers(0, len(text) - high, sizes.size)
        body = [text[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
        keys = [[f"order-{number}"] for number in range(first, first + sizes.size)]
        yield pa.record_batch({"body": pa.array(body), "keys": keys, "tags": pa.array(["paid"] * sizes.size)})


def send(address: str, topic: str, rows: Iterator[pa.RecordBatch]) -> None:
    """Send rows to a topic."""
    first = next(rows)
    options = parse_topic_write_options({"path": address, "topic": topic, "queueSelector": "round_robin"})
    writer = topic_writer(options, first.schema.names, overwrite=False)
    writer.write(iter([first]))
    writer.write(rows)


def read_in_process(address: str) -> tuple[int, int]:
    """Read bodies without Spark; returns messages, and bytes of bodies."""
    from pyspark.sql.types import BinaryType, StructType

    reader = live.reader({"path": address, "topic": _TOPICS[0]}, StructType().add("body", BinaryType()))
    messages = size = 0
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            messages += batch.num_rows
            size += pc.sum(pc.binary_length(batch["body"])).as_py()
    return messages, size


def read_in_spark(spark: SparkSession, address: str, **options: str) -> tuple[int, int]:
    """Read bodies; returns messages, and bytes of bodies."""
    given = {"topic": _TOPICS[0]} | options
    rows = spark.read.format("rocketmq").schema("body BINARY").options(**given).load(address)
    row = rows.selectExpr("count(*)", "sum(octet_length(body))").collect()[0]
    return row[0], row[1]


def read_all_columns(spark: SparkSession, address: str) -> None:
    """Read all columns, and discard them in the JVM."""
    rows = spark.read.format("rocketmq").option("topic", _TOPICS[0]).load(address)
    rows.write.format("noop").mode("overwrite").save()


def print_reads(spark: SparkSession, store: Path, messages: int, repetitions: int, number: int) -> None:
    """Read with one of the limits of a pull, and print a table."""
    settings = {name: str(limits[number]) for name, limits in _LIMITS.items()}
    with harness.Broker(harness.VERSIONS[0], store, settings) as broker:
        address = f"rocketmq://{broker.name_server}"
        if number == 0:
            started = time.perf_counter()
            send(address, _TOPICS[0], bodies(messages))
            print(f"{messages:,} messages sent in {time.perf_counter() - started:.1f} s")
        # As many rows in as many batches, without a broker: what Spark alone costs.
        batch, tasks = next(bodies(_BATCH_ROWS)).select(["body"]), messages // PARTITION_OFFSETS + 1
        batches = messages // _BATCH_ROWS // tasks
        with harness.PullConsumer(broker, _TOPICS[0], int(settings["maxTransferCountOnMessageInMemory"])) as consumer:
            reads: dict[str, Callable[[], tuple[int, int] | None]] = {
                "Java pull consumer": consumer.read,
                "Spark, bodies": lambda: read_in_spark(spark, address),
                "Spark, all columns": lambda: read_all_columns(spark, address),
                "without Spark, bodies, one process": lambda: read_in_process(address),
                "Spark, only handed over, bodies": lambda: hand_over(spark, batch, tasks, batches),
            }
            figures = {name: Figure() for name in reads}
            totals: set[tuple[int, int] | None] = set()
            for repetition in range(repetitions + 1):
                for name, read in reads.items():
                    cpu = broker_and_rest(broker)
                    started = time.perf_counter()
                    total = read()
                    seconds = time.perf_counter() - started
                    totals.add(total)
                    if repetition:  # the first round warms up
                        after = broker_and_rest(broker)
                        figures[name].seconds.append(seconds)
                        figures[name].broker.append(after[0] - cpu[0])
                        figures[name].reader.append(after[1] - cpu[1])
            limited = [] if number == 0 else limited_read(spark, broker)
    counted = totals - {None}
    if len(counted) != 1:
        raise SystemExit(f"readers have not the same messages and bytes: {counted}")
    found, size = counted.pop() or (0, 0)
    print(f"\n{settings}: {found:,} messages, {size:,} bytes of bodies")
    print("| reader | seconds | / Java | CPU: broker, reader | CPU of Java / CPU |")
    print("| --- | --- | --- | --- | --- |")
    java = next(iter(figures.values()))
    for name, figure in figures.items():
        median = statistics.median(figure.seconds)
        ratio = statistics.median(there / here for there, here in zip(java.seconds, figure.seconds, strict=True))
        spread = f"{min(figure.seconds):.2f}-{max(figure.seconds):.2f}"
        used = ", ".join(f"{seconds:.2f}" for seconds in figure.cpu)
        of_cpu = sum(java.cpu) / sum(figure.cpu)
        print(f"| {name} | {median:.2f} ({spread}) | {ratio:.2f} | {used} | {of_cpu:.2f} |")
    if limited:
        allowed = _LIMIT * 2 / 1e6
        print(f"{allowed:.0f} MB a second allowed in two tasks: the broker sent", end=" ")
        print(f"{statistics.mean(limited) / 1e6:.1f} on average, at most {max(limited) / 1e6:.1f}")


def limited_read(spark: SparkSession, broker: harness.Broker) -> list[float]:
    """The bytes that the broker sends in each second of a read with a limit of bytes."""
    address, ended, sent = f"rocketmq://{broker.name_server}", threading.Event(), []

    def sample() -> None:
        last = bytes_written(broker.process_id)
        while not ended.wait(1):
            now = bytes_written(broker.process_id)
            sent.append(float(now - last))
            last = now

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        read_in_spark(spark, address, maxBytesPerSecond=str(_LIMIT))
    finally:
        ended.set()
        sampler.join()
    return sent[1:]


def bytes_written(process: int) -> int:
    """The bytes that a process has written so far to files and sockets."""
    lines = Path("/proc", str(process), "io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def broker_and_rest(broker: harness.Broker) -> tuple[float, float]:
    """The CPU seconds so far of the broker, and of all other processes of the benchmark."""
    of_broker = sum(cpu_seconds(broker.process_id).values())
    return of_broker, sum(cpu_seconds(os.getpid()).values()) - of_broker


def print_delay(spark: SparkSession, store: Path, folder: Path, seconds: float) -> None:
    """Let a stream read what is sent, and print how late it is."""
    delays: list[float] = []

    def note(rows: DataFrame, batch: int) -> None:
        stored = [row[0] for row in rows.selectExpr("unix_millis(store_timestamp)").collect()]
        now = time.time()
        delays.extend(now - one / 1000 for one in stored)

    with harness.Broker(harness.VERSIONS[0], store, {}) as broker:
        address = f"rocketmq://{broker.name_server}"
        ended = threading.Event()
        ticks = threading.Thread(target=lambda: tick(address, ended))
        checkpoint = folder / "checkpoint live"
        shutil.rmtree(checkpoint, ignore_errors=True)
        rows = spark.readStream.format("rocketmq").option("topic", _TOPICS[1]).load(address)
        writer = rows.writeStream.foreachBatch(note).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(processingTime="0 seconds").start()
        ticks.start()
        try:
            time.sleep(_WARM_UP)
            delays.clear()
            time.sleep(seconds)
        finally:
            ended.set()
            ticks.join()
        query.processAllAvailable()
        reports = query.recentProgress
        query.stop()
    low, high = np.percentile(delays, [50, 95])
    print(f"\n{len(delays)} messages, one each {_TICK * 1000:.0f} ms: from stored to row")
    print(f"median {low:.2f} s, 95 % within {high:.2f} s, at most {max(delays):.2f} s")
    with_rows = [one["durationMs"] for one in reports if one["numInputRows"]][3:]
    phases = {name: statistics.median(one.get(name, 0) for one in with_rows) for name in with_rows[-1]}
    print(f"{len(with_rows)} batches; medians in milliseconds: {phases}")


def tick(address: str, ended: threading.Event) -> None:
    """Send a message each 50 ms."""
    options = parse_topic_write_options({"path": address, "topic": _TOPICS[1]})
    writer = topic_writer(options, ["body"], overwrite=False)
    while not ended.wait(_TICK):
        writer.write(iter([pa.record_batch({"body": pa.array([b"%d" % time.time_ns()])})]))


def main() -> int:
    """Fill a broker, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the store")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages of the topic (1,000,000)")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30, help="how long the stream is measured (30)")
    arguments = parser.parse_args()
    if lacking := harness.missing():
        print(f"no reads of a broker: {lacking}")
        return 0
    # The harness starts Java for tests, which are short. Here all compilers of Java work.
    os.environ["_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=4"
    store = arguments.folder / "live"
    shutil.rmtree(store, ignore_errors=True)
    make_topics(store)
    settings = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with spark_session("live", given=settings) as spark:
        for number in range(2):
            print_reads(spark, store, arguments.messages, arguments.repetitions, number)
        print_delay(spark, store, arguments.folder, arguments.seconds)
    print(f"load {os.getloadavg()[0]:.1f}")
    shutil.rmtree(store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
