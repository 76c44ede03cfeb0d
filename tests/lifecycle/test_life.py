"""The lives of messages, against what the Java classes say of each record, and the fates that the producers wrote."""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.errors import OptionError
from spark_mq.format.properties import encode_properties
from spark_mq.format.record import Record
from spark_mq.format.timestamp import LEAST_PLAUSIBLE_MILLIS, epoch_millis
from spark_mq.lifecycle.delayed import delayed_rows
from spark_mq.lifecycle.life.life import Lives, MessageLife, life
from spark_mq.lifecycle.life.life_store import LifeStore
from spark_mq.lifecycle.life.outcome import ConsumerState
from spark_mq.lifecycle.life.pairing import copies_of
from spark_mq.lifecycle.life.situation import Situations
from spark_mq.lifecycle.outcomes import State
from spark_mq.lifecycle.transactions import transaction_rows
from spark_mq.testing import LogWriter
from tests.support.stores import STORES, Fact, RealStore, Unpack

WORKLOADS = [STORES["workload-533"], STORES["workload-49x"]]
DELETED = STORES["deleted-533"]
HALF, DISCARDED = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
RETRY, DLQ = "%RETRY%GID_failing", "%DLQ%GID_failing"
TWO_HOURS, HOUR = 7_200_000, 3_600_000
PLACED = {"DECIDED", "TRACED"}
"""Kinds of events of records that do not have the key of the message, or not as a copy of it."""


@pytest.fixture(params=WORKLOADS, ids=str)
def workload(request: pytest.FixtureRequest) -> RealStore:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def opened(workload: RealStore, unpacked: Unpack) -> Iterator[MessageStore]:
    with MessageStore(str(unpacked(workload))) as store:
        yield store


def by_unique_key(store: RealStore) -> dict[str, list[Fact]]:
    """The messages of each unique key, in the order of the log."""
    found: dict[str, list[Fact]] = {}
    for fact in sorted(store.facts("msg"), key=lambda fact: int(fact["offset"])):
        if fact["uniqKey"]:
            found.setdefault(fact["uniqKey"], []).append(fact)
    return found


def of_topic(store: RealStore, topic: str) -> dict[str, list[Fact]]:
    """Those of which a copy is in a topic."""
    found = {key: facts for key, facts in by_unique_key(store).items() if topic in topics(facts)}
    assert found or (topic == TIMER and store.broker_version == "4.9")
    return found


def topics(facts: list[Fact]) -> list[str]:
    return [fact["topic"] for fact in facts]


def only(lives: Lives) -> MessageLife:
    (told,) = lives.lives
    assert (lives.more, lives.has_even_more) == (0, False)
    return told


def kinds(told: MessageLife) -> list[str]:
    return [event.kind.value for event in told.events]


def sample(store: RealStore) -> dict[str, list[Fact]]:
    """Every message with several copies or a copy in a topic of the broker's own, and some of the others."""
    keys = by_unique_key(store)
    special = {key: facts for key, facts in keys.items() if len(facts) > 1 or topics(facts)[0] in (HALF, SCHEDULE)}
    others = [key for key in keys if key not in special]
    return special | {key: keys[key] for key in others[::40]}


def test_the_events_are_all_copies_in_the_order_of_time(workload: RealStore, opened: MessageStore) -> None:
    for key, facts in sample(workload).items():
        told = only(life(opened, key))
        placed = [event for event in told.events if event.kind.value not in PLACED]
        assert sorted(event.commit_log_offset or 0 for event in placed) == [fact["offset"] for fact in facts], key
        by_offset = {fact["offset"]: fact for fact in facts}
        for event in placed:
            fact = by_offset[event.commit_log_offset]
            assert (event.topic, event.queue_id, event.queue_offset) == (
                fact["topic"],
                fact["queueId"],
                fact["queueOffset"],
            )
            assert (event.offset_message_id, event.timestamp) == (fact["msgId"], fact["storeTimestamp"])
        assert [event.number for event in told.events] == list(range(len(told.events)))
        assert all(event.parent is None or event.parent < event.number for event in told.events)
        times = [event.timestamp for event in told.events]
        assert times == sorted(times)
        assert (told.unique_key, told.unknown) == (key, ())


