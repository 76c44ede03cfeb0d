"""Look-ups by key on a log of 1 GiB: warm, from a cold shell (with `mqadmin`), and in Spark (with a scan).

`benchmarks.run` measures all of them. Alone, the module measures the look-up of 100,000 keys in a join:

    python -m benchmarks.keys --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.points import SEGMENT_SIZE, Question, cold_line, make_store, questions, warm_line
from spark_mq import MessageStore, rebuild, register
from spark_mq.source.lookup_function import RocketMQLookup
from spark_mq.source.lookup_function import look_up as look_up_keys

_SEGMENTS = 16
_CALLS = 2000
_LATERAL_KEYS = 1000
_MANY_KEYS = 100_000
_REPETITIONS = 5
_SCHEMA = "topic STRING, unique_key STRING, keys ARRAY<STRING>, store_timestamp TIMESTAMP, transaction_type STRING"


def print_keys(spark: SparkSession, folder: Path) -> None:
    """Measure, and print a line for each figure."""
    store = make_store(spark, folder, _SEGMENTS)
    log_bytes = sum(file.stat().st_size for file in (store / "commitlog").iterdir())
    asked = questions(store, _CALLS)
    print(f"\nlook-ups by key, {_SEGMENTS} segments of {SEGMENT_SIZE >> 20} MiB, one index file")
    with MessageStore(str(store)) as opened:
        ask: Callable[[Question], object] = lambda one: opened.query_message(one.topic, one.unique_key)  # noqa: E731
        print(warm_line("  query_message, warm", asked, ask, _plain_reads(store)))
        before = opened.files.bytes_read
        for one in asked[:100]:
            opened.query_message(one.topic, one.unique_key)
        print(f"{'  bytes read for a key':38} {(opened.files.bytes_read - before) // 100:7,}")
    first = asked[0]
    print(cold_line("  query-by-key, cold", ["query-by-key", str(store), first.topic, first.unique_key]))
    _print_mqadmin(store, first)
    _print_spark(spark, store, first, log_bytes)
    _print_lateral(spark, store, asked[:_LATERAL_KEYS], log_bytes)
    _print_many(spark, store)


def _plain_reads(store: Path) -> Callable[[], None]:
    """A function that reads a header, a slot, an entry and a record of usual size from open files."""
    index_file = os.open(next((store / "index").iterdir()), os.O_RDONLY)
    record_file = os.open(next((store / "commitlog").iterdir()), os.O_RDONLY)

    def read() -> None:
        for length, position in ((40, 0), (4, 400_000), (20, 30_000_000)):
            os.pread(index_file, length, position)
        os.pread(record_file, 450, 4096)

    return read


def _print_mqadmin(store: Path, question: Question) -> None:
    """Print the time of the same question to a running broker: a process of mqadmin, which starts a JVM."""
    from tests.broker import harness

    if harness.missing() is not None:
        print(f"  no mqadmin: {harness.missing()}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(dir=store.parent) as scratch:
        copy = Path(shutil.copytree(store, Path(scratch) / "store", copy_function=os.link))
        for name in ("checkpoint", "abort"):  # a broker writes these; hard links would change the store
            (copy / name).unlink(missing_ok=True)
        shutil.copy2(store / "checkpoint", copy / "checkpoint")
        last = max((copy / "commitlog").iterdir())
        for path in [last, *(copy / "consumequeue").glob("*/*/*"), *(copy / "index").iterdir()]:
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)
        settings = {"mappedFileSizeCommitLog": str(SEGMENT_SIZE)}
        with harness.Broker(harness.VERSIONS[0], copy, settings) as broker:
            words = ["queryMsgByKey", "-t", question.topic, "-k", question.unique_key]
            seconds = []
            for _ in range(_REPETITIONS):
                started = time.perf_counter()
                harness.mqadmin(broker, words)
                seconds.append(time.perf_counter() - started)
    spread = f"{min(seconds):.3f}-{max(seconds):.3f}"
    print(f"{'  mqadmin queryMsgByKey, cold':28} {statistics.median(seconds):7.3f} s ({spread})")


def _print_spark(spark: SparkSession, store: Path, question: Question, log_bytes: int) -> None:
    """Print the times of a look-up through the index and of a scan that Spark filters, measured in pairs."""

    def look_up() -> int:
        reader = spark.read.format("rocketmq").schema(_SCHEMA)
        return reader.options(topic=question.topic, key=question.unique_key).load(str(store)).count()

    def scan() -> int:
        messages = spark.read.format("rocketmq").schema(_SCHEMA).load(str(store))
        return messages.where((messages.topic == question.topic) & (messages.unique_key == question.unique_key)).count()

    assert look_up() == scan() == 1
    pairs = [(_seconds(look_up), _seconds(scan)) for _ in range(_REPETITIONS)]
    ratio = statistics.median(long / short for short, long in pairs)
    times = [statistics.median(of_one) for of_one in zip(*pairs, strict=True)]
    with MessageStore(str(store)) as opened:
        opened.query_message(question.topic, question.unique_key)
        bytes_read = opened.files.bytes_read
    print(
        f"{'  key in Spark':28} {times[0]:7.3f} s, a scan {times[1]:.3f} s, {ratio:.1f} times as long; "
        f"{bytes_read:,} bytes read, 1/{log_bytes // bytes_read:,} of the log"
    )


def _print_lateral(spark: SparkSession, store: Path, asked: list[Question], log_bytes: int) -> None:
    register(spark)
    spark.createDataFrame(
        [(one.topic, one.unique_key) for one in asked], "topic STRING, id STRING"
    ).createOrReplaceTempView("asked")
    query = f"SELECT count(m.body) FROM asked a, LATERAL rocketmq_lookup('{store}', a.topic, a.id) m"
    found = spark.sql(query).first()
    assert found is not None
    seconds = [_seconds(partial(_count, spark, query)) for _ in range(_REPETITIONS)]
    function = RocketMQLookup()
    for one in asked:
        list(function.eval(str(store), one.topic, one.unique_key))
    bytes_read = sum(opened.files.bytes_read for opened in function._stores.values())
    function.terminate()
    print(
        f"{'  rocketmq_lookup':28} {statistics.median(seconds):7.3f} s for {len(asked):,} keys, {found[0]:,} rows: "
        f"{statistics.median(seconds) / len(asked) * 1e6:,.0f} µs a key; {bytes_read:,} bytes read, "
        f"1/{log_bytes // bytes_read:,} of the log"
    )


def _print_many(spark: SparkSession, store: Path) -> None:
    """Print the times of 100,000 keys joined with their messages, by 10 index files, and of two scans, in turns.

    One scan is of all columns, the other one of the columns that the join passes. The keys are in memory, in as many
    partitions as there are cores.
    """
    with tempfile.TemporaryDirectory(dir=store.parent) as scratch:
        copy, conf = Path(scratch) / "store", Path(scratch) / "broker.conf"
        shutil.copytree(store / "commitlog", copy / "commitlog", copy_function=os.link)
        conf.write_text("maxHashSlotNum=200000\nmaxIndexNum=700000\n")
        rebuild(spark, str(copy), broker_conf=str(conf))
        reader = spark.read.format("rocketmq").option("brokerConf", str(conf))
        messages = reader.load(str(copy))
        keys = messages.selectExpr("topic", "unique_key AS key").limit(_MANY_KEYS * 20).sample(0.05, seed=1)
        keys = keys.repartition(spark.sparkContext.defaultParallelism).cache()
        count = keys.count()

        def look_up() -> int:
            found = look_up_keys(keys, str(copy), ["queue_offset", "body"], str(conf))
            return int(found.selectExpr("count(body)").collect()[0][0])

        assert look_up() == count
        passed = reader.schema("topic STRING, unique_key STRING, queue_offset BIGINT, body BINARY").load(str(copy))
        scans = [partial(_scan, messages), partial(_scan, passed)]
        rounds = [(_seconds(look_up), *map(_seconds, scans)) for _ in range(_REPETITIONS)]
        look_up_time, of_all, of_passed = (statistics.median(of_one) for of_one in zip(*rounds, strict=True))
        ratios = [statistics.median(one[0] / one[scan] for one in rounds) for scan in (1, 2)]
        files = len(list((copy / "index").iterdir()))
        print(
            f"{'  look_up':28} {look_up_time:7.3f} s for {count:,} keys in a join, {files} index files; a scan of all "
            f"columns {of_all:.3f} s: {ratios[0]:.3f}; of the join's four {of_passed:.3f} s: {ratios[1]:.3f}"
        )


def _scan(messages: DataFrame) -> None:
    messages.write.format("noop").mode("overwrite").save()


def _count(spark: SparkSession, query: str) -> None:
    spark.sql(query).collect()


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def main() -> int:
    """Measure the look-up of many keys on all cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the store and scratch output")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    quiet: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.config(map=quiet).getOrCreate()
    _print_many(spark, make_store(spark, parser.parse_args().folder, _SEGMENTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
