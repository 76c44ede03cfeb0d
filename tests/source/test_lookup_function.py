"""`rocketmq_lookup` in SQL: the rows of table `messages` that have the key, in every shape of query."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from spark_mq import register
from spark_mq.errors import OptionError
from spark_mq.source.lookup_function import RocketMQLookup, look_up
from tests.support.stores import WORKLOAD, Fact, Unpack


@pytest.fixture(scope="module")
def store(spark: SparkSession, unpacked: Unpack) -> str:
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


def test_a_key_gives_the_rows_of_the_table(engine: SparkSession, store: str, messages: list[Row]) -> None:
    keys = sorted({key for row in messages if row.topic == "OrderEvents" for key in row["keys"] or ()})[:5]
    keys.append(next(row.unique_key for row in messages if row.topic == "OrderEvents" and row.unique_key))
    for key in keys:
        found = lookup(engine, store, key)
        assert found.schema == engine.read.format("rocketmq").load(store).schema
        assert by_offset(found.collect()) == by_offset(having(messages, "OrderEvents", key))
    assert lookup(engine, store, "no such key").collect() == []


def test_for_each_row_of_another_table(engine: SparkSession, store: str, messages: list[Row]) -> None:
    """A lateral join, with keys that are NULL, doubled, and not there; and its union with itself."""
    keys = sorted({key for row in messages if row.topic == "OrderEvents" for key in row["keys"] or ()})
    wanted = [*keys[:40], keys[0], None, "no such key"]
    engine.createDataFrame([(key,) for key in wanted], "id STRING").createOrReplaceTempView("orders")
    query = f"""
        SELECT o.id, m.commit_log_offset, m.body
        FROM orders o, LATERAL rocketmq_lookup('{store}', 'OrderEvents', o.id, '{WORKLOAD.broker_conf}') m"""
    expected = sorted(
        (key, row.commit_log_offset) for key in wanted if key for row in having(messages, "OrderEvents", key)
    )
    found = engine.sql(query).collect()
    assert sorted((row.id, row.commit_log_offset) for row in found) == expected
    assert all(isinstance(row.body, bytearray | bytes) for row in found)
    assert engine.sql(f"{query} UNION ALL {query}").count() == 2 * len(expected)


def test_many_keys_at_once(engine: SparkSession, store: str, messages: list[Row]) -> None:
    """All keys of all topics, some of them twice, in several tasks, with NULL and keys that are not there."""
    keys = {(row.topic, key) for row in messages for key in [*(row["keys"] or ()), row.unique_key] if key}
    wanted = [*keys, *list(keys)[:50], ("OrderEvents", "no such key"), ("OrderEvents", None), (None, "k"), ("no", "k")]
    numbered = [(number, *pair) for number, pair in enumerate(wanted)]
    asked = engine.createDataFrame(numbered, "number INT, topic STRING, key STRING").repartition(3)
    names = ["key_type", "commit_log_offset", "body", "store_timestamp"]
    table = engine.read.format("rocketmq").option("table", "messages_by_key").load(store)
    by_key: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for topic, key, *values in table.select("topic", "key", *names).collect():
        by_key.setdefault((topic, key), []).append(tuple(values))
    expected = [(number, *pair, *values) for number, *pair in numbered for values in by_key.get(tuple(pair), [])]
    found = look_up(asked, store, names, str(WORKLOAD.broker_conf))
    assert sorted(map(tuple, found.collect())) == sorted(expected)
    whole = look_up(asked.drop("number"), store, broker_conf=str(WORKLOAD.broker_conf))
    others = [field for field in table.schema if field.name not in ("topic", "key")]
    assert whole.schema.fields[2:] == others
    assert whole.count() == len(expected)
    assert look_up(asked, store, [], str(WORKLOAD.broker_conf)).count() == len(expected)


def test_what_cannot_be_looked_up(engine: SparkSession, store: str) -> None:
    asked = engine.createDataFrame([("T", 5)], "topic STRING, id INT")
    with pytest.raises(OptionError, match="no column key"):
        look_up(asked, store)
    with pytest.raises(OptionError, match="no column 'nope'"):
        look_up(asked.withColumnRenamed("id", "key"), store, ["nope"])
    with pytest.raises(OptionError, match="column 'body' of its own"):
        look_up(asked.selectExpr("topic", "id AS key", "1 AS body"), store)
    assert look_up(asked.withColumnRenamed("id", "key"), store).collect() == []


def test_a_number_is_a_key_and_there_can_be_a_limit(engine: SparkSession, store: str) -> None:
    query = f"SELECT * FROM rocketmq_lookup('{store}', 'OrderEvents', 5)"
    assert engine.sql(query).collect() == []
    limited = f"SELECT * FROM rocketmq_lookup('{store}', 'DirectTopic', 'shared', max_num => 2)"
    assert engine.sql(limited).count() == 2


def times_of(messages: list[Row], topic: str, key: str) -> list[tuple[datetime, int]]:
    """Store time and commit log offset of a key's messages, newest first."""
    found = [(row.store_timestamp, int(row.commit_log_offset)) for row in having(messages, topic, key)]
    return sorted(found, key=lambda one: -one[1])


