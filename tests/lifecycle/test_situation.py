"""What single records mean, against the facts of the Java classes and what the producers of the stores wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq import MessageStore
from spark_mq.format.amounts import duration_text
from spark_mq.format.properties import encode_properties
from spark_mq.format.record import Record
from spark_mq.lifecycle.life.situation import RecordKind, Situation, SituationRules, Situations
from spark_mq.lifecycle.retry_topic import ConsumerGroups
from tests.support.stores import OWN_STORES, Fact, RealStore, Unpack, stores_in

STORES = [store for store in stores_in(OWN_STORES) if store.name.startswith("workload")]
KINDS = {
    "RMQ_SYS_TRANS_HALF_TOPIC": RecordKind.HALF,
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": RecordKind.OP,
    "TRANS_CHECK_MAX_TIME_TOPIC": RecordKind.DISCARDED,
    "SCHEDULE_TOPIC_XXXX": RecordKind.DELAYED,
    "rmq_sys_wheel_timer": RecordKind.TIMER,
    "%RETRY%GID_failing": RecordKind.RETRY,
    "%DLQ%GID_failing": RecordKind.DEAD_LETTER,
}
TYPES = {0: RecordKind.NORMAL, 4: RecordKind.PREPARED, 8: RecordKind.COMMIT, 12: RecordKind.ROLLBACK}
RULES = SituationRules(groups=ConsumerGroups(frozenset({"billing"}), are_all=True), retry_max_times={"billing": 16})


def situation(record: Record, rules: SituationRules) -> Situation:
    situations = Situations(None)
    situations.rules = rules
    return situations.of(record)


def real_place(fact: Fact) -> tuple[str, int | None]:
    """The topic and queue to which a message belongs, by the properties that the broker wrote."""
    properties = fact["properties"]
    if KINDS.get(fact["topic"]) in (RecordKind.RETRY, RecordKind.DEAD_LETTER):
        return properties["RETRY_TOPIC"], None
    if fact["topic"] in KINDS and "REAL_TOPIC" in properties:
        return properties["REAL_TOPIC"], int(properties["REAL_QID"])
    return fact["topic"], fact["queueId"]


@pytest.mark.parametrize("store", STORES, ids=str)
def test_kind_and_real_place_of_every_record(store: RealStore, unpacked: Unpack) -> None:
    seen = set()
    with MessageStore(str(unpacked(store))) as opened:
        situations = Situations(opened, opened.broker_conf)
        for fact in store.facts("msg"):
            record = opened.find_record(fact["offset"])
            assert isinstance(record, Record)
            meant = situations.of(record)
            assert meant.kind == KINDS.get(fact["topic"], TYPES[fact["sysFlag"] & 0xC]), fact
            assert (meant.real_topic, meant.real_queue_id) == real_place(fact)
            assert bool(meant.text) or meant.kind == RecordKind.NORMAL
            properties = fact["properties"]
            if meant.kind == RecordKind.HALF:
                checks = properties.get("TRANSACTION_CHECK_TIMES")
                assert meant.text == ("half message" if checks is None else f"half message, check {checks}")
            if meant.kind == RecordKind.DELAYED:
                delay = {0: 1000, 1: 5000, 17: 7_200_000}[fact["queueId"]]
                assert meant.due == fact["storeTimestamp"] + delay
                assert ("of group GID_failing" in meant.text) == (properties["REAL_TOPIC"] == "%RETRY%GID_failing")
            if meant.kind == RecordKind.TIMER:
                assert meant.due == int(properties["TIMER_OUT_MS"])
            if meant.kind == RecordKind.RETRY:
                assert meant.text == f"retry {fact['reconsumeTimes']} of 16 of group GID_failing"
            if meant.kind == RecordKind.DEAD_LETTER:
                assert meant.text == "dead letter of group GID_failing after 3 failed deliveries"
            seen.add(meant.kind)
    assert seen >= set(KINDS.values()) - ({RecordKind.TIMER} if store.broker_version == "4.9" else set())


def record(topic: str, queue_id: int = 0, reconsume_times: int = 0, **properties: str) -> Record:
    encoded = encode_properties({name.encode(): value.encode() for name, value in properties.items()})
    stored = 1_767_225_590_000
    return Record(topic.encode(), queue_id, properties=encoded, store_timestamp=stored, reconsume_times=reconsume_times)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (record("SCHEDULE_TOPIC_XXXX", 2), "delayed (level 3, 10 s), due 2026-01-01T00:00:00Z"),
        (record("SCHEDULE_TOPIC_XXXX", 98), "delayed (level 99), due at a time that is not known"),
        (record("%RETRY%billing", 0, 3), "retry 3 of 16 of group billing"),
        (record("%RETRY%billing_orders", 0, 1), "retry 1 of 16 of group billing"),
        (record("%RETRY%billing+orders", 0, 1), "retry 1 of 16 of group billing"),
        (record("%RETRY%other", 0, 1), "retry 1 of group other"),
        (record("%DLQ%billing", 0, 1), "dead letter of group billing after 1 failed delivery"),
        (record("%DLQ%billing"), "dead letter of group billing"),
        (
            record("rmq_sys_wheel_timer", TIMER_OUT_MS="1767225600000", TIMER_ROLL_TIMES="2"),
            "timer (rolled 2 times), due 2026-01-01T00:00:00Z",
        ),
        (
            record("rmq_sys_wheel_timer", TIMER_OUT_MS="1767225600000", TIMER_DEL_UNIQKEY="orders+U1"),
            "cancels the timer of orders+U1, due 2026-01-01T00:00:00Z",
        ),
        (record("RMQ_SYS_TRACE_TOPIC"), "trace message"),
        (record("rmq_sys_REVIVE_LOG_DefaultCluster"), "note about popped messages"),
        (record("orders"), ""),
        (record("orders", DELAY="2", REAL_TOPIC="orders"), "delivered after a delay (level 2)"),
        (record("orders", TIMER_DEQUEUE_MS="1"), "delivered by a timer"),
    ],
)
def test_texts(one: Record, text: str) -> None:
    assert situation(one, RULES).text == text


def test_a_group_that_is_not_certain_is_not_guessed() -> None:
    meant = situation(record("%RETRY%a_b", 0, 1), SituationRules())
    assert (meant.consumer_group, meant.text) == (None, "retry 1 of the group of topic %RETRY%a_b")
    returned = situation(record("%RETRY%a_b", 0, 1, ORIGIN_MESSAGE_ID="X"), SituationRules())
    assert returned.consumer_group == "a_b"


@given(
    st.sampled_from([*KINDS, "orders", "%RETRY%", "%DLQ%", "%RETRY%a_b"]),
    st.dictionaries(
        st.sampled_from([b"REAL_TOPIC", b"REAL_QID", b"DELAY", b"TIMER_OUT_MS", b"TRANSACTION_CHECK_TIMES"]),
        st.binary() | st.integers().map(lambda number: str(number).encode()),
    ),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, 0x7FF),
    st.binary(max_size=40),
)
def test_no_record_is_an_error(
    topic: str, properties: dict[bytes, bytes], number: int, sys_flag: int, body: bytes
) -> None:
    encoded = encode_properties({name: value for name, value in properties.items() if b"\2" not in value})
    one = Record(topic.encode(), number, body=body, properties=encoded, sys_flag=sys_flag, reconsume_times=number)
    meant = situation(one, RULES)
    assert meant.real_topic
    assert meant == situation(one, RULES)


def test_durations() -> None:
    millis = [0, 84, 1000, 2955, 10_000, 60_000, 90_500, 7_200_000, 5_400_000, 90_000_000, -84]
    texts = "0 ms,84 ms,1 s,2.955 s,10 s,1 min,1 min 30 s,2 h,1 h 30 min,1 d 1 h,-84 ms"
    assert [duration_text(one) for one in millis] == texts.split(",")
