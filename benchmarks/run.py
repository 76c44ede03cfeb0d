"""`make bench`: each figure compared with a plain sequential read of the same files, in one run.

Every measurement is repeated, and a plain read of the log precedes each repetition. The spread of the plain reads is
the noise of the machine. Figures are medians; ratios are taken pair by pair. Only a generated store (kept for the next
run) and scratch output are written, both into `--folder`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.generate_store import generate_store
from benchmarks.keys import print_keys
from benchmarks.points import print_points
from spark_mq import rebuild
from spark_mq.cli.spark import spark_session
from spark_mq.format.amounts import parse_size
from spark_mq.source.messages import MAX_BATCH_ROWS
from spark_mq.store.config.store_paths import CONSUME_QUEUE

WITHOUT_BODIES = (
    "commit_log_offset BIGINT, store_size INT, topic STRING, queue_id INT, queue_offset BIGINT, "
    "tags STRING, store_timestamp TIMESTAMP"
)
WITH_BODIES = f"{WITHOUT_BODIES}, body BINARY"
_BLOCK = 4 << 20


@dataclass(frozen=True)
class Figure:
    """The seconds of each repetition of one measurement, and of the plain read before each."""

    name: str
    seconds: list[float]
    plain_seconds: list[float]

    def line(self, messages: int, log_bytes: int) -> str:
        """A row of the table."""
        median = statistics.median(self.seconds)
        ratio = statistics.median(s / p for s, p in zip(self.seconds, self.plain_seconds, strict=True))
        spread = f"{min(self.seconds):.2f}-{max(self.seconds):.2f}"
        rate = f"{messages / median / 1e6:.2f}"
        return f"{self.name:38} {median:7.2f} {spread:>11} {rate:>10} {log_bytes / median / 2**20:8.0f} {ratio:10.1f}"


def plain_read(log: Path) -> float:
    """Seconds to read the whole log, block by block, into one buffer."""
    buffer = bytearray(_BLOCK)
    started = time.perf_counter()
    for segment in sorted(log.iterdir()):
        with segment.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - started


def measure(name: str, log: Path, repetitions: int, run: Callable[[], object]) -> Figure:
    """The seconds of `repetitions` pairs of a plain read and a run, after one warm-up."""
    run()
    seconds, plain = [], []
    for _ in range(repetitions):
        plain.append(plain_read(log))
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return Figure(name, seconds, plain)


def scan(spark: SparkSession, store: Path, schema: str | None) -> None:
    """Read every row, and discard it in the JVM."""
    reader = spark.read.format("rocketmq")
    reader = reader.schema(schema) if schema else reader
    reader.load(str(store)).write.format("noop").mode("overwrite").save()


def decode(store: Path, columns: list[str]) -> None:
    """Do the work of a scan's tasks in this process, one after the other, without Spark."""
    from spark_mq.format.kernels.batches import message_batches
    from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog, plan_splits
    from spark_mq.store.log.record_reader import RecordChunk
    from spark_mq.store.log.split_reader import read_split
    from spark_mq.store.message_store import MessageStore

    with MessageStore(str(store)) as opened:
        log = CommitLog.open(opened.location).ending_at(opened.live_end.offset)
    for split in plan_splits(log, DEFAULT_SPLIT_SIZE):
        for part in read_split(split):
            if isinstance(part, RecordChunk):
                for messages in message_batches(part.buffer, part.frames, columns, MAX_BATCH_ROWS):
                    messages.record_batch(columns)


@dataclass(frozen=True)
class _SameBatch:
    """A function for `mapInArrow` that yields one batch as often as a scan yields batches."""

    batch: pa.RecordBatch
    batches: int

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers:
            for _ in range(self.batches):
                yield self.batch


def hand_over(spark: SparkSession, batch: pa.RecordBatch, tasks: int, batches: int) -> None:
    """Pass as many rows from Python to the JVM as a scan does, and do nothing else: the limit that Spark sets."""
    from pyspark.sql.pandas.types import from_arrow_schema

    task = _SameBatch(batch, batches)
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(task, from_arrow_schema(batch.schema))
    rows.write.format("noop").mode("overwrite").save()


def sample_batch(store: Path, columns: list[str]) -> pa.RecordBatch:
    """The first batch of the log."""
    from spark_mq.format.kernels.batches import message_batches
    from spark_mq.io.location import Location
    from spark_mq.store.log.commit_log import CommitLog, plan_splits
    from spark_mq.store.log.record_reader import RecordChunk
    from spark_mq.store.log.split_reader import read_split

    log = CommitLog.open(Location.resolve(str(store)))
    part = next(read_split(plan_splits(log, 64 << 20)[0]))
    assert isinstance(part, RecordChunk)
    return next(message_batches(part.buffer, part.frames, columns, MAX_BATCH_ROWS)).record_batch(columns)


def peak_worker_memory() -> int:
    """The highest resident size so far, in bytes, of any Python worker of this process."""
    peak = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                status = (process / "status").read_text()
                peak = max(
                    peak, *(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))
                )
        except (OSError, ValueError):
            continue
    return peak


