"""What must work on every Spark: `smoke.py` prints, as JSON, what each check came to ("yes", or why not).

It runs in an environment into which the package was installed; through Spark Connect where `SPARK_REMOTE` is set.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

# Behind the installed package, which must be what is tested.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from spark_mq import rebuild, register, sql
from spark_mq.archive.delta import delta_settings
from spark_mq.archive.writer import archive
from spark_mq.cli.spark import spark_session
from spark_mq.errors import UnsupportedSparkError
from tests.support.stores import SAME, WORKLOAD, Fact, tree_of

ROLLBACK = 0b1100
"""The transaction type, in a message's flags, that no index has (`MessageSysFlag`@5.3.3)."""


def main() -> None:
    """Run every check; one that fails does not stop the others."""
    with tempfile.TemporaryDirectory() as folder, spark_session("spark-mq smoke test", delta_if_any) as spark:
        store = WORKLOAD.unpack(Path(folder))
        found = {name: outcome(check, spark, store) for name, check in CHECKS.items()}
        versions = {"spark": spark.version, "python": platform.python_version()}
        print(json.dumps(versions | found))


def delta_if_any() -> dict[str, str]:
    """The settings for Delta tables, if there is a Delta Lake for this Spark."""
    try:
        return delta_settings()
    except UnsupportedSparkError:
        return {}


def outcome(check: Callable[[SparkSession, Path], None], spark: SparkSession, store: Path) -> str:
    """`yes`, or the line of the error that says what it is: that of a task stands in the midst of Spark's."""
    try:
        check(spark, store)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        lines: list[str] = re.findall(r"^[\w.]+(?:Error|Exception): .*$", text, re.MULTILINE)
        return lines[-1] if lines else text.partition("\n")[0]
    return "yes"


def read(spark: SparkSession, store: Path, **options: Any) -> DataFrame:
    """The messages; Spark finds the format by itself."""
    return spark.read.format("rocketmq").options(**options).load(str(store))


def offsets(frame: DataFrame) -> list[int]:
    """The commit log offsets, sorted."""
    return sorted(row.commit_log_offset for row in frame.select("commit_log_offset").collect())


def facts_by_offset() -> list[Fact]:
    """What Apache RocketMQ said of the store's messages."""
    return sorted(WORKLOAD.facts("msg"), key=lambda fact: fact["offset"])


def check_rows(spark: SparkSession, store: Path) -> None:
    """Every row equals what Apache RocketMQ said of the message, and there is no row more."""
    rows = sorted(read(spark, store).collect(), key=lambda row: row.commit_log_offset)
    for row, fact in zip(rows, facts_by_offset(), strict=True):
        expect([row[ours] for ours in SAME], [fact[theirs] for theirs in SAME.values()])
        expect(round(row.store_timestamp.timestamp() * 1000), fact["storeTimestamp"])
        expect(hashlib.md5(row.body).hexdigest(), fact["bodyMd5"])
        expect(dict(row.properties), fact["properties"])
        expect(row["keys"], None if fact["keys"] is None else fact["keys"].split())


def check_columns(spark: SparkSession, store: Path) -> None:
    """A schema is the column list, in its order; also for columns that exist only when they are named."""
    schema = "queue_offset BIGINT, store_timestamp_millis BIGINT, topic STRING, stored_body BINARY"
    frame = spark.read.format("rocketmq").schema(schema).load(str(store))
    found = {(*row[:3], len(row.stored_body)) for row in frame.collect()}
    expect(found, {(f["queueOffset"], f["storeTimestamp"], f["topic"], f["bodyLenRaw"]) for f in WORKLOAD.facts("msg")})
    try:
        spark.read.format("rocketmq").schema("topc STRING").load(str(store)).collect()
    except PySparkException as error:
        expect("did you mean topic" in str(error), True)
    else:
        raise AssertionError("an unknown column is no error")


