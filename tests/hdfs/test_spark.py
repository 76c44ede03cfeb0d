"""Stores and archives on HDFS in Spark: its tasks read and write HDFS, and its own client writes tables there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import spark_partition_id

from spark_mq import rebuild, register
from tests.hdfs.cluster import HdfsCluster
from tests.support.both_places import Place
from tests.support.rebuilt import rebuild_here
from tests.support.stores import OWN_STORES, RealStore, tree_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.hdfs


KILLED = RealStore("killed-49x", OWN_STORES)
FACTS = {fact["offset"]: fact["topic"] for fact in KILLED.facts("msg")}


def test_tasks_read_every_message(spark: SparkSession, on_hdfs: Place) -> None:
    register(spark)
    messages = spark.read.format("rocketmq").option("splitSize", "100k").load(on_hdfs(KILLED)[1])
    rows = messages.select("commit_log_offset", "topic", spark_partition_id().alias("task")).collect()
    assert {row.commit_log_offset: row.topic for row in rows} == FACTS
    assert len(rows) == len(FACTS)
    assert len({row.task for row in rows}) > 1


def test_tasks_write_the_bytes_of_the_local_disk(
    spark: SparkSession, on_hdfs: Place, hdfs: HdfsCluster, tmp_path: Path
) -> None:
    here, there = on_hdfs(KILLED)
    rebuild_here(here, tmp_path, broker_conf=str(KILLED.broker_conf))
    rebuild(spark, there, f"{hdfs.address}/spark", broker_conf=str(KILLED.broker_conf), split_size=100 << 10)
    assert hdfs.files("/spark") == tree_of(tmp_path)


@pytest.mark.archive
def test_a_store_on_hdfs_is_archived_into_tables_on_hdfs(
    delta: SparkSession, on_hdfs: Place, hdfs: HdfsCluster
) -> None:
    """Spark writes the tables by its own client."""
    from spark_mq.archive.writer import archive

    report = archive(delta, on_hdfs(KILLED)[1], f"{hdfs.address}/archive/messages", broker="a", store_name="s")
    rows = delta.read.format("delta").load(f"{hdfs.address}/archive/messages").select("commit_log_offset", "topic")
    assert {row.commit_log_offset: row.topic for row in rows.collect()} == FACTS
    assert report.rows == len(FACTS)
