"""A store of a form that is not read is an error in Spark, never a read without rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

SIZE = 4096


@pytest.mark.parametrize(
    ("names", "table", "message"),
    [
        (["dledger-n0/data/" + "0" * 20, "dledger-n1/data/" + "0" * 20], "messages", "several DLedger nodes"),
        (["commitlog/" + "0" * 20, "consumequeue/CURRENT", "consumequeue/MANIFEST-000005"], "queues", "RocksDB"),
        (["commitlog/" + "0" * 20, "commitlog/append-unfinished"], "messages", "appended"),
    ],
)
def test_a_read_of_a_store_that_is_not_read_fails(
    spark: SparkSession, tmp_path: Path, names: list[str], table: str, message: str
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(SIZE))
    frame = spark.read.format("rocketmq").option("table", table).load(str(tmp_path))
    with pytest.raises(PySparkException, match=message):
        frame.collect()