def check_options(spark: SparkSession, store: Path) -> None:
    """Topic, time, size of splits; in a view, too."""
    facts = facts_by_offset()
    expect(offsets(read(spark, store, splitSize="32k")), [fact["offset"] for fact in facts])
    topic = facts[-1]["topic"]
    expect(offsets(read(spark, store, topic=topic)), [fact["offset"] for fact in facts if fact["topic"] == topic])
    times = sorted(fact["storeTimestamp"] for fact in facts)
    start, end = times[len(times) // 3], times[2 * len(times) // 3]
    timed = read(spark, store, startTimestamp=str(start), endTimestamp=str(end))
    expect(offsets(timed), [fact["offset"] for fact in facts if start <= fact["storeTimestamp"] <= end])
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW one_topic USING rocketmq OPTIONS (path '{store}', topic '{topic}')")
    (row,) = spark.sql("SELECT count(*) AS messages FROM one_topic").collect()
    expect(row, Row(messages=sum(fact["topic"] == topic for fact in facts)))


def check_damage(spark: SparkSession, store: Path) -> None:
    """The three modes, with a magic number that is none in the log's second message."""
    facts = facts_by_offset()
    broken = facts[1]
    with tempfile.TemporaryDirectory() as folder:
        damaged = WORKLOAD.unpack(Path(folder))
        segment = min((damaged / "commitlog").iterdir())
        data = bytearray(segment.read_bytes())
        data[broken["offset"] - int(segment.name) + 4] ^= 0xFF
        segment.write_bytes(data)
        sound = [fact["offset"] for fact in facts if fact is not broken]
        expect(offsets(read(spark, damaged, mode="DROPMALFORMED")), sound)
        rows = read(spark, damaged).where("_corrupt_record IS NOT NULL").collect()
        expect([(row.commit_log_offset, row.store_size) for row in rows], [(broken["offset"], broken["size"])])
        try:
            read(spark, damaged, mode="FAILFAST").collect()
        except PySparkException as error:
            expect(f"commit log offset {broken['offset']}" in str(error), True)
        else:
            raise AssertionError("FAILFAST did not fail")


def check_rebuild(spark: SparkSession, store: Path) -> None:
    """Every queue file is the broker's own, byte for byte."""
    with tempfile.TemporaryDirectory() as output:
        rebuild(spark, str(store), output, broker_conf=str(WORKLOAD.broker_conf), split_size=64 << 10)
        expect(tree_of(Path(output) / "consumequeue") == tree_of(store / "consumequeue"), True)


def check_look_ups(spark: SparkSession, store: Path) -> None:
    """A key by an option, in the table of keys, in SQL and by the function: each time the messages that have it."""
    fact = next(fact for fact in WORKLOAD.facts("msg") if fact["keys"])
    topic, key = fact["topic"], fact["keys"].split()[0]
    found = [
        each
        for each in facts_by_offset()
        if each["topic"] == topic and key in [*(each["keys"] or "").split(), each["uniqKey"]]
    ]
    wanted = [each["offset"] for each in found if each["sysFlag"] & ROLLBACK != ROLLBACK]
    expect(offsets(read(spark, store, topic=topic, key=key)), wanted)
    expect(offsets(read(spark, store, table="messages_by_key", topic=topic, key=key)), wanted)
    where = f"topic = '{topic}' AND (array_contains(keys, '{key}') OR unique_key = '{key}')"
    expect(
        offsets(sql(spark, f"SELECT * FROM messages WHERE {where}", stores={"one": str(store)})),
        [each["offset"] for each in found],
    )
    register(spark)
    expect(offsets(spark.sql(f"SELECT * FROM rocketmq_lookup('{store}', '{topic}', '{key}')")), wanted)


def check_stream(spark: SparkSession, store: Path) -> None:
    """A stream that ends by itself, begun again with its checkpoint: every message once."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            stream = spark.readStream.format("rocketmq").load(str(store)).select("commit_log_offset")
            writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
            writer.trigger(availableNow=True).start(f"{folder}/rows").awaitTermination()
        expect(offsets(spark.read.parquet(f"{folder}/rows")), [fact["offset"] for fact in facts_by_offset()])


def check_archive(spark: SparkSession, store: Path) -> None:
    """Archived twice, every message is there once."""
    delta_settings()
    with tempfile.TemporaryDirectory() as folder:
        table = f"{folder}/messages"
        rows = [archive(spark, str(store), table).rows for _ in range(2)]
        expect(rows, [len(WORKLOAD.facts("msg")), 0])
        expect(offsets(spark.read.format("delta").load(table)), [fact["offset"] for fact in facts_by_offset()])


def expect(found: object, wanted: object) -> None:
    """A comparison that also holds under `python -O`."""
    if found != wanted:
        raise AssertionError(f"{str(found)[:200]} is not {str(wanted)[:200]}")


CHECKS = {
    "rows": check_rows,
    "columns": check_columns,
    "options": check_options,
    "damage modes": check_damage,
    "look-ups, SQL": check_look_ups,
    "stream": check_stream,
    "archive": check_archive,
    "rebuild": check_rebuild,
}

if __name__ == "__main__":
    os.chdir(tempfile.gettempdir())
    main()
