"""Which queue a message goes to (`TopicPublishInfo`, `SelectMessageQueueByHash`), and which brokers are left out.

A broker that answers slowly, or not at all, gets no messages for a time (`MQFaultStrategy`). Functions are pure; the
time is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pyarrow as pa

from spark_mq.errors import InvalidMessageError
from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.java_text import hash_code
from spark_mq.remoting.requests import WRITABLE, Route

LATENCY_MILLIS = {
    "4.9": (50, 100, 550, 1000, 2000, 3000, 15000),
    "5": (50, 100, 550, 1800, 3000, 5000, 15000),
}
"""From which latency on a broker is left out, by line of versions (`latencyMax`@4.9.7 and 5.3.3)."""
NOT_AVAILABLE_MILLIS = {
    "4.9": (0, 0, 30000, 60000, 120000, 180000, 600000),
    "5": (0, 0, 2000, 5000, 6000, 10000, 30000),
}
"""For how long, at the same positions (`notAvailableDuration`)."""
ISOLATED_MILLIS = {"4.9": 30000, "5": 10000}
"""The latency that stands for a request without an answer (`updateFaultItem`)."""


class QueueSelector(StrEnum):
    """How the queue of a message is chosen."""

    QUEUE_ID = "queue_id"
    """By column `queue_id`; a row without one by its sharding key, and without that in turn."""
    SHARDING_KEY = "sharding_key"
    """By the hash of the sharding key; a row without one in turn."""
    ROUND_ROBIN = "round_robin"


@dataclass(frozen=True, order=True)
class MessageQueue:
    """A queue of a broker."""

    broker: str
    queue_id: int


def publish_queues(route: Route) -> list[MessageQueue]:
    """The queues to which messages can be sent (`topicRouteData2TopicPublishInfo`): by broker, then by queue id."""
    masters = {broker.name for broker in route.brokers if 0 in broker.addresses}
    return [
        MessageQueue(queues.broker, number)
        for queues in route.queues
        if queues.perm & WRITABLE and queues.broker in masters
        for number in range(queues.write_queue_nums)
    ]


def by_hash(key: str, count: int) -> int:
    """The number of the queue for a sharding key, of `count` queues (`SelectMessageQueueByHash`@5.3.3)."""
    return abs(hash_code(key)) % count


def not_available_millis(latency: int, line: str = "5") -> int:
    """For how many milliseconds a broker is left out after a request took `latency` milliseconds."""
    for least, duration in zip(reversed(LATENCY_MILLIS[line]), reversed(NOT_AVAILABLE_MILLIS[line]), strict=True):
        if latency >= least:
            return duration
    return 0


@dataclass
class Brokers:
    """Which brokers are left out, and until when (`LatencyFaultToleranceImpl`); times are in milliseconds."""

    line: str = "5"
    until: dict[str, int] = field(default_factory=dict)

    def note(self, broker: str, latency: int | None, now: int) -> None:
        """Note that a request took so long; None if it had no answer."""
        duration = not_available_millis(ISOLATED_MILLIS[self.line] if latency is None else latency, self.line)
        self.until[broker] = now + duration

    def choose(self, queues: Sequence[MessageQueue], first: int, last_broker: str | None, now: int) -> MessageQueue:
        """The next queue in turn from number `first` on (`MQFaultStrategy.selectOneMessageQueue`@5.3.3).

        Brokers that are left out, and the broker of the last attempt, are passed over as long as there is another one.
        """
        turn = [queues[(first + number) % len(queues)] for number in range(len(queues))]
        others = [queue for queue in turn if queue.broker != last_broker]
        available = [queue for queue in others if self.until.get(queue.broker, 0) <= now]
        return (available or others or turn)[0]


@dataclass(frozen=True)
class ChosenQueues:
    """The numbers of the queues of rows, and which rows have no choice of their own: any other queue would do, too."""

    numbers: Int64s
    is_in_turn: Flags


def choose_queues(
    queues: Sequence[MessageQueue], queue_ids: pa.Array, sharding_keys: pa.Array, selector: QueueSelector, first: int
) -> ChosenQueues:
    """The queues of rows of a topic.

    Args:
        queue_ids: The queue id of each row, of type INT; NULL for rows that name none.
        sharding_keys: The sharding key of each row; NULL for rows without one.
        first: The number of the queue of the first row that has no choice.

    Raises:
        InvalidMessageError: The topic has no queue with a queue id.
    """
    rows = len(queue_ids)
    numbers, is_in_turn = (first + np.arange(rows, dtype=np.int64)) % len(queues), np.ones(rows, np.bool_)
    if selector != QueueSelector.ROUND_ROBIN:
        keys = sharding_keys.dictionary_encode()
        of_key = np.array([by_hash(key, len(queues)) for key in keys.dictionary.to_pylist()] or [0], np.int64)
        _put(numbers, is_in_turn, of_key[keys.indices.fill_null(0).to_numpy()], sharding_keys)
    if selector == QueueSelector.QUEUE_ID:
        ids = queue_ids.dictionary_encode()
        # The first broker that has the queue, so that messages of one queue id stay in order.
        known = {queue.queue_id: number for number, queue in reversed(list(enumerate(queues)))}
        for queue_id in ids.dictionary.to_pylist():
            if queue_id not in known:
                raise InvalidMessageError(
                    f"queue_id {queue_id} is not a queue to which messages can be sent: the topic has "
                    f"{', '.join(map(str, sorted(known)))}; leave queue_id out, or choose queueSelector=round_robin"
                )
        of_id = np.array([known[queue_id] for queue_id in ids.dictionary.to_pylist()] or [0], np.int64)
        _put(numbers, is_in_turn, of_id[ids.indices.fill_null(0).to_numpy()], queue_ids)
    return ChosenQueues(numbers, is_in_turn)


def _put(numbers: Int64s, is_in_turn: Flags, chosen: Int64s, given: pa.Array) -> None:
    """Write what rows chose over `numbers`, where they are not NULL in `given`."""
    is_given = given.is_valid().to_numpy(zero_copy_only=False)
    numbers[is_given] = chosen[is_given]
    is_in_turn &= ~is_given
