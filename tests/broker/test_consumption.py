"""Groups that lag, return, pop and trace messages: what a broker, its `mqadmin` and the clients say of them."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest

from spark_mq import MessageStore
from spark_mq.lifecycle.consumer_progress import consumer_progress_rows
from spark_mq.lifecycle.life.event import EventKind
from spark_mq.lifecycle.life.life import life
from spark_mq.lifecycle.life.outcome import ConsumerState
from spark_mq.lifecycle.retries import dead_letters_rows, retries_rows
from spark_mq.lifecycle.statistics import duplicates_rows
from spark_mq.lifecycle.traces import parse_trace_body, traces_rows
from spark_mq.lifecycle.why_not_consumed import NotConsumed, why_not_consumed
from spark_mq.store.config.checkpoint import Checkpoint
from tests.broker import harness
from tests.support.filtered_store import records_of
from tests.support.rebuilt import rebuild_here
from tests.support.removed_parts import remove_parts
from tests.support.soak import cases
from tests.support.store_history import cut_log
from tests.support.traces import as_java

pytestmark = pytest.mark.broker

SETTINGS = {
    "brokerName": "broker",
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
    "mappedFileSizeCommitLog": "16384",
    "mappedFileSizeConsumeQueue": "2000",
}
CASES = cases(range(30), range(300))
TIME = "%Y-%m-%d %H:%M:%S"
GROUPS = ("GID_lagging", "GID_returning")
FATES = {
    "CONSUMED": [],
    "RETURNED_ONCE": ["CONSUMED"],
    "WAITING": ["WAITING"],
    "READY": ["READY"],
    "DEAD_AT_ONCE": [],
    "DEAD": ["RETRIED", "DEAD"],
    "POPPED_TWICE": ["CONSUMED"],
}
"""The states of the retries of a message, by what the program made of it."""
REASONS = {
    "CONSUMED": NotConsumed.CONSUMED,
    "RETURNED_ONCE": NotConsumed.CONSUMED,
    "WAITING": NotConsumed.IN_RETRY,
    "READY": NotConsumed.IN_RETRY,
    "DEAD_AT_ONCE": NotConsumed.DEAD,
    "DEAD": NotConsumed.DEAD,
    "POPPED_TWICE": NotConsumed.CONSUMED,
}
"""Why its group did not consume a message, by what the program made of it."""


@dataclass(frozen=True)
class Consumption:
    """What a program's consumers did, what `mqadmin` said then, and the store of the broker that was stopped."""

    version: str
    events: list[dict[str, Any]]
    progress: dict[str, str]
    trace: str
    traced_key: str
    found: dict[tuple[str, str], str]
    store: MessageStore

    def of(self, event: str) -> list[dict[str, Any]]:
        """The program's lines of one kind."""
        return [line for line in self.events if line["event"] == event]


@pytest.fixture(scope="module", params=cases(harness.VERSIONS[:1], harness.VERSIONS))
def consumption(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consumption]:
    path: Path = tmp_path_factory.mktemp("consumption") / "store"
    with harness.Broker(request.param, path, SETTINGS) as broker:
        events = harness.at_broker(broker, "groups")
        progress = {group: harness.mqadmin(broker, ["consumerProgress", "-g", group]) for group in GROUPS}
        retried = [line["uniqueKey"] for line in events if line.get("type") == "Sub" and line["reconsumeTimes"]]
        ended = [line["uniqueKey"] for line in events if line.get("type") == "EndTransaction"]
        found = {
            (topic, key): harness.mqadmin(broker, ["queryMsgByUniqueKey", "-a", "-t", topic, "-i", key])
            for topic, key in (("TraceDemo", retried[0]), ("%RETRY%GID_traced", retried[0]), ("TraceDemo", ended[0]))
        }
        name = "QueryMsgTraceById" if request.param.startswith("4") else "queryMsgTraceById"
        trace = harness.mqadmin(broker, [name, "-i", retried[0]])
    with MessageStore(str(path)) as store:
        yield Consumption(request.param, events, progress, trace, retried[0], found, store)


def test_why_groups_did_not_consume_messages(consumption: Consumption) -> None:
    store, seen = consumption.store, set()
    for line in consumption.of("sent"):
        if line.get("fate") in REASONS:
            (message,) = store.query_message_by_unique_key(line["topic"], line["uniqueKey"]).to_pylist()
            place = message["topic"], message["queue_id"], message["queue_offset"]
            assert why_not_consumed(store, line["group"], *place).reason == REASONS[line["fate"]], line
            seen.add(line["fate"])
    assert seen == {fate for fate in REASONS if fate != "POPPED_TWICE" or consumption.version == "5.3.3"}