def test_transactions_end_as_their_producer_wrote(workload: RealStore, opened: MessageStore) -> None:
    states = {
        ("COMMIT_MESSAGE", "UNKNOW"): State.COMMITTED,
        ("ROLLBACK_MESSAGE", "UNKNOW"): State.ROLLED_BACK,
        ("UNKNOW", "COMMIT_MESSAGE"): State.COMMITTED,
        ("UNKNOW", "ROLLBACK_MESSAGE"): State.ROLLED_BACK,
    }
    seen = set()
    for key, facts in of_topic(workload, HALF).items():
        told = only(life(opened, key))
        fate = facts[0]["properties"]["fate"], facts[0]["properties"]["fateWhenAsked"]
        given_up = State.DISCARDED if DISCARDED in topics(facts) else State.PENDING
        assert told.state == states.get(fate, given_up), key
        halves = [fact for fact in facts if fact["topic"] == HALF]
        assert kinds(told).count("CHECKED") == len(halves) - 1
        is_decided = told.state in (State.COMMITTED, State.ROLLED_BACK)
        assert kinds(told).count("DECIDED") == int(is_decided)
        for event in told.events:
            if event.kind.value == "COMMITTED":
                (commit,) = [fact for fact in facts if fact["sysFlag"] & 0xC == 8]
                half = told.events[event.parent if event.parent is not None else -1]
                assert half.commit_log_offset == commit["preparedTransactionOffset"]
        assert (told.topic, told.queue_id) == ("TransactionDemo", int(facts[0]["properties"]["REAL_QID"]))
        seen.add(told.state)
    assert len(seen) == 4


def test_delays_wait_until_they_are_due(workload: RealStore, opened: MessageStore) -> None:
    delayed = {key: facts for key, facts in of_topic(workload, SCHEDULE).items() if RETRY not in topics(facts)}
    assert len(delayed) == 12
    for key, facts in delayed.items():
        stored, level = facts[0]["storeTimestamp"], int(facts[0]["properties"]["DELAY"])
        delay = {1: 1000, 2: 5000, 18: TWO_HOURS}[level]
        before, after = (only(life(opened, key, at=stored + delay + step)) for step in (-1, 0))
        assert before.events[0].due_timestamp == stored + delay
        if level == 18:
            assert (before.state, after.state) == (State.WAITING, State.OVERDUE)
            assert len(before.events) == 1
        else:
            assert before.state == after.state == State.DELIVERED
            assert (kinds(before), before.events[1].parent) == (["DELAYED", "DELIVERED"], 0)
            assert before.events[1].topic == "DelayDemo"


def test_timers_are_delivered_or_wait(unpacked: Unpack) -> None:
    timers = of_topic(WORKLOADS[0], TIMER)
    assert len(timers) == 9
    with MessageStore(str(unpacked(WORKLOADS[0]))) as store:
        for key, facts in timers.items():
            due = int(facts[0]["properties"]["TIMER_OUT_MS"])
            before, after = (only(life(store, key, at=due + step)) for step in (999, 1000))
            if facts[0]["properties"]["TIMER_DELAY_MS"] == str(HOUR):
                assert (before.state, after.state) == (State.WAITING, State.OVERDUE)
            else:
                assert before.state == after.state == State.DELIVERED
                assert (kinds(after), after.events[1].parent) == (["DELAYED", "DELIVERED"], 0)
            assert (after.topic, after.queue_id) == ("TimerDemo", int(facts[0]["properties"]["REAL_QID"]))


