"""Delays of every level, timers and transactions, as their program sent, received, recalled and decided them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_mq import MessageStore
from spark_mq.lifecycle.delayed import delayed_rows
from spark_mq.lifecycle.transactions import transaction_rows
from tests.broker import harness
from tests.support.soak import cases

pytestmark = pytest.mark.broker

SETTINGS = {
    "autoCreateTopicEnable": "false",
    "recallMessageEnable": "true",
    "flushConsumerOffsetInterval": "500",
    "flushDelayOffsetInterval": "500",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "100",
    "transactionOpBatchInterval": "100",
    "transactionTimeOut": "1000",
    # The timer stores messages again whose time is more than three seconds away.
    "timerRollWindowSlot": "3",
}
HOUR = 3_600_000
LONGEST_DELIVERY = 3_000
"""A message that is due is surely received after this time, in milliseconds."""
FATES = {"COMMIT_MESSAGE": "COMMITTED", "ROLLBACK_MESSAGE": "ROLLED_BACK", "UNKNOW": "PENDING"}


@dataclass(frozen=True)
class Delays:
    """What the program did and got, and the store of the broker that was stopped then."""

    version: str
    events: list[dict[str, Any]]
    store: MessageStore

    def keys(self, event: str) -> set[str]:
        """The unique keys of the events of one kind."""
        return {line["uniqueKey"] for line in self.events if line["event"] == event}


@pytest.fixture(scope="module", params=cases(harness.VERSIONS[:1], harness.VERSIONS))
def delays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delays]:
    path: Path = tmp_path_factory.mktemp("delays") / "store"
    with harness.Broker(request.param, path, SETTINGS) as broker:
        events = harness.at_broker(broker, "delay")
    with MessageStore(str(path)) as store:
        yield Delays(request.param, events, store)


def test_what_was_received_was_delivered(delays: Delays) -> None:
    """A message that was due while the program ended can have been delivered or not: it is left out."""
    (ended,) = (line["time"] for line in delays.events if line["event"] == "ended")
    now = time.time_ns() // 1_000_000
    received = {line["uniqueKey"]: line["offset"] for line in delays.events if line["event"] == "received"}
    recalled = delays.keys("recalled")
    sent = {key for event in ("level", "timer", "rolled", "waiting", "recalled") for key in delays.keys(event)}
    rows = {row["unique_key"]: row for row in delayed_rows(delays.store, ended).to_pylist()}
    assert rows.keys() == sent
    assert {row["delay_level"] for row in rows.values() if row["delayed_by"] == "DELAY_LEVEL"} == set(range(1, 19))
    due = {key: row["due_timestamp"].timestamp() * 1_000 for key, row in rows.items()}
    left_out = {key for key in rows.keys() - received.keys() if ended - LONGEST_DELIVERY < due[key] <= now}
    states = {key: row["state"] for key, row in rows.items() if key not in left_out}
    assert {key: rows[key]["delivered_offsets"] for key, state in states.items() if state == "DELIVERED"} == {
        key: [offset] for key, offset in received.items()
    }
    assert {key for key, state in states.items() if state == "CANCELLED"} == recalled - left_out
    waiting = states.keys() - received.keys() - recalled
    assert {states[key] for key in waiting} == {"WAITING"}
    later = {row["unique_key"]: row["state"] for row in delayed_rows(delays.store, now + 3 * HOUR).to_pylist()}
    assert {later[key] for key in waiting} == {"OVERDUE"}
    assert len(received) >= 3
    assert len(waiting) >= 10


def test_timers_that_are_far_away_are_rolled(delays: Delays) -> None:
    rows = {row["unique_key"]: row for row in delayed_rows(delays.store).to_pylist()}
    for key in delays.keys("rolled") | delays.keys("waiting"):
        assert rows[key]["rolls"] >= 2
        assert len(rows[key]["waiting_offsets"]) == rows[key]["rolls"] + 1
    for key in delays.keys("timer"):
        assert rows[key]["rolls"] == 0
    assert len(delays.keys("rolled")) == (0 if delays.version.startswith("4") else 2)


def test_transactions_that_are_not_checked_for_some_time(delays: Delays) -> None:
    """The broker copies their half messages; the producer decides about the original, or the broker asks later."""
    rows = {row["unique_key"]: row for row in transaction_rows(delays.store).to_pylist()}
    sent = {line["uniqueKey"]: line for line in delays.events if line["event"] == "transaction"}
    assert {key: row["state"] for key, row in rows.items()} == {key: FATES[line["fate"]] for key, line in sent.items()}
    asked = delays.keys("asked")
    for key, row in rows.items():
        assert len(row["half_offsets"]) > 1
        assert (key in asked) == (sent[key]["seconds"] == "2")
