"""Tables of two brokers' stores through Spark, one of 5.3.3 and one of 4.9.7: the union, which names the broker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_mq.source.datasource import RocketMQDataSource
from spark_mq.source.options import Table
from tests.support.stores import OWN_STORES, RealStore, stores_in

Unpack = Callable[[RealStore], Path]
NEW, OLD = (next(one for one in stores_in(OWN_STORES) if one.name == name) for name in ("workload-533", "workload-49x"))
BROKERS = {"broker-new": NEW, "broker-old": OLD}
AT = {
    table: {"at": "1800000000000"} for table in ("transactions", "delayed", "retries", "consumer_progress", "retention")
}


@pytest.fixture
def stores(unpacked: Unpack, tmp_path: Path) -> str:
    """The file of the two stores."""
    entries = [
        {"name": name, "cluster": "prod", "broker": name, "path": str(unpacked(store)), "broker_conf": str(conf)}
        for name, store in BROKERS.items()
        for conf in [store.broker_conf]
    ]
    file = tmp_path / "stores.json"
    file.write_text(json.dumps(entries))
    return str(file)


def of_one_store(path: Path, table: str, **options: str) -> list[dict[str, object]]:
    """The rows of the table of one store, from its reader."""
    source = RocketMQDataSource({"path": str(path), "table": table, **options})
    reader = source.reader(source.schema())
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@pytest.mark.parametrize("table", [table.value for table in Table])
def test_every_table_is_the_union_and_names_the_broker(
    spark: SparkSession, unpacked: Unpack, stores: str, table: str
) -> None:
    options = AT.get(table, {})
    frame = spark.read.format("rocketmq").option("table", table).options(**options)
    found = frame.option("stores", stores).load().toArrow()
    assert found.column_names[:3] == ["cluster", "broker", "store"]
    assert set(found["cluster"].to_pylist()) <= {"prod"}
    assert found["broker"] == found["store"]
    for broker, store in BROKERS.items():
        own = (
            {**options, "brokerConf": str(store.broker_conf)} if table in ("index_files", "index_entries") else options
        )
        rows = of_one_store(unpacked(store), table, **own)
        assert rows or table in ("consumer_filters", "traces"), "the test would compare nothing"
        named = found.filter(pa.compute.equal(found["broker"], broker)).drop_columns(["cluster", "broker", "store"])
        assert Counter(map(repr, named.to_pylist())) == Counter(map(repr, rows)), broker


def test_paths_and_filters_that_are_pushed(spark: SparkSession, unpacked: Unpack, stores: str) -> None:
    paths = [str(unpacked(store)) for store in BROKERS.values()]
    for frame in (
        spark.read.format("rocketmq").load(paths),
        spark.read.format("rocketmq").option("pushdown", "true").load(paths),
        spark.read.format("rocketmq").schema("store STRING, topic STRING, queue_id INT").load(paths),
    ):
        found = frame.where("topic = 'OrderEvents' AND queue_id = 1").groupBy("store").count().collect()
        assert {row["store"]: row["count"] for row in found} == {
            str(unpacked(store)): sum(
                fact["topic"] == "OrderEvents" and fact["queueId"] == 1 for fact in store.facts("msg")
            )
            for store in BROKERS.values()
        }


def test_an_error_names_the_store(spark: SparkSession, unpacked: Unpack, tmp_path: Path) -> None:
    paths = [str(unpacked(NEW)), str(tmp_path / "none")]
    with pytest.raises(PySparkException, match="none"):
        spark.read.format("rocketmq").load(paths).count()
    read = spark.read.format("rocketmq").option("skipUnreadable", "true").load(paths)
    assert read.count() == len(NEW.facts("msg"))
