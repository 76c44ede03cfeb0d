"""Retries and dead letters: of the stores' workload, whose consumer fails always, and of copies that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_mq import MessageStore
from spark_mq.format.message_schema import TIMESTAMP
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.lifecycle.popped_messages import PopNote, PoppedMessages
from spark_mq.lifecycle.retries import RetryFacts, dead_letters, dead_letters_rows, retries, retries_rows
from spark_mq.lifecycle.retry_copies import RETRY_COLUMNS, RETRY_PROPERTIES
from spark_mq.lifecycle.retry_topic import RetryTopic
from spark_mq.lifecycle.selected_messages import SelectedMessages
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.tables.all_tables import TABLES
from tests.support.stores import WORKLOADS, RealStore, Unpack, version_stores

RETRIES = 2
"""`RetryWorkload.RETRIES`: the third time, the message is a dead letter."""
TOPIC = "%RETRY%G"
GROUP_FACTS = RetryFacts(
    {TOPIC: RetryTopic(TOPIC, "G"), "%RETRY%G_T": RetryTopic("%RETRY%G_T", "G", "T")},
    {("G", TOPIC, 0): 0},
    {},
    {"G": 16},
    (np.arange(1000), np.arange(1000)),
)


def rows_of(path: Path) -> list[dict[str, Any]]:
    with MessageStore(str(path)) as store:
        table = retries_rows(store)
    assert table.schema == TABLES["retries"].schema
    return list(table.to_pylist())


@pytest.mark.parametrize("packed", version_stores("p"))
def test_attempts_are_those_that_consumers_of_many_versions_saw(packed: RealStore, unpacked: Unpack) -> None:
    """A consumer that fails for the n-th time, counted from 0, causes attempt n + 1, or a dead letter."""
    failed = {(key, int(times)) for key, times in packed.told("fail")}
    rows = [row for row in rows_of(unpacked(packed)) if row["consumer_group"] == "b1_grp"]
    attempts = {(row["unique_key"], row["attempt"]): row["state"] for row in rows}
    assert len(attempts) == len(rows)
    dead = {attempt for attempt, state in attempts.items() if state == "DEAD"}
    assert {(key, attempt - 1) for key, attempt in attempts} | dead == failed
    assert failed, "the workload has messages that fail"
    again = {attempt for attempt, state in attempts.items() if state in ("DEAD", "RETRIED")}
    assert again == attempts.keys() & failed
    assert {state for attempt, state in attempts.items() if attempt not in again} <= {"READY", "CONSUMED"}


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_a_message_that_always_fails_is_retried_and_then_dead(packed: RealStore, unpacked: Unpack) -> None:
    sent = {fact["msgId"]: fact for fact in packed.facts("msg") if fact["topic"] == "RetryDemo"}
    copies = {
        (fact["topic"], fact["properties"]["ORIGIN_MESSAGE_ID"], fact["reconsumeTimes"]): fact
        for fact in packed.facts("msg")
        if "ORIGIN_MESSAGE_ID" in fact["properties"]
    }
    rows = rows_of(unpacked(packed))
    assert len(rows) == RETRIES * len(sent)
    for row in rows:
        origin, attempt = row["origin_message_id"], row["attempt"]
        assert row["unique_key"] == sent[origin]["uniqKey"]
        assert row["origin_commit_log_offset"] == sent[origin]["offset"]
        delayed = copies["SCHEDULE_TOPIC_XXXX", origin, attempt]
        delivered = copies["%RETRY%GID_failing", origin, attempt]
        assert (row["delay_commit_log_offset"], row["retry_commit_log_offset"]) == (
            delayed["offset"],
            delivered["offset"],
        )
        assert (row["retry_queue_id"], row["retry_queue_offset"]) == (delivered["queueId"], delivered["queueOffset"])
        assert round(row["due_timestamp"].timestamp() * 1000) == delayed["storeTimestamp"] + 1000  # ONE_SECOND_LEVEL
        assert (row["delay_level"], row["consumer_group"], row["origin_topic"]) == (1, "GID_failing", "RetryDemo")
        assert (row["state"], row["final_state"]) == ("DEAD" if attempt == RETRIES else "RETRIED", "DEAD")
        assert row["reason"] is None
    with MessageStore(str(unpacked(packed))) as store:
        dead = dead_letters_rows(store, "GID_failing")
        assert dead_letters_rows(store, "nobody").num_rows == 0
    assert dead.schema == TABLES["dead_letters"].schema
    assert set(dead["origin_message_id"].to_pylist()) == set(sent)
    assert set(dead["retries_found"].to_pylist()) == {RETRIES}
    assert set(dead["reconsume_times"].to_pylist()) == {RETRIES + 1}


def copy_of(topic: str, at: int, **values: Any) -> dict[str, Any]:
    """A message; `at` is its commit log offset, and the queue offset of a delayed one."""
    defaults = {"queue_id": 0, "queue_offset": at, "unique_key": "K", "store_timestamp": at, "reconsume_times": 1}
    if topic == SCHEDULE_TOPIC:
        defaults |= {"queue_id": 2, "REAL_TOPIC": TOPIC}
    return {"topic": topic, "commit_log_offset": at, "body_crc": 7, **defaults, **values}


def selected(*copies: dict[str, Any], damage: tuple[CorruptRange, ...] = ()) -> SelectedMessages:
    kinds = {
        "commit_log_offset": pa.int64(),
        "queue_id": pa.int32(),
        "queue_offset": pa.int64(),
        "store_timestamp": TIMESTAMP,
        "reconsume_times": pa.int32(),
        "body_crc": pa.int32(),
        "store_size": pa.int32(),
        "properties_bytes": pa.binary(),
    }
    names = (*RETRY_COLUMNS, *RETRY_PROPERTIES)
    table = pa.table(
        {name: pa.array([one.get(name) for one in copies], kinds.get(name, pa.string())) for name in names}
    )
    return SelectedMessages(table, damage, LogRange(0, 1000))


def states(*copies: dict[str, Any], at: int = 500, **facts: Any) -> list[tuple[str, str]]:
    """State and final state of the attempts that the copies make."""
    damage = facts.pop("damage", ())
    known = RetryFacts(**{**vars(GROUP_FACTS), **facts})
    rows = retries(selected(*copies, damage=damage), known, at).to_pylist()
    assert all((row["reason"] is not None) == (row["state"] == "UNKNOWN") for row in rows)
    return [(row["state"], row["final_state"]) for row in rows]


ID = "7F00000100002A9F{:016X}".format


def test_a_delayed_copy_waits_until_it_is_due() -> None:
    copy = copy_of(SCHEDULE_TOPIC, 100)
    assert states(copy, at=99) == [("WAITING", "WAITING")]
    assert states(copy, at=100) == [("OVERDUE", "OVERDUE")]
    assert states(copy, delay_offsets={3: 100}) == [("OVERDUE", "OVERDUE")]
    assert states(copy, delay_offsets={3: 101}) == [("UNKNOWN", "UNKNOWN")]  # its delivered copy is missing
    assert states(copy, delay_offsets=None) == [("UNKNOWN", "UNKNOWN")]
    assert states(copy, due=(np.empty(0, np.int64), np.empty(0, np.int64))) == [("UNKNOWN", "UNKNOWN")]
    damage = CorruptRange("file", 150, 10, "ZEROS", "zeros")
    assert states(copy, damage=(damage,)) == [("UNKNOWN", "UNKNOWN")]
    assert states(copy_of(SCHEDULE_TOPIC, 200), damage=(damage,)) == [("OVERDUE", "OVERDUE")]
    assert states(copy, lost_end="its end is lost") == [("UNKNOWN", "UNKNOWN")]


def test_a_delivered_copy_is_consumed_when_the_offset_is_past_it() -> None:
    copies = copy_of(SCHEDULE_TOPIC, 100), copy_of(TOPIC, 200, queue_offset=4)
    assert states(*copies) == [("READY", "READY")]
    assert states(*copies, consumer_offsets={("G", TOPIC, 0): 4}) == [("READY", "READY")]
    assert states(*copies, consumer_offsets={("G", TOPIC, 0): 5}) == [("CONSUMED", "CONSUMED")]
    assert states(*copies, consumer_offsets={("other", TOPIC, 0): 5, ("G", TOPIC, 1): 5}) == [("READY", "READY")]
    assert states(*copies, consumer_offsets=None) == [("UNKNOWN", "UNKNOWN")]
    assert states(copies[1]) == [("READY", "READY")]  # the delayed copy expired
    # The offsets are older than the copy, as in an archive: they cannot say that it was not consumed.
    assert states(*copies, config_end=201) == [("READY", "READY")]
    assert states(*copies, config_end=200) == [("UNKNOWN", "UNKNOWN")]
    assert states(*copies, config_end=200, consumer_offsets={("G", TOPIC, 0): 5}) == [("CONSUMED", "CONSUMED")]


def test_a_popped_copy_is_consumed_when_it_is_acknowledged() -> None:
    topic = "%RETRY%G_T"
    copy, past = copy_of(topic, 100, queue_offset=4), {("G", topic, 0): 5}

    def popped(*acknowledged: int, offset: int = 4) -> PoppedMessages:
        pop = PopNote("G", topic, 0, offset, 1, "b", frozenset({offset}), frozenset(), 1000)
        acks = PopNote("G", topic, 0, offset, 1, "b", frozenset(), frozenset(acknowledged))
        return PoppedMessages([pop, acks])

    assert states(copy, consumer_offsets=past, popped=popped()) == [("POPPED", "POPPED")]
    assert states(copy, consumer_offsets=past, popped=popped(4)) == [("CONSUMED", "CONSUMED")]
    assert states(copy, consumer_offsets=past, popped=popped(3)) == [("POPPED", "POPPED")]
    # The pop was acknowledged in the memory of the broker, which then stores no note.
    assert states(copy, consumer_offsets=past, popped=popped(offset=3)) == [("CONSUMED", "CONSUMED")]
    assert states(copy, consumer_offsets={("G", topic, 0): 4}, popped=popped()) == [("READY", "READY")]
    assert states(copy, consumer_offsets=None, popped=popped(4)) == [("UNKNOWN", "UNKNOWN")]
    unknown = [("UNKNOWN", "UNKNOWN")]
    assert states(copy, consumer_offsets=past, popped=popped(4), unread_pops="in RocksDB") == unknown
    for at, expected in ((99, [("POPPED", "POPPED")]), (150, unknown)):
        damaged = PoppedMessages([PopNote("G", topic, 0, 4, 1, "b", frozenset({4}), frozenset())])
        damaged.damage = (CorruptRange("file", at, 10, "CONTENT", "a note"),)
        assert states(copy, consumer_offsets=past, popped=damaged) == expected
    assert states(copy, copy_of(topic, 200, queue_offset=5, reconsume_times=2), unread_pops="in RocksDB") == [
        ("RETRIED", "READY"),
        ("READY", "READY"),
    ]


def test_a_dead_letter_ends_the_attempts_before_it() -> None:
    copies = copy_of(TOPIC, 100), copy_of(TOPIC, 200, reconsume_times=2)
    dead = copy_of("%DLQ%G", 300, reconsume_times=3)
    assert states(*copies, dead) == [("RETRIED", "DEAD"), ("DEAD", "DEAD")]
    # A dead letter that was sent again to the group has a new life.
    again = copy_of(SCHEDULE_TOPIC, 400, reconsume_times=1)
    assert states(*copies, dead, again, at=0) == [("RETRIED", "WAITING"), ("DEAD", "WAITING"), ("WAITING", "WAITING")]
    table = dead_letters(selected(*copies, dead, again), dict(GROUP_FACTS.retry_topics))
    assert table["retries_found"].to_pylist() == [2]


def test_messages_are_told_apart_by_their_origin() -> None:
    one = [
        copy_of(TOPIC, 100, ORIGIN_MESSAGE_ID=ID(1)),
        copy_of(TOPIC, 200, ORIGIN_MESSAGE_ID=ID(1), reconsume_times=2),
    ]
    other = copy_of(TOPIC, 300, ORIGIN_MESSAGE_ID=ID(2))  # sent twice by its producer, with one unique key
    assert states(*one, other) == [("RETRIED", "READY"), ("READY", "READY"), ("READY", "READY")]
    # The origin of a copy that a broker made of a copy without origin is that copy.
    first = copy_of(TOPIC, 100)
    second = copy_of(TOPIC, 200, ORIGIN_MESSAGE_ID=ID(100), reconsume_times=2)
    assert states(first, second) == [("RETRIED", "READY"), ("READY", "READY")]
    # A client's copy can have the unique key as its origin.
    key = ID(1 << 60)
    first = copy_of(TOPIC, 100, unique_key=key, ORIGIN_MESSAGE_ID=key)
    assert states(first, copy_of(TOPIC, 200, unique_key=key, reconsume_times=2))[0] == ("RETRIED", "READY")


def test_messages_of_a_batch_with_one_unique_key_are_not_certain() -> None:
    copies = copy_of(TOPIC, 100), copy_of(TOPIC, 200, body_crc=8), copy_of(TOPIC, 300, body_crc=8, reconsume_times=2)
    assert states(*copies) == [("UNKNOWN", "UNKNOWN")] * 3
    assert states(copy_of(TOPIC, 100, unique_key=None)) == [("UNKNOWN", "UNKNOWN")]
    assert states(copy_of(TOPIC, 100), copy_of(TOPIC, 200)) == [("UNKNOWN", "UNKNOWN")] * 2
    with_origin = [copy | {"ORIGIN_MESSAGE_ID": ID(number)} for number, copy in zip((1, 2, 2), copies, strict=True)]
    assert states(*with_origin) == [("READY", "READY"), ("RETRIED", "READY"), ("READY", "READY")]


def test_a_message_that_was_returned_twice_has_two_delayed_copies() -> None:
    origin = {"ORIGIN_MESSAGE_ID": ID(1)}
    delayed = [copy_of(SCHEDULE_TOPIC, at, queue_id=queue, **origin) for at, queue in ((100, 5), (110, 2))]
    delivered = copy_of(TOPIC, 200, **origin)
    facts = {"consumer_offsets": {("G", TOPIC, 0): 201}, "delay_offsets": {3: 111}}
    found = retries(selected(*delayed, delivered), RetryFacts(**{**vars(GROUP_FACTS), **facts}), 0).to_pylist()
    assert [(row["state"], row["retry_commit_log_offset"]) for row in found] == [("WAITING", None), ("CONSUMED", 200)]
    assert {row["final_state"] for row in found} == {"WAITING"}


@pytest.mark.parametrize(("delay", "level"), [("3", 3), ("+7", 7), ("-3", None), ("0", None), ("3x", None)])
def test_the_delay_level_of_a_delivered_copy_is_what_java_reads(delay: str, level: int | None) -> None:
    """As `Integer.parseInt`: with a sign, too. A level below 1 is none."""
    table = retries(selected(copy_of(TOPIC, 100, DELAY=delay)), GROUP_FACTS, 0)
    assert table["delay_level"].to_pylist() == [level]


def test_hostile_copies_are_rows() -> None:
    copies = [
        copy_of(SCHEDULE_TOPIC, 100, REAL_TOPIC=None),
        copy_of(SCHEDULE_TOPIC, 110, REAL_TOPIC="orders"),
        copy_of(SCHEDULE_TOPIC, 120, queue_id=2**31 - 1, queue_offset=-(2**63), reconsume_times=-(2**31)),
        copy_of(TOPIC, 130, ORIGIN_MESSAGE_ID="F" * 32, DELAY="9" * 30, reconsume_times=2**31 - 1),
        copy_of(TOPIC, 140, ORIGIN_MESSAGE_ID="é" * 16, queue_id=-1, unique_key="\u0001"),
        copy_of("%DLQ%", 150, reconsume_times=0),
    ]
    assert len(states(*copies)) == 3
    assert states() == []
    unsure = {TOPIC: RetryTopic(TOPIC, None, None, "two groups")}
    assert states(copy_of(TOPIC, 100), retry_topics=unsure) == [("UNKNOWN", "UNKNOWN")]
