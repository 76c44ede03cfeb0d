"""A Spark stream over two stores, one of which grows while the other one expires its head."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.growing_stores import log_of, places, put
from tests.support.stores import segment_files


def test_one_store_grows_and_one_expires(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "stores.json"
    stores = [tmp_path / name for name in ("grows", "expires", "added")]

    def run(number: int, **options: str) -> StreamingQuery:
        file.write_text(json.dumps([{"path": store.name, "name": store.name} for store in stores[:number]]))
        reader = spark.readStream.format("rocketmq").options(stores=str(file), mode="DROPMALFORMED", **options)
        frame = reader.schema("store STRING, commit_log_offset BIGINT").load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
        query.awaitTermination()
        return query

    def given() -> list[tuple[str, int]]:
        return sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "table")).collect())

    first, old = put(log_of(50), stores[0]), put(log_of(50), stores[1])
    run(2)
    assert given() == places(grows=first, expires=old)
    more, new, late = put(log_of(80), stores[0]), put(log_of(400), stores[1]), put(log_of(20), stores[2])
    segment_files(stores[1])[0].unlink()
    start = int(segment_files(stores[1])[0].name)
    query = run(3, failOnDataLoss="false")
    kept = [offset for offset in new if offset >= start]
    assert len(kept) < len(new) - len(old)
    assert given() == places(grows=more, expires=old + kept, added=late)
    assert query.lastProgress is not None
    end = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert [one["store"] for one in end["stores"]] == ["added", "expires", "grows"]