def test_why_a_popped_message_is_not_consumed(consumption: Consumption, tmp_path: Path) -> None:
    """As if the log ended at each moment: popped, popped again, acknowledged. Table and life say the same."""
    if consumption.version != "5.3.3":
        assert not [line for line in consumption.events if line.get("fate") == "POPPED_TWICE"]
        return
    notes = [
        (record.text_properties.get("TAGS"), record)
        for (topic, _, _), record in records_of(consumption.store).items()
        if topic == "rmq_sys_wheel_timer" and record.text_properties.get("TAGS") in ("ck", "ack")
    ]
    assert [tag for tag, _ in notes] == ["ck", "ck", "ack"]
    (sent,) = [line["uniqueKey"] for line in consumption.of("sent") if line["fate"] == "POPPED_TWICE"]
    found, states, retries = [], [], []
    for number, (_, note) in enumerate(notes):
        end = note.commit_log_offset + note.size
        copy = cut_log(Path(consumption.store.location.path), tmp_path / str(number), end)
        (copy / "checkpoint").write_bytes(Checkpoint(physic_msg_timestamp=note.store_timestamp).encode())
        rebuild_here(copy, assume_defaults=True)
        with MessageStore(str(copy)) as store:
            found.append(why_not_consumed(store, "GID_popping", "PopDemo", 0, 0, at=note.store_timestamp))
            states.append([row["state"] for row in retries_rows(store).to_pylist() if row["unique_key"] == sent])
            (told,) = life(store, sent).lives
        assert [one.state for one in told.consumers] == [ConsumerState.POPPED]  # the first pop was not acknowledged
        retries.append([event.text for event in told.events if event.kind is EventKind.RETRIED])
    assert [one.reason for one in found] == [NotConsumed.POPPED, NotConsumed.POPPED, NotConsumed.CONSUMED]
    assert states == [[], ["POPPED"], ["CONSUMED"]]
    assert "has not acknowledged it" in found[0].text
    assert "acknowledged it" in found[2].text
    assert "%RETRY%GID_popping_PopDemo/0" in found[1].text
    assert "has not acknowledged it" in retries[1][0]
    assert "and acknowledged it" in retries[2][0]


def test_mqadmin_finds_the_same_messages_of_a_life(consumption: Consumption) -> None:
    for (topic, key), text in consumption.found.items():
        (told,) = life(consumption.store, key).lives
        events = [event for event in told.events if event.topic == topic and event.commit_log_offset is not None]
        wanted = [
            {
                "Queue ID": str(event.queue_id),
                "Queue Offset": str(event.queue_offset),
                "CommitLog Offset": str(event.commit_log_offset),
                "Reconsume Times": str(event.attempt or 0),
                "Store Timestamp": f"{datetime.fromtimestamp(event.timestamp / 1000):%Y-%m-%d %H:%M:%S},"
                f"{event.timestamp % 1000:03d}",
            }
            for event in events
        ]
        lines = re.findall(r"^([A-Z][A-Za-z ]+): +(.*?)\s*$", text, re.MULTILINE)
        said = [{"Topic": value} for name, value in lines if name == "Topic"]
        assert said, text
        number = -1
        for name, value in lines:
            number += name == "Topic"
            if name in wanted[0]:
                said[number][name] = value
        assert said == [{"Topic": topic, **one} for one in wanted]


