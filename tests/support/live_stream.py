"""A stream of a live cluster in a process of its own: `python -m tests.support.live_stream ADDRESS CHECKPOINT OUT ...`.

It writes the messages of topics into Parquet files, whose sink has each batch once, until it is killed.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from spark_mq.datasource import register


def main(address: str, checkpoint: str, out: str, *options: str) -> None:
    """Stream until the process is killed, or, with option `availableNow=true`, to the end of the queues."""
    given = dict(option.split("=", 1) for option in options)
    ends = given.pop("availableNow", "") == "true"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)
    rows = (
        spark.readStream.format("rocketmq")
        .options(**given)
        .load(address)
        .select("topic", "queue_id", "queue_offset", "body")
    )
    writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", out)
    writer = writer.trigger(availableNow=True) if ends else writer.trigger(processingTime="0 seconds")
    query = writer.start()
    print("started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
