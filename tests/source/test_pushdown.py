"""Spark's own filters, pushed: the same rows as without, in the shapes of query in which Spark keeps its word.

Spark 4.1 to 4.3 keep the pushed read on the loaded relation, so that another query of the same DataFrame or view gets
the rows of the first one's filter. The shapes that this breaks are strict xfails: the Spark that mends them is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tests.support.stores import OWN_STORES, RealStore

WORKLOAD = RealStore("workload-533", OWN_STORES)
SWITCH = "spark.sql.python.filterPushdown.enabled"
SCHEMA = (
    "topic STRING, queue_id INT, queue_offset BIGINT, commit_log_offset BIGINT, unique_key STRING, tags STRING, "
    "store_timestamp TIMESTAMP, keys ARRAY<STRING>, transaction_type STRING, offset_message_id STRING"
)
Load = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def load(spark: SparkSession, unpacked: Callable[[RealStore], Path]) -> Load:
    store = unpacked(WORKLOAD)

    def load_store(**options: str) -> DataFrame:
        reader = spark.read.format("rocketmq").schema(SCHEMA).option("brokerConf", str(WORKLOAD.broker_conf))
        return reader.options(**options).load(str(store))

    return load_store


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(SWITCH, "true")
    yield
    spark.conf.unset(SWITCH)


@pytest.fixture(scope="module")
def everything(load: Load) -> list[Row]:
    """Read before anything is pushed."""
    return load().collect()


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: int(row.commit_log_offset))


FILTERS = [
    "topic = 'OrderEvents'",
    "topic IN ('OrderEvents', 'nope', NULL) AND queue_id = 1",
    "topic = 'OrderEvents' AND queue_id = 1 AND queue_offset BETWEEN 3 AND 9",
    "topic = 'OrderEvents' AND queue_id = 1 AND queue_offset > 1 AND queue_offset < 9 AND tags IS NOT NULL",
    "unique_key IS NULL AND topic LIKE 'Direct%'",
    "NOT topic = 'OrderEvents' AND commit_log_offset <= 20000",
    "commit_log_offset = 0",
    "queue_offset = 0",
    "transaction_type = 'ROLLBACK'",
    "array_contains(keys, 'user1')",
    "store_timestamp IS NULL",
    "queue_id > 1.5",
]


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize("where", FILTERS)
def test_a_filter_gives_the_rows_that_it_gives_without_pushing(
    spark: SparkSession, load: Load, everything: list[Row], where: str
) -> None:
    plain = spark.createDataFrame(everything, SCHEMA)
    assert rows(load(pushdown="true").where(where)) == rows(plain.where(where))


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/St_Johns"])
def test_times_are_those_of_the_session(spark: SparkSession, load: Load, everything: list[Row], zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        plain = spark.createDataFrame(everything, SCHEMA)
        middle = sorted(everything, key=lambda row: row.commit_log_offset)[len(everything) // 2]
        text = plain.where(f"commit_log_offset = {middle.commit_log_offset}").selectExpr("string(store_timestamp)")
        moment = text.first()[0]  # type: ignore[index]
        for comparison in ("=", "<", ">=", "<>"):
            where = f"store_timestamp {comparison} TIMESTAMP'{moment}'"
            found = rows(load(pushdown="true").where(where))
            assert found == rows(plain.where(where))
            assert found
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("enabled", ["true", "false"])
@pytest.mark.parametrize("options", [{}, {"pushdown": "true"}, {"pushdown": "true", "table": "messages_by_key"}])
def test_a_reader_works_with_the_switch_on_and_off(
    spark: SparkSession, load: Load, enabled: str, options: dict[str, str]
) -> None:
    spark.conf.set(SWITCH, enabled)
    try:
        assert rows(load(**options).where("topic = 'OrderEvents'"))
    finally:
        spark.conf.unset(SWITCH)


@pytest.mark.usefixtures("pushing")
def test_without_the_option_every_shape_is_right(spark: SparkSession, load: Load, everything: list[Row]) -> None:
    frame = load()
    frame.createOrReplaceTempView("plain_messages")
    one, other = (sum(row.queue_id == queue_id for row in everything) for queue_id in (0, 1))
    assert frame.where("queue_id = 0").count() == one
    assert frame.count() == len(everything)
    assert frame.where("queue_id = 0").union(frame.where("queue_id = 1")).count() == one + other
    assert spark.sql("SELECT * FROM plain_messages WHERE queue_id = 1").count() == other
    assert spark.table("plain_messages").count() == len(everything)


broken_in_spark = pytest.mark.xfail(strict=True, reason="Spark 4.1 to 4.3 keep the pushed read on the relation")


@pytest.mark.usefixtures("pushing")
class TestShapesThatSparkBreaks:
    """`docs/options.md` tells to avoid them."""

    @broken_in_spark
    def test_filter_then_whole(self, load: Load, everything: list[Row]) -> None:
        frame = load(pushdown="true")
        frame.where("queue_id = 1").collect()
        assert len(frame.collect()) == len(everything)

    @broken_in_spark
    def test_union_of_two_filters(self, load: Load, everything: list[Row]) -> None:
        frame = load(pushdown="true")
        found = frame.where("queue_id = 1").union(frame.where("queue_id = 2")).collect()
        assert {row.queue_id for row in found} == {1, 2}
        assert len(found) == sum(row.queue_id in (1, 2) for row in everything)

    @broken_in_spark
    def test_self_join(self, load: Load, everything: list[Row]) -> None:
        frame = load(pushdown="true")
        left, right = frame.where("queue_id = 1").alias("l"), frame.where("queue_id = 2").alias("r")
        found = left.join(right, "topic").count()
        one, other = ([row.topic for row in everything if row.queue_id == queue_id] for queue_id in (1, 2))
        assert found == sum(other.count(topic) for topic in one)

    @broken_in_spark
    def test_temporary_view(self, spark: SparkSession, load: Load, everything: list[Row]) -> None:
        load(pushdown="true").createOrReplaceTempView("pushed_messages")
        one, other = (f"SELECT * FROM pushed_messages WHERE queue_id = {queue_id}" for queue_id in (1, 2))
        expected = sum(row.queue_id in (1, 2) for row in everything)
        assert len(spark.sql(f"{one} UNION ALL {other}").collect()) == expected