def test_the_progress_of_groups_is_that_of_mqadmin(consumption: Consumption) -> None:
    at = time.time_ns() // 1_000_000
    progress = consumer_progress_rows(consumption.store, at=at).to_pylist()
    rows = {(row["consumer_group"], row["topic"]): row for row in progress}
    said = 0
    for group, text in consumption.progress.items():
        queues: dict[str, list[list[str]]] = {}
        for line in text.splitlines():
            words = line.split()
            if len(words) > 5 and not line.startswith("#"):
                queues.setdefault(words[0], []).append(words)
        for topic, lines in queues.items():
            row = rows[group, topic]
            assert row["lag"] == sum(int(words[3]) - int(words[4]) for words in lines)
            assert row["queue_count"] == len(lines)
            times = [" ".join(words[-2:]) for words in lines if words[-1] != "N/A"]
            stored = row["last_consumed_timestamp"]
            assert (stored is None) == (not times)
            assert stored is None or f"{stored:{TIME}}" == max(times)
            said += 1
    assert said == 3
    row = rows["GID_lagging", "LagDemo"]
    offsets = {line["queueId"]: line["offset"] for line in consumption.of("offset")}
    sent = {line["queueId"]: line["sent"] for line in consumption.of("offset") + consumption.of("no offset")}
    assert row["lag"] == sum(sent.values()) - sum(offsets.values())
    assert (row["state"], row["queues_without_offset"], row["expired_messages"]) == ("LAGGING", 1, 0)
    assert row["oldest_queue_offset"] == offsets.get(row["oldest_queue_id"], 0)
    stored = row["oldest_store_timestamp"]
    assert row["lag_millis"] == at - round(stored.timestamp() * 1000)
    assert rows["GID_silent", "%RETRY%GID_silent"]["state"] == "NO_OFFSET"
    fates = Counter(line["fate"] for line in consumption.of("sent"))
    row = rows["GID_returning", "ReturnDemo"]
    assert (row["state"], row["lag_millis"]) == ("CAUGHT_UP", 0)
    assert row["group_retries"] == fates["READY"]
    assert row["group_dead_letters"] == fates["DEAD"] + fates["DEAD_AT_ONCE"]
    if fates["POPPED_TWICE"]:
        assert rows["GID_popping", "%RETRY%GID_popping_PopDemo"]["state"] == "CAUGHT_UP"


def test_retries_have_the_fates_that_the_consumer_chose(consumption: Consumption) -> None:
    rows = retries_rows(consumption.store).to_pylist()
    consumed = Counter(line["uniqueKey"] for line in consumption.of("consumed"))
    for line in consumption.of("sent"):
        found = [row for row in rows if row["unique_key"] == line["uniqueKey"]]
        assert [row["state"] for row in found] == FATES[line["fate"]], line
        assert [row["attempt"] for row in found] == list(range(1, len(found) + 1))
        assert {row["final_state"] for row in found} == set(FATES[line["fate"]][-1:])
        assert {(row["consumer_group"], row["reason"]) for row in found} <= {(line["group"], None)}
        if line["fate"] != "POPPED_TWICE":
            assert {row["origin_topic"] for row in found} <= {line["topic"]}
            assert len(found) + 1 == consumed[line["uniqueKey"]] + (line["fate"] in ("WAITING", "READY"))
        for row in found:
            if row["due_timestamp"] is not None and row["retry_store_timestamp"] is not None:
                assert row["due_timestamp"] <= row["retry_store_timestamp"]
    hours = [row["due_timestamp"] - row["delay_store_timestamp"] for row in rows if row["state"] == "WAITING"]
    assert {round(one.total_seconds()) for one in hours} == {7200}
    late = retries_rows(
        consumption.store, "GID_returning", at=round(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000)
    )
    assert Counter(late["state"].to_pylist())["OVERDUE"] == len(hours)


def test_a_store_without_some_parts_never_gives_a_wrong_state(consumption: Consumption, tmp_path: Path) -> None:
    def states(path: str) -> dict[tuple[str, int], str]:
        with MessageStore(path) as store:
            rows = retries_rows(store, at=0).to_pylist()
        return {(row["unique_key"], row["attempt"]): row["state"] for row in rows}

    path, unread = consumption.store.location.path, shutil.ignore_patterns("timerwheel", "timerlog", "index")
    expected, unknown, same = states(path), 0, 0
    for seed in CASES:
        copy = Path(shutil.copytree(path, tmp_path / "copy", ignore=unread))
        done = remove_parts(copy, Random(seed))
        for attempt, state in states(str(copy)).items():
            # A dead letter tells that an attempt failed, even if the log lacks the attempt after it.
            allowed = ("UNKNOWN", "DEAD") if expected[attempt] == "RETRIED" else ("UNKNOWN",)
            assert state in (expected[attempt], *allowed), (seed, done, attempt)
            unknown, same = unknown + (state == "UNKNOWN"), same + (state != "UNKNOWN")
        shutil.rmtree(copy)
    assert unknown > 0
    assert same > 0


def test_dead_letters_are_those_of_the_consumer(consumption: Consumption) -> None:
    rows = {row["unique_key"]: row for row in dead_letters_rows(consumption.store).to_pylist()}
    dead = {line["uniqueKey"]: line for line in consumption.of("sent") if line["fate"].startswith("DEAD")}
    assert set(rows) == set(dead)
    consumed = Counter(line["uniqueKey"] for line in consumption.of("consumed"))
    for key, row in rows.items():
        assert row["reconsume_times"] == consumed[key]
        assert row["retries_found"] == len(FATES[dead[key]["fate"]])
        assert (row["consumer_group"], row["origin_topic"]) == (dead[key]["group"], dead[key]["topic"])
        origin = consumption.store.look_message_by_id(row["origin_message_id"]).to_pylist()
        assert [one["unique_key"] for one in origin] == [key]


