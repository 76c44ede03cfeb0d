"""`spark-mq archive --follow` beside a broker that writes, while either of them is killed and begins again.

It takes three minutes and more, so only `make soak` runs it; `tests/archive/test_archive.py` tries what can happen
between runs. The broker writes at least one round of messages at each stage. `SPARK_MQ_FOLLOW_SECONDS` says how
long it writes in all (five minutes), and how soon after the last message everything must be archived, with
`SPARK_MQ_LAG_SECONDS` (15, on a machine that does nothing else).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from spark_mq.io.location import Location
from spark_mq.store.live_end import LiveEndFinder
from tests.broker import harness
from tests.support.delta_rows import delta_rows

pytestmark = pytest.mark.broker

SEGMENT_SIZE = 1 << 20
SETTINGS = {
    "autoCreateTopicEnable": "false",
    "timerWheelEnable": "false",  # no message waits, and flushing the wheel takes a quarter of a core
    "mappedFileSizeCommitLog": str(SEGMENT_SIZE),
    "mappedFileSizeConsumeQueue": "60000",
}
SECONDS = float(os.environ.get("SPARK_MQ_FOLLOW_SECONDS", "0"))
LAG_SECONDS = float(os.environ.get("SPARK_MQ_LAG_SECONDS", "inf"))
MESSAGES = 400
"""Of each round; a round takes a second or two."""

PAUSE_SECONDS = 2.0 if SECONDS else 10.0
"""Between two rounds. Each starts a JVM, which takes time from a command that starts."""

START_SECONDS = 300.0
"""Until a command has archived its first batch, on a machine that is busy."""

BATCH = re.compile(r"up to commit log offset ([0-9,]+), ([0-9,]+) bytes before the end")


class Follower:
    """`spark-mq archive --follow 5`, in processes of its own; in the short form of the test `--follow 2`."""

    def __init__(self, store: Path, table: str, log: Path) -> None:
        self._log = log
        self._printed = log.stat().st_size if log.exists() else 0
        words = ["archive", str(store), table, "--follow", "5" if SECONDS else "2", "--json"]
        command = [sys.executable, "-m", "spark_mq.cli.main", *words]
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )

    @property
    def archived_to(self) -> int:
        """The commit log offset that it has come to, by what it printed; -1 before the first batch."""
        printed = self._log.read_text()[self._printed :]
        assert self._process.poll() is None, f"it ended by itself: {printed}"
        batches = BATCH.findall(printed)
        return int(batches[-1][0].replace(",", "")) if batches else -1

    def kill(self) -> None:
        """`kill -9` for all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> dict[str, Any]:
        """Ask it to end, as an operator does, and give its report."""
        os.kill(self._process.pid, signal.SIGTERM)
        output, _ = self._process.communicate(timeout=START_SECONDS)
        assert self._process.returncode == 0, self._log.read_text()
        report: dict[str, Any] = json.loads(output)
        return report


@contextmanager
def following(store: Path, table: str, log: Path) -> Iterator[Follower]:
    follower = Follower(store, table, log)
    try:
        yield follower
    finally:
        follower.kill()


class Producer:
    """Sends numbered messages, round by round."""

    def __init__(self) -> None:
        self._sent = 0

    def send(self, broker: harness.Broker, seconds: float) -> None:
        """Send for so many seconds, one round at least."""
        until = time.monotonic() + seconds
        while True:
            first = self._sent
            self._sent += harness.send(broker, "sequence", seed=first, count=MESSAGES, first=first, body=700)
            if time.monotonic() >= until:
                return
            time.sleep(PAUSE_SECONDS)

    def send_until_archived(self, broker: harness.Broker, follower: Follower) -> None:
        """Send on until the follower has appended a batch."""
        deadline = time.monotonic() + START_SECONDS
        while follower.archived_to < 0:
            assert time.monotonic() < deadline, "nothing was archived"
            self.send(broker, 0)
            pause_ends = time.monotonic() + PAUSE_SECONDS
            while time.monotonic() < pause_ends and follower.archived_to < 0:
                time.sleep(0.2)


@pytest.mark.skipif(not SECONDS, reason="a soak")
def test_every_message_is_archived_once_while_broker_and_archive_are_killed(
    delta_jars: dict[str, str], tmp_path: Path
) -> None:
    if not delta_jars:
        pytest.skip("Delta Lake's jars cannot be fetched from Maven Central")
    version, store, table = harness.VERSIONS[0], tmp_path / "store", str(tmp_path / "lake" / "messages")
    log, producer, began = tmp_path / "follow.log", Producer(), time.monotonic()
    with harness.Broker(version, store, SETTINGS) as broker:
        producer.send(broker, 0)
        with following(store, table, log) as follower:
            producer.send_until_archived(broker, follower)
            producer.send(broker, SECONDS / 4)
            assert follower.archived_to > 0  # it is alive
            follower.kill()
        with following(store, table, log) as follower:
            producer.send_until_archived(broker, follower)
            begin = log_end(store)
            burst = harness.Sender(broker, "burst", seed=2, count=1_000_000)
            while log_end(store) < begin + 2 * SEGMENT_SIZE:
                assert burst.is_sending
                time.sleep(0.1)
            broker.kill()
            with suppress(harness.HarnessError):
                burst.wait()
            with harness.Broker(version, store, SETTINGS) as again:
                producer.send(again, max(began + SECONDS - time.monotonic(), SECONDS / 4))
                lag = catch_up(store, follower)
            report = follower.stop()
    print(f"the archive had everything {lag:.1f} s after the last message was sent")
    assert lag <= LAG_SECONDS
    facts = harness.facts(store, SETTINGS, version)["msg"]
    rows = delta_rows(Path(table))
    assert [row for row in rows if row["_corrupt_record"] is not None] == []
    found = sorted((row["commit_log_offset"], hashlib.md5(row["body"]).hexdigest()) for row in rows)
    assert found == sorted((fact["offset"], fact["bodyMd5"]) for fact in facts)
    keys = [row["commit_log_offset"] for row in delta_rows(Path(f"{table}_keys")) if row["key_type"] == "UNIQ_KEY"]
    assert sorted(keys) == sorted(fact["offset"] for fact in facts if fact["uniqKey"] is not None)
    segments = {row["commit_log_offset"] for row in delta_rows(Path(f"{table}_segments"))}
    assert segments == {fact["offset"] // SEGMENT_SIZE * SEGMENT_SIZE for fact in facts}
    print(f"{len(found):,} messages; the last run appended {report['rows']:,}")


def log_end(store: Path) -> int:
    return LiveEndFinder(Location.resolve(str(store))).find_now()


def catch_up(store: Path, follower: Follower) -> float:
    """Wait until the archive has what the log has; gives the seconds that took."""
    began, end = time.monotonic(), log_end(store)
    while follower.archived_to < end:
        assert time.monotonic() - began < START_SECONDS, f"the log ends at {end}, the archive at {follower.archived_to}"
        time.sleep(0.1)
    return time.monotonic() - began
