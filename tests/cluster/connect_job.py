"""A client of a Spark Connect server: `connect_job.py PACKAGE STORE BROKER_CONF OUTPUT` reads, and rebuilds.

`SPARK_REMOTE` says where the server is. What it found is printed as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from spark_mq import rebuild, register, sql

SETTING = "spark.sql.shuffle.partitions"


def main(package: str, store: str, broker_conf: str, output: str) -> None:
    """The server lacks the package: it is sent there for this session."""
    spark = SparkSession.builder.getOrCreate()
    spark.addArtifacts(package, pyfile=True)
    register(spark)
    topics = spark.read.format("rocketmq").load(store).groupBy("topic").count().collect()
    query = "SELECT count(*) FROM messages m JOIN messages n USING (commit_log_offset) WHERE m.topic = :topic"
    topic = topics[0].topic
    (counted,) = sql(spark, query, {"topic": topic}, stores={"one": store}).collect()
    before = spark.conf.get(SETTING)
    report = rebuild(spark, store, output, broker_conf=broker_conf)
    found = {
        "session": type(spark).__module__,
        "topics": {row.topic: row["count"] for row in topics},
        "counted": {topic: counted[0]},
        "messages": report.messages,
        "setting": [before, spark.conf.get(SETTING)],
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
