"""Stores and archives on HDFS in Spark: its tasks read and write HDFS, and its own client writes tables there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from spark_mq import rebuild, register
from tests.hdfs.cluster import HdfsCluster
from tests.support.delta_rows import delta_rows
from tests.support.stores import OWN_STORES, RealStore, tree_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.hdfs

Place = Callable[[RealStore], tuple[str, str]]

KILLED = RealStore("killed-49x", OWN_STORES)
FACTS = {fact["offset"]: fact["topic"] for fact in KILLED.facts("msg")}


def test_tasks_read_the_rows_of_the_local_disk(spark: SparkSession, on_hdfs: Place) -> None:
    register(spark)
    here, there = (spark.read.format("rocketmq").option("splitSize", "100k").load(path) for path in on_hdfs(KILLED))
    assert there.rdd.getNumPartitions() > 1
    assert there.orderBy("commit_log_offset").collect() == here.orderBy("commit_log_offset").collect()


def test_a_stream_reads_every_message_once(spark: SparkSession, on_hdfs: Place, tmp_path: Path) -> None:
    register(spark)
    messages = spark.readStream.format("rocketmq").option("maxBytesPerTrigger", "100k").load(on_hdfs(KILLED)[1])
    query = (
        messages.select("commit_log_offset")
        .writeStream.format("json")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["commit_log_offset"] for line in lines) == sorted(FACTS)


def test_tasks_write_the_bytes_of_the_local_disk(
    spark: SparkSession, on_hdfs: Place, hdfs: HdfsCluster, tmp_path: Path
) -> None:
    here, there = on_hdfs(KILLED)
    rebuild(spark, here, str(tmp_path), broker_conf=str(KILLED.broker_conf), split_size=100 << 10)
    rebuild(spark, there, f"{hdfs.address}/spark", broker_conf=str(KILLED.broker_conf), split_size=100 << 10)
    assert hdfs.files("/spark") == tree_of(tmp_path)


@pytest.mark.archive
def test_an_archive_of_a_store_on_hdfs_has_its_messages(delta: SparkSession, on_hdfs: Place, tmp_path: Path) -> None:
    from spark_mq.archive.writer import archive

    report = archive(delta, on_hdfs(KILLED)[1], str(tmp_path / "messages"), broker="a", store_name="s")
    assert {row["commit_log_offset"]: row["topic"] for row in delta_rows(tmp_path / "messages")} == FACTS
    assert report.rows == len(FACTS)


@pytest.mark.archive
def test_the_tables_of_an_archive_can_be_on_hdfs(delta: SparkSession, on_hdfs: Place, hdfs: HdfsCluster) -> None:
    from spark_mq.archive.writer import archive

    table = f"{hdfs.address}/archive/messages"
    reports = [archive(delta, on_hdfs(KILLED)[1], table, broker="a", store_name="s") for _ in range(2)]
    rows = delta.read.format("delta").load(table).select("commit_log_offset", "topic").collect()
    assert {row.commit_log_offset: row.topic for row in rows} == FACTS
    assert [report.rows for report in reports] == [len(FACTS), 0]
    assert len(rows) == len(FACTS)
