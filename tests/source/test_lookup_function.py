"""`rocketmq_lookup` in SQL: the rows of table `messages` that have the key, in every shape of query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from spark_mq import register
from tests.support.stores import OWN_STORES, RealStore

WORKLOAD = RealStore("workload-533", OWN_STORES)


@pytest.fixture(scope="module")
def store(spark: SparkSession, unpacked: Callable[[RealStore], Path]) -> str:
    register(spark)
    return str(unpacked(WORKLOAD))


@pytest.fixture(scope="module")
def messages(spark: SparkSession, store: str) -> list[Row]:
    return spark.read.format("rocketmq").load(store).collect()


def having(messages: list[Row], topic: str, key: str) -> list[Row]:
    return [
        row
        for row in messages
        if row.topic == topic and key in [*(row["keys"] or ()), row.unique_key] and row.transaction_type != "ROLLBACK"
    ]


def by_offset(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: int(row.commit_log_offset))


def lookup(spark: SparkSession, store: str, key: str) -> DataFrame:
    # Not with args: Delta's extension of Spark 4.2, which the session has, does not know them.
    named = f"store => '{store}', topic => 'OrderEvents', key => '{key}', broker_conf => '{WORKLOAD.broker_conf}'"
    return spark.sql(f"SELECT * FROM rocketmq_lookup({named})")


def test_a_key_gives_the_rows_of_the_table(spark: SparkSession, store: str, messages: list[Row]) -> None:
    keys = sorted({key for row in messages if row.topic == "OrderEvents" for key in row["keys"] or ()})[:5]
    keys.append(next(row.unique_key for row in messages if row.topic == "OrderEvents" and row.unique_key))
    for key in keys:
        found = lookup(spark, store, key)
        assert found.schema == spark.read.format("rocketmq").load(store).schema
        assert by_offset(found.collect()) == by_offset(having(messages, "OrderEvents", key))
    assert lookup(spark, store, "no such key").collect() == []


def test_for_each_row_of_another_table(spark: SparkSession, store: str, messages: list[Row]) -> None:
    """A lateral join, with keys that are NULL, doubled, and not there; and its union with itself."""
    keys = sorted({key for row in messages if row.topic == "OrderEvents" for key in row["keys"] or ()})
    wanted = [*keys[:40], keys[0], None, "no such key"]
    spark.createDataFrame([(key,) for key in wanted], "id STRING").createOrReplaceTempView("orders")
    query = f"""
        SELECT o.id, m.commit_log_offset, m.body
        FROM orders o, LATERAL rocketmq_lookup('{store}', 'OrderEvents', o.id, '{WORKLOAD.broker_conf}') m"""
    expected = sorted(
        (key, row.commit_log_offset) for key in wanted if key for row in having(messages, "OrderEvents", key)
    )
    found = spark.sql(query).collect()
    assert sorted((row.id, row.commit_log_offset) for row in found) == expected
    assert all(isinstance(row.body, bytearray | bytes) for row in found)
    assert spark.sql(f"{query} UNION ALL {query}").count() == 2 * len(expected)


def test_a_number_is_a_key_and_there_can_be_a_limit(spark: SparkSession, store: str) -> None:
    query = f"SELECT * FROM rocketmq_lookup('{store}', 'OrderEvents', 5)"
    assert spark.sql(query).collect() == []
    limited = f"SELECT * FROM rocketmq_lookup('{store}', 'DirectTopic', 'shared', max_num => 2)"
    assert spark.sql(limited).count() == 2


def test_errors_say_what_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="StoreNotFoundError"):
        spark.sql(f"SELECT * FROM rocketmq_lookup('{tmp_path / 'nope'}', 'T', 'K')").collect()