def test_traces_are_what_the_clients_did(consumption: Consumption) -> None:
    rows = traces_rows(consumption.store).to_pylist()
    assert {row["problem"] for row in rows} == {None}
    said: Counter[tuple[str, str, str]] = Counter()
    for line in consumption.of("trace"):
        kinds = ["SubBefore", "SubAfter"] if line["type"] == "Sub" else [line["type"]]
        said.update((kind, line["group"], line["uniqueKey"]) for kind in kinds)
    # The traced producer of transactions also has a Pub for its half message.
    half = ("Pub", "PID_traced_transactions", next(key for kind, _, key in said if kind == "EndTransaction"))
    # The message that was recalled was sent before.
    recalled = [("Pub", group, key) for kind, group, key in said if kind == "Recall"]
    assert Counter((row["event_type"], row["group_name"], row["unique_key"]) for row in rows) == said + Counter(
        [half, *recalled]
    )
    successes = [(row["unique_key"], row["is_success"]) for row in rows if row["event_type"] == "SubAfter"]
    consumed = [line for line in consumption.of("trace") if line["type"] == "Sub"]
    assert Counter(successes) == Counter((line["uniqueKey"], line["success"]) for line in consumed)
    tries = Counter((row["unique_key"], row["retry_times"]) for row in rows if row["event_type"] == "SubBefore")
    assert tries == Counter((line["uniqueKey"], line["reconsumeTimes"]) for line in consumed)
    ends = [row for row in rows if row["event_type"] == "EndTransaction"]
    assert [(row["transaction_state"], row["is_from_check"]) for row in ends] == [("COMMIT_MESSAGE", False)]
    if not consumption.version.startswith("4"):
        assert recalled
    found = [row for row in rows if row["unique_key"] == consumption.traced_key]
    for kind, word in (("Pub", "Pub"), ("SubAfter", "Sub")):
        wanted = {
            (
                row["group_name"],
                f"{row['event_timestamp']:%Y-%m-%d %H:%M:%S}",
                f"{row['cost_millis']}ms",
                row["is_success"],
            )
            for row in found
            if row["event_type"] == kind
        }
        lines = re.findall(rf"^{word} +(\S+) +\S+ +(\S+ \S+) +(\S+) +(\S+)", consumption.trace, re.MULTILINE)
        assert {(group, at, cost, status == "success") for group, at, cost, status in lines} == wanted


def test_the_java_decoder_reads_the_same_events(consumption: Consumption) -> None:
    messages = [
        row
        for queue_id in consumption.store.queue_ids("RMQ_SYS_TRACE_TOPIC")
        for row in consumption.store.get_message("RMQ_SYS_TRACE_TOPIC", queue_id, 0, 1000).to_pylist()
    ]
    answers = harness.answers("trace-events", (row["body"].hex() for row in messages), consumption.version)
    assert messages
    for row, answer in zip(messages, answers, strict=True):
        assert [
            as_java(event, said) for event, said in zip(parse_trace_body(row["body"]), answer["events"], strict=True)
        ]


def test_duplicates_have_the_causes_that_the_clients_made(consumption: Consumption) -> None:
    rows = duplicates_rows(consumption.store)
    causes = Counter(pc.filter(rows["cause"], pc.equal(rows["unique_key"], consumption.traced_key)).to_pylist())
    assert causes == {"SENT": 1, "RETRY": 1, "DELAY_DELIVERY": 1}
    ends = [line["uniqueKey"] for line in consumption.of("trace") if line["type"] == "EndTransaction"]
    assert pc.filter(rows["cause"], pc.equal(rows["unique_key"], ends[0])).to_pylist() == ["SENT", "COMMIT"]
    recalled = [line["uniqueKey"] for line in consumption.of("trace") if line["type"] == "Recall"]
    for key in recalled:
        assert pc.filter(rows["cause"], pc.equal(rows["unique_key"], key)).to_pylist() == ["SENT", "RECALL"]
    dead = [line["uniqueKey"] for line in consumption.of("sent") if line["fate"] == "DEAD_AT_ONCE"]
    assert pc.filter(rows["cause"], pc.equal(rows["unique_key"], dead[0])).to_pylist() == ["SENT", "DEAD_LETTER"]
