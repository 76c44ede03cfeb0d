"""An archive follows a broker that writes, is killed, and goes on: every message once, whole, and soon.

It takes half a minute; `SPARK_MQ_FOLLOW_SECONDS` says how long the broker writes (`make soak`: five minutes).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_mq.archive.report import ArchiveReport
from spark_mq.archive.writer import archive
from spark_mq.store.filesystem import Location
from spark_mq.store.live_end import LiveEndFinder
from tests.broker import harness

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]

SETTINGS = {
    "autoCreateTopicEnable": "false",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "60000",
}
SECONDS = float(os.environ.get("SPARK_MQ_FOLLOW_SECONDS", "24"))
MESSAGES = 400
"""Of each round; a round takes a second or two."""

PATIENCE = 120.0
"""Seconds after which the archive has failed to catch up. It should take 15; the test prints what it took."""


class Follower:
    """An archive run that goes on in a thread until it is told to stop."""

    def __init__(self, spark: SparkSession, store: Path, table: str) -> None:
        self._asked = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._run: Future[ArchiveReport] = self._pool.submit(
            archive, spark, str(store), table, follow_seconds=5, stop=self._asked.is_set
        )

    def stop(self) -> ArchiveReport:
        """Stop, and give the report. Raises what the run raised."""
        self._asked.set()
        report = self._run.result(PATIENCE)
        self._pool.shutdown()
        return report

    def assert_running(self) -> None:
        """Raise what the run raised, if it ended."""
        if self._run.done():
            self._run.result()
            raise AssertionError("the archive stopped by itself")


def archived_end(spark: SparkSession, table: str) -> int:
    (row,) = spark.sql(f"SELECT max(commit_log_offset + store_size) AS end FROM delta.`{table}`").collect()
    return row.end or 0


@contextlib.contextmanager
def following(spark: SparkSession, store: Path, table: str) -> Iterator[Follower]:
    follower = Follower(spark, store, table)
    try:
        yield follower
    finally:
        follower.stop()


def write(broker: harness.Broker, until: float, first: int) -> int:
    """Send rounds of messages until a time; gives the number behind the last message."""
    while time.monotonic() < until:
        first += harness.send(broker, "sequence", seed=first, count=MESSAGES, first=first, body=700)
    return first


def test_every_message_is_archived_once_while_the_broker_is_killed_and_restarted(
    delta: SparkSession, tmp_path: Path
) -> None:
    version, store, table = harness.VERSIONS[0], tmp_path / "store", str(tmp_path / "lake" / "messages")
    began = time.monotonic()
    with harness.Broker(version, store, SETTINGS) as broker:
        number = write(broker, began, 0) + harness.send(broker, "sequence", seed=1, count=10)
        with following(delta, store, table) as follower:
            number = write(broker, began + SECONDS / 4, number)
            follower.assert_running()
        # The stream begins again with its checkpoint; then the broker is killed while four producers write.
        with following(delta, store, table) as follower:
            burst = harness.Sender(broker, "burst", seed=2, count=1_000_000)
            time.sleep(min(SECONDS / 6, 10))
            broker.kill()
            with contextlib.suppress(harness.HarnessError):
                burst.wait()
            with harness.Broker(version, store, SETTINGS) as again:
                write(again, max(began + SECONDS, time.monotonic() + SECONDS / 4), number)
                caught_up = catch_up(delta, store, table)
            follower.assert_running()
    print(f"the archive had everything {caught_up:.1f} s after the last message was sent")
    harness.describe(store, SETTINGS, tmp_path / "facts.jsonl", version)
    with (tmp_path / "facts.jsonl").open(encoding="utf-8") as lines:
        facts = [fact for fact in map(json.loads, lines) if fact["t"] == "msg"]
    rows = delta.read.format("delta").load(table).select("commit_log_offset", "body", "_corrupt_record").toArrow()
    assert rows["_corrupt_record"].null_count == rows.num_rows
    found = sorted(
        (row["commit_log_offset"], hashlib.md5(row["body"]).hexdigest())
        for row in rows.select(["commit_log_offset", "body"]).to_pylist()
    )
    assert found == sorted((fact["offset"], fact["bodyMd5"]) for fact in facts)
    print(f"{len(found):,} messages")


def catch_up(spark: SparkSession, store: Path, table: str) -> float:
    """Wait until the archive has what the log has; gives the seconds that took."""
    end = LiveEndFinder(Location.resolve(str(store))).find_now()
    began = time.monotonic()
    while archived_end(spark, table) < end:
        assert time.monotonic() - began < PATIENCE, (
            f"the log ends at {end}, the archive at {archived_end(spark, table)}"
        )
        time.sleep(0.5)
    return time.monotonic() - began