def test_retries_end_with_a_dead_letter(workload: RealStore, opened: MessageStore) -> None:
    dead = of_topic(workload, DLQ)
    assert len(dead) == 5  # each with two retries, as the consumer of the workload had it
    for key, facts in dead.items():
        told = only(life(opened, key))
        assert (told.state, told.topic) == (State.STORED, "RetryDemo")
        assert kinds(told) == ["SENT", "RETRIED", "DELIVERED", "RETRIED", "DELIVERED", "DEAD"]
        assert [event.attempt for event in told.events] == [None, 1, 1, 2, 2, 3]
        assert [event.parent for event in told.events] == [None, 0, 1, 0, 3, 0]
        assert {event.consumer_group for event in told.events[1:]} == {"GID_failing"}
        assert "retry 1 of 16 of group GID_failing" in told.events[1].text
        (consumer,) = told.consumers
        assert (consumer.consumer_group, consumer.state) == ("GID_failing", ConsumerState.PAST)
        assert consumer.queue_offset == facts[0]["queueOffset"]


def test_every_key_and_every_id_leads_to_the_message(workload: RealStore, opened: MessageStore) -> None:
    """A key of KEYS can name several messages; an offset message id names one record, and so its message."""
    messages = {**of_topic(workload, DLQ), **of_topic(workload, HALF), **of_topic(workload, SCHEDULE)}
    everything = by_unique_key(workload)
    for key, facts in list(messages.items())[::9]:
        told = only(life(opened, key, at=0))
        for fact in facts:
            assert only(life(opened, fact["msgId"].lower(), at=0)) == told
        for name in (facts[0]["keys"] or "").split():
            wanted = {
                one
                for one, all_of in everything.items()
                if any(name in (each["keys"] or "").split() for each in all_of)
            }
            found = life(opened, name, limit=1000, at=0)
            assert {one.unique_key for one in found.lives if one.unique_key} == wanted
            fewer = life(opened, name, limit=1, at=0)
            assert (len(fewer.lives), fewer.more) == (1, len(found.lives) - 1)
            assert fewer.lives[0] == found.lives[0]


def test_a_topic_narrows_the_answer(workload: RealStore, opened: MessageStore) -> None:
    key = next(iter(of_topic(workload, DLQ)))
    at = int(time.time() * 1000)  # in the hour of deletion, expired messages are deleted now
    assert only(life(opened, key, "RetryDemo", at=at)) == only(life(opened, key, DLQ, at=at))
    assert life(opened, key, "OrderEvents").lives == ()


def copied(store: Path, folder: Path, *without: str) -> Path:
    """A copy without some files; glob patterns."""
    copy = Path(shutil.copytree(store, folder / "copy"))
    for pattern in without:
        paths = sorted(copy.glob(pattern))
        assert paths
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return copy


@cache
def answers(store: RealStore, path: Path) -> dict[str, tuple[MessageLife, ...]]:
    at = max(fact["storeTimestamp"] for fact in store.facts("msg")) + HOUR // 2
    with MessageStore(str(path)) as opened:
        keys = list(sample(store))
        return {key: life(opened, key, at=at).lives for key in [*keys[:60:2], *keys[60::8]]}


@pytest.mark.parametrize("tree", ["index", "consumequeue"])
def test_without_index_or_queues_the_log_gives_the_same_answer(
    tree: str, workload: RealStore, unpacked: Unpack, tmp_path: Path
) -> None:
    path = unpacked(workload)
    if tree == "consumequeue" and workload.broker_version == "5":
        pytest.skip("one store is enough for the slower case")
    wanted, found = answers(workload, path), answers(workload, copied(path, tmp_path, tree))
    if tree == "consumequeue":  # then only config/topics.json names the topics to look up in the index
        configured = (path / "config" / "topics.json").read_text()
        wanted = {key: lives for key, lives in wanted.items() if f'"{lives[0].topic}"' in configured}
    for key, lives in wanted.items():
        assert [without_sources(told) for told in found[key]] == [without_sources(told) for told in lives], key


def without_sources(told: MessageLife) -> MessageLife:
    """Without when the broker deletes files: the names of index files show its time zone."""
    return dataclasses.replace(told, next=(), expiries=())


