"""`spark_mq.sql` gives exactly the rows that Spark gives for the same query over the whole tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from spark_mq.query.catalog import table_columns
from spark_mq.query.plan import plan_references
from spark_mq.query.sql import reads_of
from spark_mq.source.predicate import Condition, Operator
from tests.query.random_queries import COLUMNS, Vocabulary, queries
from tests.real_stores import OWN_STORES, RealStore, stores_in

Unpack = Callable[[RealStore], Path]
STORES = {"prod": "/data/store"}
STORE = next(store for store in stores_in(OWN_STORES) if store.name == "workload-533")

SCHEMA = "topic STRING, queue_id INT, queue_offset BIGINT, store_timestamp TIMESTAMP"
ROWS = """
    ('a', 0, 0, '2026-11-20 00:00:00'), ('a', 0, 1, '2026-11-20 00:00:00.001'), ('a', 1, 0, '2026-11-20 12:00:00'),
    ('b', 0, 0, '2026-11-21 00:00:00'), ('b', 1, 1, NULL), ('b', 2, 2, '2026-11-21 00:00:00'), ('A', 1, 3, NULL),
    ('a', 0, 0, '2026-11-20 00:00:00'), (NULL, NULL, NULL, NULL), ('c ', 2, 0, '2026-11-22 00:00:00'),
    ('it''s', 2, 3, '2026-11-19 23:59:59.999')
"""
WORDS = Vocabulary(
    tables=("prod.messages", "messages"),
    constants={
        "topic": ("'a'", '"b"', "'A'", "'c '", "'c'", r"'it\'s'", "NULL", "'a' || ''", "'a' COLLATE UTF8_LCASE"),
        "queue_id": ("0", "1", "2", "1L", "-1", "1 + 1", "'1'", "1.5", "NULL", "(2)", "1e0"),
        "queue_offset": ("0", "1", "2", "3L", "2 * 1", "'1'", "0.5", "9223372036854775807"),
        "store_timestamp": (
            "TIMESTAMP '2026-11-20 00:00:00'",
            "DATE '2026-11-21'",
            "'2026-11-20'",
            "'2026-11-20 12:00:00'",
            "TIMESTAMP '2026-11-20 00:00:00.0005'",
            "TIMESTAMP '2026-11-19 00:00:00' + INTERVAL 1 DAY",
            "CAST('2026-11-20 00:00:00' AS TIMESTAMP_NTZ)",
            "DATE '2026-11-20' + INTERVAL '36' HOUR",
            "now()",
        ),
    },
    joins=(*Vocabulary.joins, "LEFT SEMI JOIN", "ANTI JOIN"),
    operators=(*Vocabulary.operators, "<=>"),
)


def rows(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def column_of(condition: Condition) -> Column:
    """What a condition says, in Spark's own words."""
    column, first = col(condition.column), lit(condition.values[0])
    if condition.operator == Operator.IN:
        return column.isin(list(condition.values))
    return {
        Operator.LESS: column < first,
        Operator.LESS_OR_EQUAL: column <= first,
        Operator.GREATER: column > first,
        Operator.GREATER_OR_EQUAL: column >= first,
    }[condition.operator]


SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""What makes a small query take less time."""


@pytest.fixture(scope="module", autouse=True)
def _small(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in SETTINGS}
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


def test_narrowed_relations_leave_the_rows_of_every_query_as_they_are(spark: SparkSession, whole: DataFrame) -> None:
    """Relations are narrowed as far as their conditions and columns allow: no reader of a store does more."""
    narrowed = 0

    @settings(max_examples=30)
    @given(query=queries(WORDS))
    def check(query: str) -> None:
        nonlocal narrowed
        frames = {}
        for read in reads_of(spark, query, stores=STORES):
            wanted = [column_of(condition) for condition in read.conditions]
            known = [col(name) if name in COLUMNS else lit(0).alias(name) for name in read.schema.fieldNames()]
            frames[read.reference.name] = (whole.where(reduce(and_, wanted)) if wanted else whole).select(known)
            narrowed += bool(wanted)
        template = plan_references(query, STORES, table_columns).template
        judged = rows(spark.sql(template, **dict.fromkeys(frames, whole)))
        assert rows(spark.sql(template, **frames)) == judged

    check()
    assert narrowed > 10
