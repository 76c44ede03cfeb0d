"""The tables beside `messages`, read as a user reads them. What they hold is tested in `tests/store/test_tables.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from spark_mq import MessageStore
from spark_mq.store import tables
from tests.real_stores import OWN_STORES, RealStore, stores_in

Unpack = Callable[[RealStore], Path]
WORKLOAD = next(store for store in stores_in(OWN_STORES) if store.name == "workload-533")
SMALL: dict[str, Callable[[MessageStore], pa.Table]] = {
    "segments": tables.segments,
    "queues": tables.queues,
    "topics": tables.topics,
    "consumer_offsets": tables.consumer_offsets,
}


def read(spark: SparkSession, path: Path, table: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").option("table", table).options(**options).load(str(path))


@pytest.mark.parametrize("table", SMALL)
def test_a_small_table_has_the_rows_of_the_store(spark: SparkSession, unpacked: Unpack, table: str) -> None:
    path = unpacked(WORKLOAD)
    rows = read(spark, path, table).toArrow().to_pylist()
    assert rows
    assert rows == SMALL[table](MessageStore(str(path))).to_pylist()


def test_a_consume_queue_has_a_row_for_each_unit(spark: SparkSession, unpacked: Unpack) -> None:
    frame = read(spark, unpacked(WORKLOAD), "consume_queue")
    rows = frame.where("state = 'LIVE'").select("topic", "queue_id", "queue_offset", "commit_log_offset").collect()
    wanted = {
        (fact["topic"], fact["queueId"], fact["queueOffset"], fact["offset"])
        for fact in WORKLOAD.facts("msg")
        if fact["sysFlag"] & 0xC in (0, 8)
    }
    assert len(rows) == len(wanted)
    assert {tuple(row) for row in rows} == wanted


def test_options_choose_queues_and_groups(spark: SparkSession, unpacked: Unpack) -> None:
    path = unpacked(WORKLOAD)
    units = read(spark, path, "consume_queue", topic="OrderEvents", queueId="1").select("topic", "queue_id").distinct()
    assert [tuple(row) for row in units.collect()] == [("OrderEvents", 1)]
    assert read(spark, path, "consume_queue", topic="no such topic").count() == 0
    assert read(spark, path, "queues", topic="OrderEvents").count() == 4
    assert read(spark, path, "consumer_offsets", consumerGroup="GID_failing").count() == 2
    moved = read(spark, path, "queues", topic="MovedQueue", brokerVersion="4.9").collect()
    assert [row.min_offset for row in moved] == [400]  # pre-blank units, which 4.9 takes for the queue's first


def test_a_schema_chooses_columns(spark: SparkSession, unpacked: Unpack) -> None:
    reader = spark.read.format("rocketmq").option("table", "queues").schema("max_offset BIGINT, topic STRING")
    row = reader.load(str(unpacked(WORKLOAD))).where("topic = 'MovedQueue'").first()
    assert row is not None
    assert tuple(row) == (462, "MovedQueue")


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("queues", {"splitSize": "64m"}, "splitSize has no effect on table queues"),
        ("segments", {"topic": "T"}, "topic has no effect on table segments; it has none"),
        ("consume_queue", {"queueId": "first"}, "queueId"),
        ("queues", {"brokerVersion": "3"}, "broker version"),
        ("queus", {}, "none of messages, consume_queue"),
    ],
)
def test_options_that_do_nothing_are_errors(
    spark: SparkSession, unpacked: Unpack, table: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        read(spark, unpacked(WORKLOAD), table, **options)


def test_a_column_of_another_table_is_an_error(spark: SparkSession, unpacked: Unpack) -> None:
    reader = spark.read.format("rocketmq").option("table", "queues").schema("body BINARY")
    with pytest.raises(AnalysisException, match="queues has no column body"):
        reader.load(str(unpacked(WORKLOAD))).count()
