"""Table `messages`, read as a user reads it, against what Apache RocketMQ said of each store."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.functions import spark_partition_id

from spark_mq._compat import register_source
from tests.support.stores import OWN_STORES, PROJECT, SAME, WORKLOAD, RealStore, Unpack, stores_in, usual_stores

TRANSACTION_TYPES = ("NONE", "PREPARED", "COMMIT", "ROLLBACK")
SMALLEST = min(stores_in(OWN_STORES), key=lambda store: len(store.facts("msg")))


def read(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    return spark.read.format("rocketmq").options(**{key: str(value) for key, value in options.items()}).load(str(path))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=lambda row: row["commit_log_offset"])


def as_host(fact: str) -> str:
    address, port = fact.rsplit("|", 1)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_every_row_equals_the_brokers_facts_and_there_is_no_row_more(
    engine: SparkSession, unpacked: Unpack, store: RealStore
) -> None:
    facts = sorted(store.facts("msg"), key=lambda fact: fact["offset"])
    found = rows(read(engine, unpacked(store)))
    assert [row["commit_log_offset"] for row in found] == [fact["offset"] for fact in facts]
    for row, fact in zip(found, facts, strict=True):
        assert {ours: row[ours] for ours in SAME} == {ours: fact[theirs] for ours, theirs in SAME.items()}
        assert (row["born_host"], row["store_host"]) == (as_host(fact["bornHost"]), as_host(fact["storeHost"]))
        assert round(row["born_timestamp"].timestamp() * 1000) == fact["bornTimestamp"]
        assert round(row["store_timestamp"].timestamp() * 1000) == fact["storeTimestamp"]
        assert hashlib.md5(row["body"]).hexdigest() == fact["bodyMd5"]
        assert dict(row["properties"]) == fact["properties"]
        assert row["keys"] == (None if fact["keys"] is None else fact["keys"].split())
        assert row["transaction_type"] == TRANSACTION_TYPES[(fact["sysFlag"] >> 2) & 3]
        assert row["_corrupt_record"] is None


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.commit_log_offset for row in frame.select("commit_log_offset").collect())


@pytest.mark.parametrize("store", [s for s in stores_in(OWN_STORES) if len(s.facts("msg")) < 1500], ids=str)
def test_small_splits_give_the_same_rows(engine: SparkSession, unpacked: Unpack, store: RealStore) -> None:
    small = read(engine, unpacked(store), splitSize="32k")
    assert offsets(small) == sorted(fact["offset"] for fact in store.facts("msg"))


def test_spark_finds_the_format_by_itself(spark: SparkSession, unpacked: Unpack) -> None:
    # The session never called register: pyspark_rocketmq did it.
    assert read(spark, unpacked(SMALLEST)).columns[0] == "commit_log_offset"


def test_each_session_of_a_process_has_the_source_that_was_registered_in_it(spark: SparkSession) -> None:
    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "registered_here"

        def schema(self) -> str:
            return "number INT"

    for session in (spark.newSession(), spark.newSession(), spark):
        register_source(session, Source)
        assert session.read.format("registered_here").load().columns == ["number"]


def test_sql_reads_a_temporary_view(engine: SparkSession, unpacked: Unpack) -> None:
    engine.sql(f"CREATE OR REPLACE TEMPORARY VIEW stored USING rocketmq OPTIONS (path '{unpacked(SMALLEST)}')")
    (row,) = engine.sql("SELECT count(*) AS messages, count(DISTINCT topic) AS topics FROM stored").collect()
    facts = SMALLEST.facts("msg")
    assert (row.messages, row.topics) == (len(facts), len({fact["topic"] for fact in facts}))


def test_the_users_schema_is_the_column_list_in_its_order(engine: SparkSession, unpacked: Unpack) -> None:
    schema = "queue_offset BIGINT, store_timestamp_millis BIGINT, topic STRING, stored_body BINARY"
    frame = engine.read.format("rocketmq").schema(schema).load(str(unpacked(SMALLEST)))
    assert frame.columns == ["queue_offset", "store_timestamp_millis", "topic", "stored_body"]
    found = {(r.topic, r.queue_offset, r.store_timestamp_millis, len(r.stored_body)) for r in frame.collect()}
    facts = SMALLEST.facts("msg")
    assert found == {(f["topic"], f["queueOffset"], f["storeTimestamp"], f["bodyLenRaw"]) for f in facts}


@pytest.mark.parametrize(
    ("schema", "message"), [("topc STRING", "did you mean topic"), ("queue_id STRING", "queue_id is INT")]
)
def test_a_wrong_column_is_named(engine: SparkSession, unpacked: Unpack, schema: str, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        engine.read.format("rocketmq").schema(schema).load(str(unpacked(SMALLEST))).collect()


def test_topic_option_keeps_only_that_topic(engine: SparkSession, unpacked: Unpack) -> None:
    facts = SMALLEST.facts("msg")
    topic = facts[0]["topic"]
    expected = sorted(fact["offset"] for fact in facts if fact["topic"] == topic)
    assert offsets(read(engine, unpacked(SMALLEST), topic=topic)) == expected


def test_a_split_by_queue_keeps_each_queue_in_one_partition(spark: SparkSession, unpacked: Unpack) -> None:
    frame = read(spark, unpacked(WORKLOAD), topic="SequenceDemo", splitBy="queue")
    found = frame.select(spark_partition_id().alias("partition"), "queue_id", "queue_offset").collect()
    assert len({row.partition for row in found}) > 1
    for queue_id in {row.queue_id for row in found}:
        of_queue = [row for row in found if row.queue_id == queue_id]
        assert len({row.partition for row in of_queue}) == 1
        assert [row.queue_offset for row in of_queue] == sorted(row.queue_offset for row in of_queue)
    facts = [fact["queueOffset"] for fact in WORKLOAD.facts("msg") if fact["topic"] == "SequenceDemo"]
    assert sorted(row.queue_offset for row in found) == sorted(facts)


def test_time_options_include_both_ends(engine: SparkSession, unpacked: Unpack) -> None:
    times = sorted(fact["storeTimestamp"] for fact in SMALLEST.facts("msg"))
    start, end = times[len(times) // 3], times[2 * len(times) // 3]
    expected = sorted(f["offset"] for f in SMALLEST.facts("msg") if start <= f["storeTimestamp"] <= end)
    assert offsets(read(engine, unpacked(SMALLEST), startTimestamp=start, endTimestamp=end)) == expected


def test_a_path_that_is_no_store_is_named(engine: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="has no commitlog folder"):
        read(engine, tmp_path).collect()


def test_an_empty_commit_log_is_an_empty_table(engine: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert read(engine, tmp_path).count() == 0


def test_with_the_settings_of_conf_an_error_begins_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"
    lines = (PROJECT / "conf" / "spark-defaults.conf").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(name))
    spark.conf.set(name, value)
    try:
        with pytest.raises(PySparkException) as raised:
            spark.read.format("rocketmq").load(str(tmp_path / "nosuch")).count()
    finally:
        spark.conf.unset(name)
    assert "nosuch does not exist: give the broker's store directory" in " ".join(str(raised.value).splitlines()[:2])


def test_a_view_of_a_store_works_and_a_table_names_the_view(spark: SparkSession, unpacked: Unpack) -> None:
    options = f"USING rocketmq OPTIONS (path '{unpacked(WORKLOAD)}')"
    spark = spark.newSession()
    spark.conf.unset("spark.sql.catalog.spark_catalog")  # Delta Lake's catalog has a message of its own
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW store_messages {options}")
    assert spark.table("store_messages").count() == len(WORKLOAD.facts("msg"))
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE store_table {options}")
    # With columns, Spark does not ask the data source before the table is read.
    spark.sql(f"CREATE TABLE store_columns (topic STRING) {options}")
    try:
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
            spark.table("store_columns").collect()
    finally:
        spark.sql("DROP TABLE store_columns")
    assert unpacked(WORKLOAD).is_dir()


@pytest.mark.parametrize(
    ("names", "table", "message"),
    [
        (["dledger-n0/data/" + "0" * 20, "dledger-n1/data/" + "0" * 20], "messages", "several DLedger nodes"),
        (["commitlog/" + "0" * 20, "consumequeue/CURRENT", "consumequeue/MANIFEST-000005"], "queues", "RocksDB"),
        (["commitlog/" + "0" * 20, "commitlog/append-unfinished"], "messages", "appended"),
    ],
)
def test_a_read_of_a_store_that_is_not_read_fails(
    spark: SparkSession, tmp_path: Path, names: list[str], table: str, message: str
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(4096))
    frame = spark.read.format("rocketmq").option("table", table).load(str(tmp_path))
    with pytest.raises(PySparkException, match=message):
        frame.collect()
