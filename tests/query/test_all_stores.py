"""`all.messages`: the union of the stores of a query."""

from __future__ import annotations

import json
from collections import Counter

from pyspark.sql import SparkSession

from spark_mq import sql
from spark_mq.query.catalog import Store, columns_of, is_of_several, options_of, with_all
from spark_mq.query.sql import reads_of
from tests.support.stores import STORES, Unpack

NEW, OLD = STORES["workload-533"], STORES["workload-49x"]


def test_several_stores_have_a_union_with_the_options_of_each() -> None:
    stores: dict[str, Store] = {"a": "/data/a", "b": {"PATH": "/data/b", "mode": "FAILFAST", "brokerconf": "/b.conf"}}
    union = with_all(stores)
    assert list(union) == ["a", "b", "all"]
    options = options_of(union["all"], "messages")
    assert json.loads(options["stores"]) == [
        {"name": "a", "path": "/data/a"},
        {"name": "b", "path": "/data/b", "broker_conf": "/b.conf", "options": {"mode": "FAILFAST"}},
    ]
    assert columns_of(union["all"], "topics").default[:3] == ("cluster", "broker", "store")
    assert columns_of(union["a"], "topics").default[0] == "topic"
    assert with_all(union) == union


def test_one_store_and_stores_of_their_own_have_no_union() -> None:
    for stores in ({"a": "/a"}, {"a": "/a", "All": "/b"}, {"a": "/a", "b": "/data/*"}):
        assert with_all(stores) == stores
    assert is_of_several("/data/*")


def test_skipping_is_for_the_union() -> None:
    union = with_all({"a": {"path": "/a", "skipUnreadable": "true"}, "b": "/b"})
    assert options_of(union["all"], "topics")["skipUnreadable"] == "true"
    assert "skipUnreadable" not in options_of(union["a"], "topics")


def test_a_query_over_all_stores(spark: SparkSession, unpacked: Unpack) -> None:
    stores = {"new": str(unpacked(NEW)), "old": str(unpacked(OLD))}
    query = "SELECT store, topic, count(*) AS count FROM all.messages WHERE topic LIKE 'Order%' GROUP BY 1, 2"
    rows = sql(spark, query, stores=stores).collect()
    expected = Counter(
        (name, fact["topic"])
        for name, store in (("new", NEW), ("old", OLD))
        for fact in store.facts("msg")
        if fact["topic"].startswith("Order")
    )
    assert {(row["store"], row["topic"]): row["count"] for row in rows} == expected
    (read,) = reads_of(spark, "SELECT queue_id FROM all.messages WHERE store = 'old' AND topic = 'x'", stores=stores)
    assert [condition.column for condition in read.conditions] == ["store", "topic"]
    join = "SELECT count(*) FROM all.topics t JOIN new.topics n USING (topic) WHERE t.store = 'old'"
    (row,) = sql(spark, join, stores=stores).collect()
    topics = [{fact["topic"] for fact in store.facts("queue")} for store in (NEW, OLD)]
    assert row[0] >= len(topics[0] & topics[1]) > 0
    named = sql(spark, "SELECT DISTINCT broker, topic FROM new.topics", stores=stores).collect()
    assert {row["broker"] for row in named} == {"DEFAULT_BROKER"}
