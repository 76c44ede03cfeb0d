"""`df.write.format("rocketmq").save(store)` in Spark: one store out of several tasks, and errors that a user sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_mq
from tests.support.in_process import read_rows
from tests.support.verified import check, grave

CONF = "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=100\nmaxIndexNum=500\n"


def test_a_dataframe_becomes_a_store(spark: SparkSession, tmp_path: Path) -> None:
    spark_mq.register(spark)
    conf, store = tmp_path / "broker.conf", tmp_path / "store"
    conf.write_text(CONF)
    columns = ["'orders' AS topic", "id % 2 AS queue_id", "array(concat('key-', id)) AS keys", "'paid' AS tags"]
    columns += ["concat('number ', id) AS body", "timestamp_millis(1795248093000 + id) AS born_timestamp"]
    rows = spark.range(0, 600, 1, 3).selectExpr(*columns)
    write = rows.write.format("rocketmq").option("brokerConf", str(conf))

    with pytest.raises(PySparkException, match=r'(?s)ErrorIfExists.*"Append" or "Overwrite"'):
        write.save(str(store))
    for wrong, text in (
        (write.mode("append").option("renumbr", "true"), "unknown option renumbr; similar: renumber"),
        (rows.drop("topic").write.format("rocketmq").mode("append"), "'topic' is missing"),
        (rows.selectExpr("if(queue_id = 0, topic, 'a b') AS topic").write.format("rocketmq").mode("append"), "'a b'"),
    ):
        with pytest.raises(PySparkException, match=text):
            wrong.save(str(store))
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]

    rows.write.format("rocketmq").option("brokerConf", str(conf)).mode("append").save(str(store))
    found = [(row["queue_id"], row["queue_offset"], row["body"]) for row in read_rows(path=str(store))]
    assert found == [(number % 2, number // 2, b"number %d" % number) for number in range(600)]
    assert grave(check(store, conf)[1]) == []

    again = spark.read.format("rocketmq").load(str(store)).where("queue_id = 1")
    again.write.format("rocketmq").mode("overwrite").option("brokerConf", str(conf)).save(str(store))
    kept = [(row["queue_offset"], row["body"]) for row in read_rows(path=str(store)) if row["topic"] == "orders"]
    assert kept == [(number // 2, b"number %d" % number) for number in range(1, 600, 2)]
    assert len(list(tmp_path.glob("store.backup-*"))) == 1
