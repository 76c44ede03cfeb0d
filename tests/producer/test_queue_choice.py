"""Which queue a message goes to: the rules of the Java client, on arrays and for single rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import InvalidMessageError
from spark_mq.format.java_text import hash_code
from spark_mq.producer.queue_choice import (
    Brokers,
    MessageQueue,
    QueueSelector,
    by_hash,
    choose_queues,
    not_available_millis,
    publish_queues,
)
from spark_mq.remoting.requests import Broker, Route, TopicQueues

QUEUES = [MessageQueue(broker, number) for broker in ("a", "b") for number in range(3)]


def test_queues_are_those_of_masters_that_can_be_written() -> None:
    route = Route(
        (TopicQueues("a", 8, 2, 6), TopicQueues("b", 4, 1, 2), TopicQueues("c", 4, 4, 4), TopicQueues("d", 4, 4, 6)),
        (
            Broker("x", "a", {0: "a:1"}),
            Broker("x", "b", {0: "b:1"}),
            Broker("x", "c", {0: "c:1"}),
            Broker("x", "d", {1: "d:1"}),
        ),
    )
    assert publish_queues(route) == [MessageQueue("a", 0), MessageQueue("a", 1), MessageQueue("b", 0)]


@given(st.text(max_size=20), st.integers(1, 40))
def test_a_hash_chooses_as_java_does(key: str, count: int) -> None:
    value = hash_code(key)
    remainder = value - int(value / count) * count  # Java's % has the sign of the dividend
    assert by_hash(key, count) == abs(remainder)


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from(["k1", "k2", "Aa"])), min_size=1),
    st.sampled_from(QueueSelector),
    st.integers(0, 100),
)
def test_rows_choose_as_the_rule_for_one_row_says(
    rows: list[tuple[int | None, str | None]], selector: QueueSelector, first: int
) -> None:
    ids, keys = pa.array([row[0] for row in rows], pa.int32()), pa.array([row[1] for row in rows], pa.string())
    chosen = choose_queues(QUEUES, ids, keys, selector, first)
    for number, (queue_id, key) in enumerate(rows):
        if selector == QueueSelector.QUEUE_ID and queue_id is not None:
            expected, is_in_turn = QUEUES.index(MessageQueue("a", queue_id)), False
        elif selector != QueueSelector.ROUND_ROBIN and key is not None:
            expected, is_in_turn = by_hash(key, len(QUEUES)), False
        else:
            expected, is_in_turn = (first + number) % len(QUEUES), True
        assert (chosen.numbers[number], bool(chosen.is_in_turn[number])) == (expected, is_in_turn)


def test_a_queue_id_that_no_broker_has_is_an_error() -> None:
    with pytest.raises(InvalidMessageError, match=r"queue_id 7 .* the topic has 0, 1, 2"):
        choose_queues(QUEUES, pa.array([7], pa.int32()), pa.array([None], pa.string()), QueueSelector.QUEUE_ID, 0)


@pytest.mark.parametrize(
    ("latency", "of_4", "of_5"),
    [
        (0, 0, 0),
        (549, 0, 0),
        (550, 30_000, 2_000),
        (1_000, 60_000, 2_000),
        (1_800, 60_000, 5_000),
        (2_999, 120_000, 5_000),
        (3_000, 180_000, 6_000),
        (14_999, 180_000, 10_000),
        (15_000, 600_000, 30_000),
    ],
)
def test_times_for_which_a_broker_is_left_out(latency: int, of_4: int, of_5: int) -> None:
    assert (not_available_millis(latency, "4.9"), not_available_millis(latency)) == (of_4, of_5)


def test_a_broker_without_an_answer_is_passed_over_while_there_is_another() -> None:
    brokers = Brokers()
    brokers.note("a", None, 1000)
    assert brokers.until == {"a": 11_000}
    assert brokers.choose(QUEUES, 1, None, 10_999) == MessageQueue("b", 0)
    assert brokers.choose(QUEUES, 1, None, 11_000) == MessageQueue("a", 1)
    assert brokers.choose(QUEUES, 1, "a", 11_000) == MessageQueue("b", 0)
    brokers.note("b", None, 1000)
    assert brokers.choose(QUEUES, 1, "a", 2000).broker == "b"  # nobody is available: at least another one
    assert brokers.choose(QUEUES[:3], 1, "a", 2000) == MessageQueue("a", 1)  # there is no other
