"""`spark_mq.sql` gives exactly the rows that Spark gives for the same query over the whole tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial, reduce
from operator import and_
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from spark_mq import sql
from spark_mq.errors import OptionError
from spark_mq.query import local_constants
from spark_mq.query.catalog import Store, plan_reads, table_columns
from spark_mq.query.plan import plan_references
from spark_mq.query.sql import reads_of
from spark_mq.source.predicate import Value
from tests.query.message_queries import REAL, ROWS, SCHEMA, STORES, WORDS, column_of, rows
from tests.query.random_queries import COLUMNS, random_query
from tests.support.stores import WORKLOAD, Unpack

SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings with which a small query takes less time."""


@pytest.fixture(scope="module", autouse=True)
def _small(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name) or "" for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def whole(spark: SparkSession) -> DataFrame:
    frame = spark.sql(f"SELECT * FROM VALUES {ROWS} AS t ({', '.join(COLUMNS)})")
    frame = frame.withColumn("store_timestamp", col("store_timestamp").cast("timestamp"))
    frame = spark.createDataFrame(frame.collect(), SCHEMA)
    assert frame.count() == 11
    return frame


def test_pushdown_does_not_change_the_rows_of_any_query(spark: SparkSession, whole: DataFrame) -> None:
    """Relations are reduced as far as their conditions and columns allow: no reader of a store drops more."""
    filtered = 0

    @settings(max_examples=8)
    @given(random=st.randoms(use_true_random=True))
    def check(random: Random) -> None:
        nonlocal filtered
        query = random_query(random, WORDS)
        note(query)
        frames: dict[str, Any] = {}
        for read in reads_of(spark, query, stores=STORES):
            filters = [column_of(condition) for condition in read.conditions]
            names = COLUMNS if read.reference.columns is None else read.schema.fieldNames()
            known = [col(name) if name in COLUMNS else lit(0).alias(name) for name in names]
            frames[read.reference.name] = (whole.where(reduce(and_, filters)) if filters else whole).select(known)
            filtered += bool(filters)
        template = plan_references(query, STORES, table_columns).template
        everything: dict[str, Any] = dict.fromkeys(frames, whole)
        try:
            judged = rows(spark.sql(template, **everything))
        except (PySparkException, Py4JError):  # a query that Spark refuses, or cannot run, says nothing
            reject()
        assert rows(spark.sql(template, **frames)) == judged

    check()
    assert filtered > 2


@pytest.fixture(scope="module")
def store(spark: SparkSession, unpacked: Unpack) -> str:
    """A real store, whose rows are in the session's views `all_messages` and `all_units` as well."""
    path = str(unpacked(WORKLOAD))
    for view, table in (("all_messages", "messages"), ("all_units", "consume_queue")):
        frame = spark.read.format("rocketmq").option("table", table).load(path)
        spark.createDataFrame(frame.toArrow(), frame.schema).createOrReplaceTempView(view)
    return path


def test_a_real_store_gives_the_rows_of_a_whole_read(spark: SparkSession, store: str) -> None:
    views = rows(spark.sql("SHOW VIEWS"))
    for query in REAL:
        stores = {"prod": {"path": store, "brokerConf": str(WORKLOAD.broker_conf)}}
        found = rows(sql(spark, query.format(m="prod.messages", u="prod.consume_queue"), stores=stores))
        assert found == rows(spark.sql(query.format(m="all_messages", u="all_units")))
        assert found
    assert rows(spark.sql("SHOW VIEWS")) == views