LOSSES = {
    "no op queue": ["consumequeue/RMQ_SYS_TRANS_OP_HALF_TOPIC"],
    "no config": ["config"],
    "no consumer offsets": ["config/consumerOffset.json*"],
    "no delay offsets": ["config/delayOffset.json*"],
    "no head of the log": ["commitlog/00000000000000000000"],
    "no end of the log": ["commitlog/00000000000000393216", "commitlog/0000000000000052428[0-9]"],
    "no half queue": ["consumequeue/RMQ_SYS_TRANS_HALF_TOPIC"],
    "no delay queues": ["consumequeue/SCHEDULE_TOPIC_XXXX", "index"],
    "no checkpoint": ["checkpoint"],
}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_lost_makes_a_state_unknown_and_never_wrong(loss: str, unpacked: Unpack, tmp_path: Path) -> None:
    """A state that differs is UNKNOWN, or that of what is left: a commit whose half message has expired."""
    path = unpacked(WORKLOADS[0])
    wanted, found = answers(WORKLOADS[0], path), answers(WORKLOADS[0], copied(path, tmp_path, *LOSSES[loss]))
    is_same = 0
    for key, lives in found.items():
        for told in lives:
            before = wanted[key][0]
            is_same += told.state == before.state
            assert told.state in (before.state, State.UNKNOWN), (key, told)
            if told.state == State.UNKNOWN:
                assert told.reason
            kept = {event.commit_log_offset for event in told.events}
            assert kept <= {event.commit_log_offset for event in before.events}
    assert is_same > 10
    if loss in ("no config", "no consumer offsets"):
        assert all("consumerOffset.json" in " ".join(told.unknown) for lives in found.values() for told in lives)


def test_damage_in_a_commit_makes_its_transaction_unknown(unpacked: Unpack, tmp_path: Path) -> None:
    for number, without in enumerate(((), ("index",))):
        key, facts = next(
            pair for pair in of_topic(WORKLOADS[0], HALF).items() if any(fact["sysFlag"] & 0xC == 8 for fact in pair[1])
        )
        copy = copied(unpacked(WORKLOADS[0]), tmp_path / str(number), *without)
        offset = next(fact["offset"] for fact in facts if fact["sysFlag"] & 0xC == 8)
        segment = copy / "commitlog" / f"{offset // 131072 * 131072:020d}"
        data = bytearray(segment.read_bytes())
        data[offset % 131072 + 4] ^= 0xFF  # the magic
        segment.write_bytes(data)
        with MessageStore(str(copy)) as store:
            told = only(life(store, key))
        assert told.state == State.UNKNOWN
        assert "a commit can be missing" in (told.reason or "")
        assert told.unknown


@pytest.mark.parametrize("file", ["consumerOffset.json", "delayOffset.json"])
def test_a_broker_that_is_past_an_undecided_message_makes_it_unknown(
    file: str, unpacked: Unpack, tmp_path: Path
) -> None:
    """Its offsets say that it is done with the message, but the log does not show how."""
    copy = copied(unpacked(WORKLOADS[0]), tmp_path, f"config/{file}.bak")
    text = (copy / "config" / file).read_text()
    old, new = ("{0:36", "{0:39") if file == "consumerOffset.json" else ("18:0", "18:4")
    assert text.count(old) == 1
    (copy / "config" / file).write_text(text.replace(old, new))
    topic = HALF if file == "consumerOffset.json" else SCHEDULE
    state, at = (State.PENDING, None) if topic == HALF else (State.WAITING, 0)
    with MessageStore(str(unpacked(WORKLOADS[0]))) as before, MessageStore(str(copy)) as after:
        undecided = [key for key in of_topic(WORKLOADS[0], topic) if only(life(before, key, at=at)).state == state]
        assert len(undecided) == (3 if topic == HALF else 4)
        for key in undecided:
            told = only(life(after, key, at=at))
            assert told.state == State.UNKNOWN
            assert "the broker is" in (told.reason or "")