def java_rebuild(store: Path, scratch: Path, repetitions: int) -> list[tuple[float, float]]:
    """The seconds of the Java store's own rebuild (queues and index), and of the flush after it."""
    from tests.broker import harness

    if harness.missing() is not None:
        print(f"no rebuild by the Java store: {harness.missing()}", file=sys.stderr)
        return []
    results = []
    for _ in range(repetitions):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        shutil.copytree(store / "commitlog", scratch / "commitlog")
        segment_size = next((scratch / "commitlog").iterdir()).stat().st_size
        report = harness.java_rebuild(scratch, {"mappedFileSizeCommitLog": str(segment_size)})
        results.append((report["dispatchMilliseconds"] / 1000, report["flushMilliseconds"] / 1000))
    shutil.rmtree(scratch, ignore_errors=True)
    return results


def generated(folder: Path, size_text: str, message_size: int) -> Path:
    """The store of this size in `folder`, generated if it does not exist. Its `generated.json` counts its messages."""
    size = parse_size("--size", size_text)
    store = folder / f"store-{size}-{message_size}"
    facts_file = store / "generated.json"
    if not facts_file.exists():
        shutil.rmtree(store, ignore_errors=True)
        made = generate_store(store, log_size=size, message_size=message_size)
        facts_file.write_text(json.dumps({"messages": made.messages, "log_bytes": made.log_bytes}))
    return store


def main() -> int:
    """Generate the store if it does not exist, measure, and print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1GiB", help="bytes of records (1GiB)")
    parser.add_argument("--message-size", type=int, default=450, help="mean bytes of a record (450)")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the store and scratch output")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--skip-java", action="store_true", help="leave out the Java store's own rebuild")
    arguments = parser.parse_args()

    store = generated(arguments.folder, arguments.size, arguments.message_size)
    facts = json.loads((store / "generated.json").read_text())
    messages, log_bytes, log = facts["messages"], facts["log_bytes"], store / "commitlog"
    columns = [field.split()[0] for field in WITHOUT_BODIES.split(", ")]

    with spark_session("spark-mq benchmarks") as spark:
        batch = sample_batch(store, columns)
        body_batch = sample_batch(store, [*columns, "body"])
        batches = -(-messages // 16 // batch.num_rows)
        output = arguments.folder / "rebuilt"
        reports = []
        repetitions = arguments.repetitions
        figures = [
            measure("scan without bodies", log, repetitions, lambda: scan(spark, store, WITHOUT_BODIES)),
            measure("  decoding alone, one process", log, repetitions, lambda: decode(store, columns)),
            measure("  handing over alone", log, repetitions, lambda: hand_over(spark, batch, 16, batches)),
            measure("scan with bodies", log, repetitions, lambda: scan(spark, store, WITH_BODIES)),
            measure("  decoding alone, one process", log, repetitions, lambda: decode(store, [*columns, "body"])),
            measure("  handing over alone", log, repetitions, lambda: hand_over(spark, body_batch, 16, batches)),
            measure("scan of all columns", log, repetitions, lambda: scan(spark, store, None)),
        ]
        scan_memory = peak_worker_memory()

        def rebuild_all() -> None:
            reports.append(rebuild(spark, str(store), str(output), replace=True, assume_defaults=True))

        def rebuild_queues() -> None:
            rebuild(spark, str(store), str(output), only=CONSUME_QUEUE, replace=True)

        figures.append(measure("rebuild of queues and index", log, repetitions, rebuild_all))
        figures.append(measure("rebuild of consume queues", log, repetitions, rebuild_queues))
        stages = {name: statistics.median(r.stages[name] for r in reports[1:]) for name in reports[-1].stages}
        memory = peak_worker_memory()
        print_points(spark, arguments.folder)
        print_keys(spark, arguments.folder)
    shutil.rmtree(output)

    plain = [seconds for figure in figures for seconds in figure.plain_seconds]
    print(f"{messages:,} messages, {log_bytes:,} bytes of log, {os.cpu_count()} cores")
    print(f"plain read: median {statistics.median(plain):.2f} s, {min(plain):.2f}-{max(plain):.2f} s (the noise)\n")
    print(f"{'':38} {'seconds':>7} {'min-max':>11} {'M msg/s':>10} {'MiB/s':>8} {'/ read':>10}")
    for figure in figures:
        print(figure.line(messages, log_bytes))
    print(f"\nrebuild, by stage: {stages}; bytes read {reports[-1].bytes_read:,}")
    print(f"largest Python worker: {scan_memory >> 20} MiB after the scans, {memory >> 20} MiB in all")
    java = [] if arguments.skip_java else java_rebuild(store, arguments.folder / "java", 2)
    for dispatch, flush in java:
        print(f"the Java store's own rebuild of queues and index: {dispatch:.2f} s, and {flush:.2f} s to flush")
    print(json.dumps({figure.name.strip(): figure.seconds for figure in figures} | {"java": java}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
