"""Filters of queries: right rows in every shape of query; and why this data source lets Spark push none.

Spark 4.1 to 4.3 keep the pushed read on the loaded relation, so that another query of the same DataFrame or view gets
the rows of the first one's filter. A source of four rows shows it: strict xfails, so that the Spark that mends it is
noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType

from tests.support.stores import WORKLOAD, Unpack

SWITCH = "spark.sql.python.filterPushdown.enabled"


class FourRows(DataSource):
    """The numbers 1 to 4, or the one that a pushed filter names."""

    @classmethod
    def name(cls) -> str:
        return "four_rows"

    def schema(self) -> str:
        return "number INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        return FourRowsReader()


class FourRowsReader(DataSourceReader):
    numbers: Iterable[int] = (1, 2, 3, 4)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        for one in filters:
            if isinstance(one, EqualTo):
                self.numbers = (one.value,)
            yield one

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((number,) for number in self.numbers)


@pytest.fixture(autouse=True)
def _pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(SWITCH, "true")
    yield
    spark.conf.unset(SWITCH)


@pytest.fixture
def four(spark: SparkSession) -> DataFrame:
    spark.dataSource.register(FourRows)
    return spark.read.format("four_rows").load()


@pytest.fixture
def messages(spark: SparkSession, unpacked: Unpack) -> DataFrame:
    return spark.read.format("rocketmq").schema("queue_id INT, topic STRING").load(str(unpacked(WORKLOAD)))


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.collect())


def test_one_filter_of_a_relation_is_pushed_and_right(four: DataFrame) -> None:
    assert numbers(four.where("number = 3")) == [3]


broken_in_spark = pytest.mark.xfail(strict=True, reason="Spark 4.1 to 4.3 keep the pushed read on the relation")


@broken_in_spark
def test_filter_then_whole(four: DataFrame) -> None:
    assert numbers(four.where("number = 3")) == [3]
    assert numbers(four) == [1, 2, 3, 4]


@broken_in_spark
def test_union_of_two_filters(four: DataFrame) -> None:
    assert numbers(four.where("number = 3").union(four.where("number = 4"))) == [3, 4]


@broken_in_spark
def test_self_join(four: DataFrame) -> None:
    assert four.where("number = 3").alias("l").crossJoin(four.where("number = 4").alias("r")).count() == 1
    assert four.alias("l").crossJoin(four.alias("r")).count() == 16


@broken_in_spark
def test_view(spark: SparkSession, four: DataFrame) -> None:
    four.createOrReplaceTempView("four_numbers")
    assert numbers(spark.sql("SELECT * FROM four_numbers WHERE number = 3")) == [3]
    assert numbers(spark.sql("SELECT * FROM four_numbers")) == [1, 2, 3, 4]


def test_every_shape_of_a_query_of_messages_is_right(spark: SparkSession, messages: DataFrame) -> None:
    facts = WORKLOAD.facts("msg")
    zero, one = ([fact["topic"] for fact in facts if fact["queueId"] == queue_id] for queue_id in (0, 1))
    first, second = messages.where("queue_id = 0"), messages.where("queue_id = 1")
    messages.createOrReplaceTempView("all_messages")
    assert first.count() == len(zero)
    assert messages.count() == len(facts)
    assert first.union(second).count() == len(zero) + len(one)
    assert first.alias("l").join(second.alias("r"), "topic").count() == sum(one.count(topic) for topic in zero)
    assert spark.sql("SELECT * FROM all_messages WHERE queue_id = 1").count() == len(one)
    assert spark.table("all_messages").count() == len(facts)
    cached = first.cache()
    assert (cached.count(), second.count(), messages.count()) == (len(zero), len(one), len(facts))
    cached.unpersist()


def test_every_shape_of_a_query_of_a_stream_is_right(spark: SparkSession, unpacked: Unpack, tmp_path: Path) -> None:
    stream = spark.readStream.format("rocketmq").load(str(unpacked(WORKLOAD))).select("queue_id")
    both = stream.where("queue_id = 0").union(stream.where("queue_id = 1"))
    query = both.writeStream.format("memory").queryName("both_queues").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    expected = sum(fact["queueId"] in (0, 1) for fact in WORKLOAD.facts("msg"))
    assert spark.table("both_queues").count() == expected