def test_a_retry_is_paired_with_the_delay_of_its_own_attempt() -> None:
    """The first attempt was not delivered: its delay waits."""
    properties = encode_properties({b"REAL_TOPIC": RETRY.encode(), b"REAL_QID": b"0", b"DELAY": b"1"})
    records = [
        Record(SCHEDULE.encode(), 0, 0, 100, properties=properties, reconsume_times=1),
        Record(SCHEDULE.encode(), 0, 1, 200, properties=properties, reconsume_times=2),
        Record(RETRY.encode(), 0, 0, 300, properties=properties, reconsume_times=2),
    ]
    first, second, got = copies_of([(record, Situations(None).of(record)) for record in records], "")
    assert got.parent is second
    assert (first.after, got.event.kind.value) == ([], "DELIVERED")


def test_a_check_point_of_popped_messages_is_a_timer_that_was_delivered(tmp_path: Path) -> None:
    """As `PopMessageProcessor.buildCkMsg`@5.3.3 stores it: its unique key names topic, queue, offset and group."""
    key, revive = b"orders@0@0@billing@1795406988024@broker@ck", b"rmq_sys_REVIVE_LOG_DefaultCluster"
    timer = {b"UNIQ_KEY": key, b"TIMER_OUT_MS": b"3000"}
    writer = LogWriter(4096)
    waiting = encode_properties({**timer, b"REAL_TOPIC": revive, b"REAL_QID": b"0"})
    writer.append(1000, b"{}", b"rmq_sys_wheel_timer", properties=waiting)
    # The time of birth is kept, and `LogWriter` gives each message the time at which it is stored.
    writer.append(1000, b"{}", revive, properties=encode_properties({**timer, b"TIMER_DEQUEUE_MS": b"3001"}))
    writer.write(tmp_path)
    with MessageStore(str(tmp_path)) as store:
        told = only(life(store, key.decode()))
    assert (kinds(told), told.state) == (["DELAYED", "DELIVERED"], State.DELIVERED)


def test_a_message_whose_beginning_expired_says_so(unpacked: Unpack) -> None:
    facts = {fact["offset"]: fact for fact in DELETED.facts("msg")}
    start = DELETED.facts("store")[0]["minPhyOffset"] if "minPhyOffset" in DELETED.facts("store")[0] else min(facts)
    told_of = 0
    with MessageStore(str(unpacked(DELETED))) as store:
        for fact in facts.values():
            half, origin = fact["preparedTransactionOffset"], fact["properties"].get("ORIGIN_MESSAGE_ID")
            is_orphan = (fact["sysFlag"] & 0xC == 8 and half < start) or (origin and int(origin[-16:], 16) < start)
            if is_orphan and fact["uniqKey"]:
                told = only(life(store, fact["uniqKey"]))
                assert "expired: the log begins at" in " ".join(told.unknown)
                told_of += 1
    assert told_of


def test_a_batch_has_one_unique_key_for_all_its_messages(opened: MessageStore, workload: RealStore) -> None:
    """With a client of 5.x. With one of 4.9, each message of a batch has its own."""
    batch = max(of_topic(workload, "BatchIngest").values(), key=len)
    assert (len(batch) > 1) == (workload.broker_version == "5")
    everything = only(life(opened, batch[0]["uniqKey"], at=0))
    assert [event.commit_log_offset for event in everything.events] == [fact["offset"] for fact in batch]
    for fact in batch:
        told = only(life(opened, fact["msgId"], at=0))
        assert [event.commit_log_offset for event in told.events] == [fact["offset"]]
        assert told.keys == tuple((fact["keys"] or "").split())


def test_two_sends_with_one_key_stay_two(opened: MessageStore, workload: RealStore) -> None:
    facts = by_unique_key(workload)["unique0"]
    told = only(life(opened, "unique0"))
    assert kinds(told) == ["SENT"] * len(facts)
    assert [event.parent for event in told.events] == [None] * len(facts)