def test_the_newest_not_later_than_a_time_for_each_row(engine: SparkSession, store: str, messages: list[Row]) -> None:
    """NULL finds nothing, as a comparison with NULL does."""
    all_times = times_of(messages, "DirectTopic", "shared")
    millisecond = timedelta(milliseconds=1)
    wanted = [time + shift for time, _ in all_times[::9] for shift in (timedelta(0), -millisecond, millisecond / 4)]
    rows = [(number, time) for number, time in enumerate([*wanted, None])]
    engine.createDataFrame(rows, "id INT, paid_at TIMESTAMP").createOrReplaceTempView("payments")
    found = engine.sql(f"""
        SELECT p.id, m.commit_log_offset FROM payments p, LATERAL rocketmq_lookup(
            '{store}', 'DirectTopic', 'shared', '{WORKLOAD.broker_conf}', end => p.paid_at, max_num => 1) m""")
    expected = {
        number: next((offset for time, offset in all_times if time <= moment), None)
        for number, moment in enumerate(wanted)
    }
    assert {row.id: row.commit_log_offset for row in found.collect()} == {
        number: offset for number, offset in expected.items() if offset is not None
    }


class TestTimes:
    """The arguments of the function itself, which is plain Python."""

    @pytest.fixture(scope="class")
    @staticmethod
    def facts() -> list[Fact]:
        shared = [fact for fact in WORKLOAD.facts("msg") if "shared" in (fact.get("keys") or "").split(" ")]
        indexed = [fact for fact in shared if fact["topic"] == "DirectTopic" and fact["sysFlag"] & 12 != 12]
        return sorted(indexed, key=lambda fact: -int(fact["offset"]))

    @staticmethod
    def found(unpacked: Unpack, **arguments: Any) -> list[int]:
        store, conf = str(unpacked(WORKLOAD)), str(WORKLOAD.broker_conf)
        rows = RocketMQLookup().eval(store, "DirectTopic", "shared", conf, **arguments)
        return [row[0] for row in rows]

    def test_begin_and_end_are_included_in_every_form(self, facts: list[Fact], unpacked: Unpack) -> None:
        newest, oldest = facts[20]["storeTimestamp"], facts[60]["storeTimestamp"]
        expected = [fact["offset"] for fact in facts if oldest <= fact["storeTimestamp"] <= newest]
        assert 0 < len(expected) < len(facts)
        moments = [datetime.fromtimestamp(time / 1000, UTC) for time in (oldest, newest)]
        for begin, end in (
            (oldest, newest),
            moments,
            [moment.astimezone().replace(tzinfo=None) for moment in moments],  # as Spark gives a TIMESTAMP
            [moment.isoformat() for moment in moments],
            (str(oldest), str(newest)),
        ):
            assert self.found(unpacked, begin=begin, end=end) == expected, (begin, end)
        before, after = moments[0] - timedelta(microseconds=1), moments[1] + timedelta(microseconds=1)
        assert self.found(unpacked, begin=before, end=after) == expected
        inside = [fact["offset"] for fact in facts if oldest < fact["storeTimestamp"] < newest]
        later, earlier = moments[0] + timedelta(microseconds=1), moments[1] - timedelta(microseconds=1)
        assert self.found(unpacked, begin=later, end=earlier) == inside
        forever = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
        assert self.found(unpacked, begin=forever[0], end=forever[1]) == [fact["offset"] for fact in facts]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"begin": ""}, "begin='' is not a time"),
            ({"end": 1_795_258_842}, "epoch seconds"),
            ({"end": date(2026, 11, 21)}, "not a TIMESTAMP"),
            ({"begin": True}, "not a TIMESTAMP"),
            ({"max_num": 0}, "max_num 0: give 1 or more"),
            ({"max_num": -3}, "max_num -3: give 1 or more"),
        ],
        ids=str,
    )
    def test_a_mistake_is_said(self, arguments: dict[str, Any], message: str, unpacked: Unpack) -> None:
        with pytest.raises(OptionError, match=message):
            self.found(unpacked, **arguments)


def test_errors_say_what_is_wrong(engine: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="StoreNotFoundError"):
        engine.sql(f"SELECT * FROM rocketmq_lookup('{tmp_path / 'nope'}', 'T', 'K')").collect()
