"""Table `messages` as a Spark stream: triggers, checkpoints, restarts, growth, and lost segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_mq._compat import HAS_READ_LIMITS
from spark_mq.testing import LogWriter
from tests.support.growing_stores import NOW, log_of, places, put
from tests.support.stores import WORKLOAD, Unpack, segment_files

SEGMENT_SIZE = 32 << 10


class Table:
    """A stream of a store into Parquet files, with a checkpoint."""

    def __init__(self, spark: SparkSession, store: Path, folder: Path) -> None:
        self._spark = spark
        self._store = store
        self._folder = folder

    def run(self, schema: str = "commit_log_offset BIGINT", **options: object) -> StreamingQuery:
        """Take what is there, with `Trigger.AvailableNow`."""
        texts = {key: str(value) for key, value in options.items()}
        stream = self._spark.readStream.format("rocketmq").schema(schema).options(**texts).load(str(self._store))
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(self._folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(self._folder / "table"))
        query.awaitTermination()
        return query

    def offsets(self) -> list[int]:
        rows = self._spark.read.parquet(str(self._folder / "table")).select("commit_log_offset").collect()
        return sorted(row.commit_log_offset for row in rows)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def table(spark: SparkSession, store: Path, tmp_path: Path) -> Table:
    return Table(spark, store, tmp_path)


def end_offset(query: StreamingQuery) -> dict[str, int]:
    assert query.lastProgress is not None
    offset: dict[str, int] = json.loads(query.lastProgress["sources"][0]["endOffset"])
    return offset


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark before 4.2 has no read limits")
def test_a_broker_s_store_in_batches(spark: SparkSession, unpacked: Unpack, tmp_path: Path) -> None:
    facts = WORKLOAD.facts("msg")
    table = Table(spark, unpacked(WORKLOAD), tmp_path)
    query = table.run(maxMessagesPerTrigger=len(facts) // 4 + 1, splitSize="32k")
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]][:3] == [
        len(facts) // 4 + 1
    ] * 3
    assert table.offsets() == sorted(fact["offset"] for fact in facts)


def test_each_run_takes_what_is_new(table: Table, store: Path) -> None:
    for count in (50, 50, 400):
        offsets = put(log_of(count, SEGMENT_SIZE), store)
        table.run()
        assert table.offsets() == offsets


def test_a_topic_without_new_messages_leaves_no_trace(table: Table, store: Path) -> None:
    put(log_of(50, SEGMENT_SIZE), store)
    query = table.run("commit_log_offset BIGINT, topic STRING", topic="none")
    assert query.exception() is None
    assert table.offsets() == []


def test_lost_segments_stop_the_query_or_are_counted(table: Table, store: Path) -> None:
    put(log_of(50, SEGMENT_SIZE), store)
    table.run()
    offsets = put(log_of(800, SEGMENT_SIZE), store)
    for file in segment_files(store)[:2]:
        file.unlink()
    start = int(segment_files(store)[0].name)
    before = table.offsets()
    with pytest.raises(PySparkException, match=r"bytes from commit log offset \d+.*failOnDataLoss=false"):
        table.run()
    assert table.offsets() == before
    query = table.run(failOnDataLoss="false", mode="DROPMALFORMED")
    assert table.offsets() == before + [offset for offset in offsets if offset >= start]
    assert end_offset(query)["lost_bytes"] == start - log_of(50, SEGMENT_SIZE).next_offset


def cut_log_of(count: int, kept: int, late: int) -> LogWriter:
    """As `log_of`, but what comes after the first `kept` messages was written so much later: with the same sizes."""
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(count):
        time = NOW + 10 * number + (late if number >= kept else 0)
        writer.append(time, b"x" * (number % 300), queue_id=number % 3)
    return writer


def messages_of(writer: LogWriter, start: int, late: int) -> list[tuple[int, int]]:
    """Offset and store time of the messages from number `start` on."""
    return [(at, NOW + 10 * number + late) for number, at in enumerate(writer.offsets)][start:]


SCHEMA = "commit_log_offset BIGINT, store_timestamp_millis BIGINT"


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}], ids=str)
def test_what_a_broker_wrote_over_the_lost_end_of_its_log_is_given(
    spark: SparkSession, store: Path, tmp_path: Path, trigger: dict[str, Any]
) -> None:
    def start(**options: str) -> StreamingQuery:
        stream = spark.readStream.format("rocketmq").schema(SCHEMA).options(**options).load(str(store))
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(**trigger).start(str(tmp_path / "table"))

    def given() -> list[tuple[int, int]]:
        return sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "table")).collect())

    def take(query: StreamingQuery) -> None:
        query.awaitTermination() if "availableNow" in trigger else query.processAllAvailable()

    put(log_of(200, SEGMENT_SIZE), store)
    first = messages_of(log_of(200, SEGMENT_SIZE), 0, 0)
    query = start()
    take(query)
    assert given() == first
    # The log is as long as before: no offset is new. A query that runs meanwhile sees it, too.
    second = cut_log_of(200, 150, 60_000)
    put(second, store)
    with pytest.raises(PySparkException, match="failOnLogCut=false"):
        query.awaitTermination(240) if query.isActive else take(start())
    assert given() == first
    query = start(failOnDataLoss="false")
    take(query)
    expected = first + messages_of(second, 150, 60_000)
    assert given() == sorted(expected)
    # And once more, beside a query that runs.
    third = cut_log_of(260, 100, 120_000)
    put(third, store)
    query = query if query.isActive else start(failOnDataLoss="false")
    take(query)
    query.stop()
    assert given() == sorted(expected + messages_of(third, 100, 120_000))


def test_one_store_grows_and_one_expires(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "stores.json"
    stores = [tmp_path / name for name in ("grows", "expires", "added")]

    def run(number: int, **options: str) -> StreamingQuery:
        file.write_text(json.dumps([{"path": store.name, "name": store.name} for store in stores[:number]]))
        reader = spark.readStream.format("rocketmq").options(stores=str(file), mode="DROPMALFORMED", **options)
        frame = reader.schema("store STRING, commit_log_offset BIGINT").load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
        query.awaitTermination()
        return query

    def given() -> list[tuple[str, int]]:
        return sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "table")).collect())

    first, old = put(log_of(50), stores[0]), put(log_of(50), stores[1])
    run(2)
    assert given() == places(grows=first, expires=old)
    more, new, late = put(log_of(80), stores[0]), put(log_of(400), stores[1]), put(log_of(20), stores[2])
    segment_files(stores[1])[0].unlink()
    start = int(segment_files(stores[1])[0].name)
    query = run(3, failOnDataLoss="false")
    kept = [offset for offset in new if offset >= start]
    assert len(kept) < len(new) - len(old)
    assert given() == places(grows=more, expires=old + kept, added=late)
    assert query.lastProgress is not None
    end = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert [one["store"] for one in end["stores"]] == ["added", "expires", "grows"]
