"""The queues to which messages can be sent (`TopicPublishInfo`), and which brokers are left out.

A broker that answers slowly, or not at all, gets no messages for a time (`MQFaultStrategy`). Functions are pure; the
time is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_mq.errors import InvalidMessageError
from spark_mq.format.array_types import Int64s
from spark_mq.remoting.requests import WRITABLE, Route

DEFAULT_GROUP = "spark_mq_producer"
_LEFT_OUT = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000))
"""From which latency on a broker is left out, and for how long (`latencyMax`, `notAvailableDuration`@5.3.3)."""
_ISOLATED_MILLIS = 10_000
"""The latency that stands for a request without an answer (`updateFaultItem`)."""


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


def not_available_millis(latency: int) -> int:
    """For how many milliseconds a broker is left out after a request took `latency` milliseconds."""
    return next((duration for least, duration in _LEFT_OUT if latency >= least), 0)


@dataclass
class Brokers:
    """Which brokers are left out, and until when (`LatencyFaultToleranceImpl`); times are in milliseconds."""

    until: dict[str, int] = field(default_factory=dict)

    def note(self, broker: str, latency: int | None, now: int) -> None:
        """Note that a request took so long; None if it had no answer."""
        self.until[broker] = now + not_available_millis(_ISOLATED_MILLIS if latency is None else latency)

    def choose(self, queues: Sequence[MessageQueue], first: int, last_broker: str | None, now: int) -> MessageQueue:
        """The next queue in turn from number `first` on (`MQFaultStrategy.selectOneMessageQueue`@5.3.3).

        Brokers that are left out, and the broker of the last attempt, are passed over as long as there is another one.
        """
        turn = [queues[(first + number) % len(queues)] for number in range(len(queues))]
        others = [queue for queue in turn if queue.broker != last_broker]
        available = [queue for queue in others if self.until.get(queue.broker, 0) <= now]
        return (available or others or turn)[0]


def queue_numbers(queues: Sequence[MessageQueue], queue_ids: pa.Array) -> Int64s:
    """The number of the queue that each queue id names; -1 for NULL.

    It is that of the first broker that has the queue, so that messages of one queue id stay in order. An id of no queue
    is an `InvalidMessageError`.
    """
    known = {queue.queue_id: number for number, queue in reversed(list(enumerate(queues)))}
    ids = queue_ids.dictionary_encode()
    for queue_id in ids.dictionary.to_pylist():
        if queue_id not in known:
            raise InvalidMessageError(
                f"queue_id {queue_id} is not a queue to which messages can be sent: the topic has "
                f"{', '.join(map(str, sorted(known)))}; leave queue_id out, or choose queueSelector=round_robin"
            )
    numbers: Int64s = np.array([*(known[queue_id] for queue_id in ids.dictionary.to_pylist()), -1], np.int64)
    chosen: Int64s = numbers[ids.indices.fill_null(numbers.size - 1).to_numpy()]
    return chosen
