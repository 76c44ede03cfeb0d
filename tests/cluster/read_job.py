"""A job for spark-submit: `read_job.py RESULT JOB STORE ...` writes what it read, and where its tasks ran, as JSON.

Then it is that other job, with `STORE ...`, in the same driver: a further one would start all executors again.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_mq import register

COLUMNS = "commit_log_offset BIGINT, topic STRING, queue_id INT, queue_offset BIGINT, tags STRING, unique_key STRING"


def places(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the task's working folder, and where it has the package from."""
    import spark_mq

    yield pa.RecordBatch.from_pydict({"folder": [os.getcwd()], "package": [spark_mq.__file__]})


def main(result: str, job: str, store: str, *words: str) -> None:
    """Read with splits of 64 KiB, so that every executor has some."""
    spark = SparkSession.builder.appName("read").getOrCreate()
    register(spark)
    messages = spark.read.format("rocketmq").option("splitSize", "64k").schema(COLUMNS).load(store)
    ran = spark.range(0, 4, 1, 4).mapInArrow(places, "folder STRING, package STRING")
    found = {
        "messages": [row.asDict() for row in messages.collect()],
        "topics": {row.topic: row["count"] for row in messages.groupBy("topic").count().collect()},
        "places": [row.asDict() for row in ran.distinct().collect()],
    }
    Path(result).write_text(json.dumps(found), encoding="utf-8")
    sys.argv[:] = [job, store, *words]
    runpy.run_path(job, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
