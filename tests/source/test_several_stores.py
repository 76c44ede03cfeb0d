"""Tables of two brokers' stores through Spark, one of 5.3.3 and one of 4.9.7: the union, which names the broker."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_mq.datasource import RocketMQDataSource
from spark_mq.source.options import names_of
from spark_mq.tables.all_tables import TABLES
from tests.support.stores import OWN_STORES, Unpack, stores_in

NEW, OLD = (next(one for one in stores_in(OWN_STORES) if one.name == name) for name in ("workload-533", "workload-49x"))
EMPTY = {
    "consumer_filters",
    "traces",
    "compacted_messages",
    "compaction_states",
    "epochs",
    *(name for name in TABLES if name.startswith("tiered_")),
}
"""Tables without a row of these stores."""
BROKERS = {"broker-new": NEW, "broker-old": OLD}
AT = {
    table: {"at": "1800000000000"} for table in ("transactions", "delayed", "retries", "consumer_progress", "retention")
}

THROUGH_SPARK = ("messages", "consume_queue", "topics")
"""One table of each way in which partitions are made; the other ones are read here."""


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


def read_here(**options: str) -> pa.Table:
    """The rows of a table, from its readers, as Spark gets them: sent to another process, and read in tasks."""
    source = RocketMQDataSource(options)
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    partitions = pickle.loads(pickle.dumps(list(reader.partitions())))
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in source.schema().names})


@pytest.mark.parametrize("table", list(TABLES))
def test_every_table_is_the_union_and_names_the_broker(
    request: pytest.FixtureRequest, unpacked: Unpack, stores: str, table: str
) -> None:
    options = AT.get(table, {})
    if table in THROUGH_SPARK:
        spark: SparkSession = request.getfixturevalue("spark")
        frame = spark.read.format("rocketmq").option("table", table).options(**options)
        found = frame.option("stores", stores).load().toArrow()
    else:
        found = read_here(stores=stores, table=table, **options)
    assert found.column_names[:3] == ["cluster", "broker", "store"]
    assert set(found["cluster"].to_pylist()) <= {"prod"}
    assert found["broker"].to_pylist() == found["store"].to_pylist()
    count = 0
    for broker, store in BROKERS.items():
        conf = {"brokerConf": str(store.broker_conf)} if "brokerConf" in names_of(table) else {}
        rows = read_here(path=str(unpacked(store)), table=table, **options, **conf).to_pylist()
        assert rows or table in EMPTY, "the test would compare nothing"
        named = [row for row in found.to_pylist() if row["broker"] == broker]
        assert Counter(map(repr, map(without_names, named))) == Counter(map(repr, rows)), broker
        count += len(rows)
    assert found.num_rows == count


def without_names(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in ("cluster", "broker", "store")}


def test_paths_and_filters(spark: SparkSession, unpacked: Unpack, stores: str) -> None:
    paths = [str(unpacked(store)) for store in BROKERS.values()]
    for frame in (
        spark.read.format("rocketmq").load(paths),
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