def test_rows_and_columns_that_a_query_cannot_use_are_not_read(spark: SparkSession) -> None:
    query = (
        "SELECT m.queue_id, c.state FROM messages m JOIN consume_queue c ON m.topic = c.topic AND c.queue_id = 3 "
        "WHERE m.topic = 'it\\'s' AND c.topic = 'it\\'s' AND m.store_timestamp >= DATE '2026-11-20' AND store_size > 0"
    )
    messages, units = reads_of(spark, query, stores={"prod": {"path": "/data/store", "mode": "FAILFAST"}})
    assert (
        messages.schema.simpleString() == "struct<store_size:int,topic:string,queue_id:int,store_timestamp:timestamp>"
    )
    assert messages.options == {
        "path": "/data/store",
        "table": "messages",
        "mode": "FAILFAST",
        "conditions": '[["topic", "in", ["it\'s"]], ["store_timestamp", ">=", [{"micros": 1795132800000000}]]]',
    }
    assert units.options == {"path": "/data/store", "table": "consume_queue", "topic": "it's", "queueId": "3"}
    assert units.schema.fieldNames() == ["topic", "queue_id", "store_size", "state"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("topic = 'a'", [("in", ("a",))]),
        ("topic = 'a' COLLATE UTF8_LCASE", []),
        ("topic = 5", []),
        ("topic IN ('a', NULL)", []),
        ("queue_id = '3'", []),
        ("queue_id = 3L OR queue_id = 1 + 1", [("in", (3, 2))]),
        ("queue_id < 2.5", []),
        ("queue_id < NULL", []),
        ("queue_offset = 1 + 9223372036854775807", []),  # an error, which is Spark's to raise
        ("store_timestamp < '2026-03-08 02:30:00'", [("<", (datetime(2026, 3, 8, 7, 30, tzinfo=UTC),))]),
        ("store_timestamp >= '2026-11-20'", [(">=", (datetime(2026, 11, 20, 5, tzinfo=UTC),))]),
        ("store_timestamp = DATE '2026-11-20'", [("in", (datetime(2026, 11, 20, 5, tzinfo=UTC),))]),
        ("store_timestamp < CAST('2026-11-20 22:00:00' AS DATE)", [("<", (datetime(2026, 11, 20, 5, tzinfo=UTC),))]),
        ("store_timestamp IN ('2026-11-20')", []),
        ("store_timestamp = CAST('2026-11-20' AS TIMESTAMP_NTZ)", []),
        ("store_timestamp > :now", []),
        ("store_timestamp > '+12026-11-20'", []),
        (
            "store_timestamp > TIMESTAMP '2026-03-09 00:00:00' - INTERVAL 1 DAY",  # which has 23 hours
            [(">", (datetime(2026, 3, 8, 5, tzinfo=UTC),))],
        ),
    ],
)
def test_constants_mean_what_they_mean_to_spark(
    spark: SparkSession, condition: str, expected: list[tuple[str, tuple[Value, ...]]]
) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        (read,) = reads_of(spark, f"SELECT * FROM messages WHERE {condition}", {"now": "now"}, stores=STORES)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert [(one.operator.value, one.values) for one in read.conditions] == expected
    (local,) = plan_reads(
        plan_references(f"SELECT * FROM messages WHERE {condition}", STORES, table_columns),
        STORES,
        partial(local_constants.evaluate, zone=ZoneInfo("America/New_York")),
    )
    assert local.conditions in ((), read.conditions)


def test_what_the_session_has_goes_before_a_store(spark: SparkSession) -> None:
    spark.sql("SELECT 'a view' AS topic").createOrReplaceTempView("topics")
    try:
        assert [tuple(row) for row in sql(spark, "SELECT * FROM topics", stores=STORES).collect()] == [("a view",)]
        assert [read.reference.table for read in reads_of(spark, "TABLE topics", stores=STORES)] == []
        assert len(reads_of(spark, "SELECT * FROM prod.topics", stores=STORES)) == 1
    finally:
        spark.catalog.dropTempView("topics")


def test_statements_about_tables(spark: SparkSession) -> None:
    spark.sql("SELECT 1 AS a").createOrReplaceTempView("mine")
    try:
        listed = sql(spark, "SHOW TABLES LIKE 'm*'", stores=STORES).collect()
        assert [(row.namespace, row.tableName) for row in listed if row.tableName in ("messages", "mine")] == [
            ("prod", "messages"),
            ("", "mine"),
        ]
    finally:
        spark.catalog.dropTempView("mine")
    described = sql(spark, "DESCRIBE topics", stores=STORES)
    assert described.columns == ["col_name", "data_type", "comment"]
    assert tuple(described.collect()[0]) == ("topic", "string", "the topic")


def test_a_name_that_is_wrong_is_shown_with_those_that_are_right(spark: SparkSession) -> None:
    for query in ("SELECT * FROM prodd.messages", "SELECT topic FROM prod.mesages"):
        with pytest.raises(OptionError, match=r"did you mean prod\.messages\? Tables of prod: messages, "):
            sql(spark, query, stores=STORES)
    with pytest.raises(AnalysisException, match="following\\? \\[`topic`"):
        sql(spark, "SELECT topik FROM messages WHERE queue_id = 1", stores=STORES)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql(spark, "SELECT * FROM other.things", stores=STORES)


@pytest.mark.parametrize(
    ("stores", "why"),
    [
        ({"prod": {"path": "/data/store", "moed": "FAILFAST"}}, "did you mean mode"),
        ({"prod": {"mode": "FAILFAST"}}, "path is missing"),
        ({"prod": {"path": "/data/store", "table": "queues"}}, "name the table in the query"),
        ({"prod": "/data/store", "PROD": "/data/other"}, "same name"),
    ],
)
def test_stores_that_cannot_be_meant_are_refused(spark: SparkSession, stores: dict[str, Store], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        sql(spark, "SELECT * FROM prod.messages", stores=stores)
