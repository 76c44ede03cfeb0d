"""The queues to which messages can be sent, and the brokers that are left out: the rules of the Java client."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_mq.errors import InvalidMessageError
from spark_mq.producer.message_queues import Brokers, MessageQueue, not_available_millis, publish_queues, queue_numbers
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


def test_a_queue_id_is_that_of_the_first_broker_that_has_it() -> None:
    ids = pa.array([2, None, 0, 2], pa.int32())
    assert queue_numbers(QUEUES, ids).tolist() == [2, -1, 0, 2]
    assert queue_numbers(QUEUES[3:], ids).tolist() == [2, -1, 0, 2]
    assert queue_numbers(QUEUES, pa.nulls(2, pa.int32())).tolist() == [-1, -1]
    with pytest.raises(InvalidMessageError, match=r"queue_id 7 .* the topic has 0, 1, 2"):
        queue_numbers(QUEUES, pa.array([1, 7], pa.int32()))


@pytest.mark.parametrize(
    ("latency", "millis"),
    [
        (0, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (2_999, 5_000),
        (3_000, 6_000),
        (4_999, 6_000),
        (14_999, 10_000),
        (15_000, 30_000),
    ],
)
def test_times_for_which_a_broker_is_left_out(latency: int, millis: int) -> None:
    assert not_available_millis(latency) == millis


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