def test_several_stores_give_one_story(unpacked: Unpack, tmp_path: Path) -> None:
    """A message that one broker stored, and another one delivered again, as after a failover."""
    first, second = LogWriter(4096), LogWriter(4096)
    offset = first.append(1000, b"x", b"orders", properties=encode_properties({b"UNIQ_KEY": b"U1"}))
    origin = f"7F00000100002A9F{offset:016X}".encode()
    retry = {b"UNIQ_KEY": b"U1", b"ORIGIN_MESSAGE_ID": origin, b"RETRY_TOPIC": b"orders"}
    second.append(5000, b"", b"%RETRY%billing", properties=encode_properties(retry))
    first.write(tmp_path / "first")
    second.write(tmp_path / "second")
    with MessageStore(str(tmp_path / "first")) as one, MessageStore(str(tmp_path / "second")) as other:
        told = only(life({"b": other, "a": one}, "U1"))
        alone = only(life(other, "U1"))
    assert [(event.store, event.kind.value, event.parent) for event in told.events] == [
        ("a", "SENT", None),
        ("b", "RETRIED", 0),
    ]
    assert told.state == State.STORED
    assert [event.kind.value for event in alone.events] == ["RETRIED"]
    assert alone.state == State.UNKNOWN
    assert "delivered first" in " ".join(alone.unknown)


def test_trace_events_are_told_with_the_clients_times(tmp_path: Path) -> None:
    """Bodies as `TraceDataEncoder.encoderFromContextBean`@5.3.3 writes them."""
    writer = LogWriter(8192)
    writer.append(1000, b"x", b"orders", properties=encode_properties({b"UNIQ_KEY": b"U1", b"KEYS": b"k1"}))
    events = [
        "Pub 900 region producers orders U1 tag k1 127.0.0.1:10911 1 7 0 ID true",
        "SubBefore 1100 region billing R1 U1 0 k1|SubBefore 1100 region billing R1 U2 0 k9",
        "SubAfter R1 U1 42 false k1 0 1150 billing",
        "EndTransaction 1160 region producers orders U1 t k1 h 0 U1 COMMIT_MESSAGE true",
        "Pub broken||  |Nothing U1|SubAfter R1",
    ]
    for number, text in enumerate(events):
        keys = encode_properties({b"KEYS": b"U1 k1", b"UNIQ_KEY": f"T{number}".encode()})
        body = text.replace(" ", "\x01").replace("|", "\x02").encode() + b"\x02"
        writer.append(2000 + number, body, b"RMQ_SYS_TRACE_TOPIC", properties=keys)
    writer.write(tmp_path)
    with MessageStore(str(tmp_path)) as store:
        for key in ("U1", "k1"):
            told = only(life(store, key, "orders" if key == "k1" else None))
            assert [(event.timestamp, event.kind.value, event.consumer_group) for event in told.events] == [
                (900, "TRACED", None),
                (1000, "SENT", None),
                (1100, "TRACED", "billing"),
                (1150, "TRACED", "billing"),
                (1160, "TRACED", None),
            ]
            texts = [event.text for event in told.events]
            assert texts[0] == "trace: producer group producers sent it to orders in 7 ms"
            assert texts[3] == "trace: group billing failed to consume it in 42 ms"
            assert "COMMIT_MESSAGE, when the broker asked" in texts[4]


