"""One process reads topics of a store again and again, while a broker appends to it, is killed, and is started again.

Each read by topic is compared with a scan that follows it: it gives all messages up to the end of the log at its plan,
and no other rows than the scan. In between, reads of the same process find whatever earlier ones remembered.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_mq.source import messages, topic_plan
from spark_mq.source import time_window as queue_comparison
from spark_mq.source.options import parse_options
from spark_mq.source.planner import plan_messages
from spark_mq.source.read_plan import AccessPath
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.unit_cover import ReadCost
from tests.broker import harness
from tests.support.in_process import message_batches
from tests.support.soak import SOAKS, cases

pytestmark = pytest.mark.broker

SETTINGS = {
    "autoCreateTopicEnable": "false",
    "timerWheelEnable": "false",  # no message waits, and flushing the wheel takes a quarter of a core
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "messageIndexEnable": "false",
}
RUNS = ("kill", "stop", "kill") * 5 if SOAKS else ("stop", "kill")
READS = 20 if SOAKS else 4
_START_SECONDS = 60
"""How long the reads go on at most until the senders, which start in processes of their own, have sent something."""
COLUMNS = ("commit_log_offset", "topic", "queue_id", "queue_offset", "unique_key")

Row = tuple[object, ...]


@pytest.fixture(autouse=True)
def by_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices with which the planner uses queues if it can."""
    for module in (topic_plan, queue_comparison, messages):
        monkeypatch.setattr(module, "cost_of", lambda location: ReadCost(jump=0, queue=0))
    monkeypatch.setattr(topic_plan, "CLEARLY_LESS", 10)


def rows_of(store: Path, **options: str) -> list[Row]:
    batches = message_batches(COLUMNS, path=str(store), splitSize="256k", **options)
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist() if row["topic"] is not None)


def end_of(store: Path) -> int:
    with MessageStore(str(store)) as opened:
        return opened.get_max_phy_offset()


def compared(store: Path) -> Iterator[int]:
    """Read each topic and the whole log; gives the number of rows of each topic."""
    start = end_of(store)
    found = {topic: rows_of(store, topic=topic) for topic in ("SequenceDemo", "OrderEvents", "user_activity")}
    scan = rows_of(store)
    for topic, rows in found.items():
        expected = [row for row in scan if row[1] == topic]
        assert len(set(rows)) == len(rows), f"rows of {topic} are there twice"
        assert set(rows) <= set(expected), f"rows of {topic} are in no scan"
        assert {row for row in expected if int(str(row[0])) < start} <= set(rows), f"rows of {topic} are missing"
        yield len(rows)


@pytest.mark.parametrize("version", cases(harness.VERSIONS[1:], harness.VERSIONS))
def test_topics_are_read_while_a_broker_appends_and_is_started_again(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    counts: list[tuple[int, ...]] = []
    for number, ending in enumerate(RUNS):
        broker = harness.Broker(version, store, SETTINGS)
        broker.start()
        harness.send(broker, "sequence", seed=number, count=3, first=number * 10_000)
        senders = [
            harness.Sender(broker, "burst", seed=number, count=3_000),
            harness.Sender(broker, "sequence", seed=50 + number, count=2_000, first=number * 10_000 + 3, body=200),
        ]
        before, deadline = len(counts), time.monotonic() + _START_SECONDS
        while len(counts) < before + READS or (len(set(counts[before:])) < 3 and time.monotonic() < deadline):
            counts.append(tuple(compared(store)))
            time.sleep(0.3)
        broker.kill() if ending == "kill" else broker.stop()
        for sender in senders:
            with contextlib.suppress(harness.HarnessError):  # the broker is gone
                sender.wait()
        for _ in range(2):
            counts.append(tuple(compared(store)))
    assert len(set(counts)) > len(RUNS) + 2, f"the log did not grow: {counts}"
    options = parse_options({"path": str(store), "topic": "SequenceDemo"})
    with MessageStore(str(store)) as opened:
        assert plan_messages(options, opened).path == AccessPath.CONSUME_QUEUE
