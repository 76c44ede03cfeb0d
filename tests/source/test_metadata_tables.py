"""The tables beside `messages`, read as a user reads them; `tests/store/test_metadata_tables.py` tests their rules."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_mq import MessageStore
from spark_mq.lifecycle.consumer_progress import consumer_progress_rows
from spark_mq.lifecycle.delayed import delayed_rows
from spark_mq.lifecycle.retries import dead_letters_rows, retries_rows
from spark_mq.lifecycle.statistics import duplicates_rows, hot_keys_rows, rates_rows, skew_rows
from spark_mq.lifecycle.traces import traces_rows
from spark_mq.lifecycle.transactions import transaction_rows
from spark_mq.store import metadata_tables
from spark_mq.store.metadata_tables import consumer_filters
from spark_mq.store.retention import retention_rows
from tests.support.filtered_store import FILTERED, TOPIC
from tests.support.index_stores import index_files, layout_of
from tests.support.stores import WORKLOAD, Unpack, without_full_index_files

SMALL: dict[str, Callable[[MessageStore], pa.Table]] = {
    "segments": metadata_tables.segments,
    "queues": metadata_tables.queues,
    "topics": metadata_tables.topics,
    "consumer_offsets": metadata_tables.consumer_offsets,
    "subscription_groups": metadata_tables.subscription_groups,
    "delay_offsets": metadata_tables.delay_offsets,
    "checkpoint": metadata_tables.checkpoint,
    "transactions": lambda store: transaction_rows(store, AT),
    "delayed": lambda store: delayed_rows(store, AT),
    "retries": lambda store: retries_rows(store, at=AT),
    "dead_letters": dead_letters_rows,
    "traces": lambda store: traces_rows(store, "OrderEvents"),
    "consumer_progress": lambda store: consumer_progress_rows(store, at=AT),
    "duplicates": duplicates_rows,
    "hot_keys": hot_keys_rows,
    "rates": rates_rows,
    "skew": skew_rows,
}
AT = 1_800_000_000_000
OPTIONS = {
    **{table: {"at": str(AT)} for table in ("transactions", "delayed", "retries", "consumer_progress")},
    "traces": {"topic": "OrderEvents"},
}


def read(spark: SparkSession, path: Path, table: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").option("table", table).options(**options).load(str(path))


@pytest.mark.parametrize("table", SMALL)
def test_a_small_table_has_the_rows_of_the_store(engine: SparkSession, unpacked: Unpack, table: str) -> None:
    path = unpacked(WORKLOAD)
    rows = read(engine, path, table, **OPTIONS.get(table, {})).toArrow().to_pylist()
    assert rows
    assert rows == SMALL[table](MessageStore(str(path))).to_pylist()


def test_retention_has_the_rows_of_the_store(engine: SparkSession, unpacked: Unpack, tmp_path: Path) -> None:
    """In the hour of `deleteWhen`, the next deletion is at the moment of the question, so that hour is another one."""
    path, conf = unpacked(WORKLOAD), tmp_path / "broker.conf"
    conf.write_text(f"deleteWhen={(datetime.now(UTC).hour + 12) % 24:02}\n")
    rows = read(engine, path, "retention", brokerConf=str(conf)).toArrow().to_pylist()
    assert rows
    assert rows == retention_rows(MessageStore(str(path), broker_conf=str(conf))).to_pylist()


def test_a_consume_queue_has_a_row_for_each_unit(engine: SparkSession, unpacked: Unpack) -> None:
    frame = read(engine, unpacked(WORKLOAD), "consume_queue")
    rows = frame.where("state = 'LIVE'").select("topic", "queue_id", "queue_offset", "commit_log_offset").collect()
    wanted = {
        (fact["topic"], fact["queueId"], fact["queueOffset"], fact["offset"])
        for fact in WORKLOAD.facts("msg")
        if fact["sysFlag"] & 0xC in (0, 8)
    }
    assert len(rows) == len(wanted)
    assert {tuple(row) for row in rows} == wanted


def test_filters_of_groups_and_the_bits_of_messages(engine: SparkSession, unpacked: Unpack) -> None:
    path = unpacked(FILTERED)
    rows = read(engine, path, "consumer_filters").toArrow().to_pylist()
    with MessageStore(str(path)) as store:
        assert rows == consumer_filters(store).to_pylist()
        assert len(rows) == 4
        queue = store.queues[TOPIC, 1]
        bits = [
            (unit and unit.bit_map) or None for unit in map(queue.ext.unit, queue.units(0, 103)["tags_code"].tolist())
        ]
    units = read(engine, path, "consume_queue", topic=TOPIC, queueId="1").orderBy("queue_offset").collect()
    assert [None if unit.filter_bit_map is None else bytes(unit.filter_bit_map) for unit in units] == bits
    only = read(engine, path, "consumer_filters", topic=TOPIC, consumerGroup="GID_any").collect()
    assert [row.expression for row in only] == ["vip IS NOT NULL OR price BETWEEN 10 AND 20"]


def test_options_choose_queues_and_groups(engine: SparkSession, unpacked: Unpack) -> None:
    path = unpacked(WORKLOAD)
    units = read(engine, path, "consume_queue", topic="OrderEvents", queueId="1").select("topic", "queue_id").distinct()
    assert [tuple(row) for row in units.collect()] == [("OrderEvents", 1)]
    assert read(engine, path, "consume_queue", topic="no such topic").count() == 0
    assert read(engine, path, "queues", topic="OrderEvents").count() == 4
    assert read(engine, path, "consumer_offsets", consumerGroup="GID_failing").count() == 2
    moved = read(engine, path, "queues", topic="MovedQueue", brokerVersion="4.9").collect()
    assert [row.min_offset for row in moved] == [400]  # pre-blank units, which 4.9 takes for the queue's first


def test_a_schema_chooses_columns(engine: SparkSession, unpacked: Unpack) -> None:
    reader = engine.read.format("rocketmq").option("table", "queues").schema("max_offset BIGINT, topic STRING")
    row = reader.load(str(unpacked(WORKLOAD))).where("topic = 'MovedQueue'").first()
    assert row is not None
    assert tuple(row) == (462, "MovedQueue")


def test_index_files_and_entries_are_those_of_the_broker(engine: SparkSession, unpacked: Unpack) -> None:
    path, layout = unpacked(WORKLOAD), layout_of(WORKLOAD)
    conf = str(WORKLOAD.broker_conf)
    contents = {file.name: file.read_bytes() for file in index_files(path)}
    rows = read(engine, path, "index_files", brokerConf=conf).orderBy("file").collect()
    for row, (name, data) in zip(rows, contents.items(), strict=True):
        begin, end, begin_offset, end_offset, slots, count = struct.unpack_from(">qqqqii", data)
        assert (row.file, row.file_size) == (name, len(data))
        assert (row.begin_commit_log_offset, row.end_commit_log_offset) == (begin_offset, end_offset)
        assert (row.hash_slot_count, row.index_count) == (slots, count)
        times = [
            round(time.replace(tzinfo=UTC).timestamp() * 1000) for time in (row.begin_timestamp, row.end_timestamp)
        ]
        assert times == [begin, end]
    entries = read(engine, path, "index_entries", brokerConf=conf).orderBy("file", "entry").collect()
    wanted = [
        (name, number, *struct.unpack_from(">iqii", data, 40 + 4 * layout.hash_slot_num + 20 * number))
        for name, data in contents.items()
        for number in range(1, struct.unpack_from(">i", data, 36)[0])
    ]
    assert [tuple(row)[:6] for row in entries] == wanted
    assert not any(tuple(row)[6:] != (None,) * 5 for row in entries)
    offsets = {fact["offset"] for fact in WORKLOAD.facts("msg")}
    assert {row.commit_log_offset for row in entries} <= offsets


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("queues", {"splitSize": "64m"}, "splitSize has no effect on table queues"),
        ("segments", {"topic": "T"}, "topic has no effect on table segments; it has none"),
        ("consume_queue", {"queueId": "first"}, "queueId"),
        ("queues", {"brokerVersion": "3"}, "broker version"),
        ("queus", {}, "not one of messages, messages_by_key, consume_queue"),
        ("index_entries", {"topic": "T"}, "topic has no effect on table index_entries; it has brokerConf"),
    ],
)
def test_options_that_do_nothing_are_errors(
    engine: SparkSession, unpacked: Unpack, table: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        _ = read(engine, unpacked(WORKLOAD), table, **options).schema  # a server is asked for it only now


@pytest.mark.parametrize("table", ["index_files", "index_entries"])
def test_index_files_whose_layout_nothing_tells_are_an_error(
    engine: SparkSession, unpacked: Unpack, table: str, tmp_path: Path
) -> None:
    store = without_full_index_files(unpacked(WORKLOAD), tmp_path)
    with pytest.raises(PySparkException, match="brokerConf"):
        read(engine, store, table).count()


def test_a_column_of_another_table_is_an_error(engine: SparkSession, unpacked: Unpack) -> None:
    reader = engine.read.format("rocketmq").option("table", "queues").schema("body BINARY")
    with pytest.raises(PySparkException, match="queues has no column body"):
        reader.load(str(unpacked(WORKLOAD))).count()