def test_a_timer_that_was_cancelled_or_rolled(tmp_path: Path) -> None:
    """Records as `TimerMessageStore` and `RecallMessageProcessor`@5.3.3 write them."""
    timer = {b"UNIQ_KEY": b"U1", b"REAL_TOPIC": b"orders", b"REAL_QID": b"2", b"TIMER_OUT_MS": b"90000"}
    recall = {**timer, b"TIMER_DEL_UNIQKEY": b"orders+U1"}
    producer = {**timer, b"UNIQ_KEY": b"U9", b"TIMER_DEL_UNIQKEY": b"orders+U1"}
    other_time = {**recall, b"TIMER_OUT_MS": b"91000"}
    rolled = {**timer, b"TIMER_ROLL_TIMES": b"1"}
    cases: dict[str, tuple[list[dict[bytes, bytes]], State, list[str]]] = {
        "recall": ([timer, recall], State.CANCELLED, ["DELAYED", "CANCELLED"]),
        "producer": ([timer, producer], State.CANCELLED, ["DELAYED", "CANCELLED"]),
        "other time": ([timer, other_time], State.OVERDUE, ["DELAYED", "OTHER"]),
        "rolled": ([timer, rolled], State.OVERDUE, ["DELAYED", "ROLLED"]),
        "rolled, cancelled": ([timer, rolled, producer], State.CANCELLED, ["DELAYED", "ROLLED", "CANCELLED"]),
        "before it": ([recall, timer], State.CANCELLED, ["OTHER", "DELAYED"]),
    }
    for name, (records, state, events) in cases.items():
        writer = LogWriter(8192)
        for number, properties in enumerate(records):
            at = writer.append(1000, b"x", b"rmq_sys_wheel_timer", properties=encode_properties(properties))
            assert at == writer.offsets[number]
        writer.write(tmp_path / name)
        (tmp_path / name / "checkpoint").write_bytes(bytes(4096))
        (tmp_path / name / "config").mkdir()
        for slots, found in ((0, state), (1 << 50, state if state == State.CANCELLED else State.UNKNOWN)):
            timercheck = struct.pack(">qqq", slots, 0, slots)
            (tmp_path / name / "config" / "timercheck").write_bytes(timercheck)
            with MessageStore(str(tmp_path / name)) as store:
                told = only(life(store, "U1", at=2 * LEAST_PLAUSIBLE_MILLIS))
                rows = delayed_rows(store, 2 * LEAST_PLAUSIBLE_MILLIS).to_pylist()
            assert (told.state, kinds(told)) == (found, events), name
            assert [row["state"] for row in rows if row["unique_key"] == "U1"] == [found]


def test_a_delayed_message_with_a_negative_queue_offset_waits(tmp_path: Path) -> None:
    """The broker has delivered nothing of its level."""
    writer = LogWriter(4096)
    properties = encode_properties({b"UNIQ_KEY": b"U1", b"REAL_TOPIC": b"orders", b"REAL_QID": b"0"})
    writer.append(1000, b"x", SCHEDULE.encode(), 3, -5, properties)
    writer.write(tmp_path)
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable": {1: 7}}')
    with MessageStore(str(tmp_path)) as store:
        assert only(life(store, "U1", at=0)).state == State.WAITING
        assert delayed_rows(store, 0)["state"].to_pylist() == ["WAITING"]


def test_a_half_message_without_its_older_copies_is_unknown(tmp_path: Path) -> None:
    """One of them can have been committed, before the log begins; an op message does not say what it decided."""
    properties = {b"UNIQ_KEY": b"U1", b"REAL_TOPIC": b"orders", b"REAL_QID": b"0", b"TRANSACTION_CHECK_TIMES": b"2"}
    for name, ops, checks in (("op", [b"0,"], b"2"), ("no op", [], b"2"), ("first", [], b"")):
        writer = LogWriter(4096)
        half = {key: value for key, value in {**properties, b"TRANSACTION_CHECK_TIMES": checks}.items() if value}
        writer.append(1000, b"x", HALF.encode(), 0, 0, encode_properties(half))
        for body in ops:
            writer.append(1000, body, b"RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 0, encode_properties({b"TAGS": b"d"}))
        writer.write(tmp_path / name)
        (tmp_path / name / "checkpoint").write_bytes(bytes(4096))
        (tmp_path / name / "config").mkdir()
        (tmp_path / name / "config" / "consumerOffset.json").write_text('{"offsetTable": {}}')
        with MessageStore(str(tmp_path / name)) as store:
            told = only(life(store, "U1"))
            assert transaction_rows(store)["state"].to_pylist() == [told.state.value]
        assert told.state == (State.UNKNOWN if checks else State.PENDING), name
        assert "older copies" in (told.reason or "") or not checks


def test_hostile_records_are_told_without_an_error(tmp_path: Path) -> None:
    writer = LogWriter(1 << 16)
    evil = b"\x1b[2J\xff\xed\xa0\x80"
    for topic in (HALF, DISCARDED, SCHEDULE, TIMER, RETRY, DLQ, "%RETRY%", "%DLQ%", "orders", "RMQ_SYS_TRACE_TOPIC"):
        for value in (evil, b"-1", b"9" * 30, b"", b"1"):
            names = "REAL_TOPIC REAL_QID RETRY_TOPIC ORIGIN_MESSAGE_ID TRANSACTION_CHECK_TIMES DELAY TIMER_OUT_MS"
            names += " TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS TRAN_PREPARED_QUEUE_OFFSET PGROUP KEYS"
            properties = {name.encode(): value for name in names.split()} | {b"UNIQ_KEY": b"U1"}
            for sys_flag in (0, 4, 8, 12):
                writer.append(1000, evil, topic.encode(), 3, -5, encode_properties(properties), sys_flag)
    writer.append(2000, b"0,x,99999999999999999999,-1,,", b"RMQ_SYS_TRANS_OP_HALF_TOPIC", 3)
    writer.write(tmp_path)
    (tmp_path / "config").mkdir()
    for name in ("consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "topics.json"):
        (tmp_path / "config" / name).write_text('{"offsetTable": 7, "subscriptionGroupTable": {"a": 5}, "x"')
    with MessageStore(str(tmp_path)) as store:
        told = only(life(store, "U1"))
        assert (
            len([event for event in told.events if event.kind.value not in PLACED]) == 9 * 5 * 3
        )  # no ROLLBACK, no traces
        assert life(store, "no such key").lives == ()
        with pytest.raises(OptionError, match="empty"):
            life(store, "")


def test_the_tables_say_the_same_of_all_messages(workload: RealStore, opened: MessageStore) -> None:
    """They read the whole log, and pair records in Arrow; the lives are look-ups. `delayed` also has retries."""
    at = max(fact["storeTimestamp"] for fact in workload.facts("msg")) + HOUR
    for row in transaction_rows(opened, at).to_pylist():
        assert only(life(opened, row["unique_key"], at=at)).state == row["state"]
    for row in delayed_rows(opened, at).to_pylist():
        told = only(life(opened, row["unique_key"], at=at))
        dues = {event.commit_log_offset: event.due_timestamp for event in told.events}
        assert [dues[offset] for offset in row["waiting_offsets"]] == [epoch_millis(row["due_timestamp"])]
        if row["topic"] != RETRY:
            assert told.state == row["state"]


class OldConfig(LifeStore):
    """A store whose files of `config/` are older than some messages, as those of an archive's snapshot can be."""

    def __init__(self, store: MessageStore, config_end: int) -> None:
        super().__init__(store)
        self.config_end = config_end


def test_old_offsets_prove_only_that_a_message_was_consumed(tmp_path: Path) -> None:
    packed = WORKLOADS[0]
    path, key = packed.unpack(tmp_path), next(iter(of_topic(packed, "RetryDemo")))
    offsets = {f"RetryDemo@{group}": dict.fromkeys(range(8), offset) for group, offset in (("far", 99), ("near", 0))}
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    with MessageStore(str(path)) as store:
        at = int(time.time() * 1000)
        whole = only(life(store, key, at=at))
        states = {one.consumer_group: one.state for one in whole.consumers}
        assert states == {"far": ConsumerState.PAST, "near": ConsumerState.NOT_YET}
        last = max(event.commit_log_offset or 0 for event in whole.events)
        assert only(life(OldConfig(store, last + 1), key, at=at)) == whole
        told = only(life(OldConfig(store, 0), key))
        assert only(life(OldConfig(store, last), key)).unknown == told.unknown
    assert [one.consumer_group for one in told.consumers] == ["far"]
    assert told.unknown == ("which consumer groups are past it: it was stored after config/consumerOffset.json",)
