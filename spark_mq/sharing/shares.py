"""What each consumer gets of a topic, how uneven that is, and which queues move if the consumers change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_mq.sharing.strategies import MessageQueue, Strategy, allocate
from spark_mq.sharing.topic_queues import TopicQueue

MEASURES = ("queues", "messages", "log_bytes", "lag")
"""What shares are measured by."""


@dataclass(frozen=True)
class Share:
    """The queues of one consumer."""

    consumer: str
    queue_ids: tuple[int, ...]
    messages: int | None
    log_bytes: int | None
    lag: int | None

    @property
    def queues(self) -> int:
        """The number of queues."""
        return len(self.queue_ids)


@dataclass(frozen=True)
class Unevenness:
    """How uneven shares are by one measure."""

    measure: str
    least: int
    most: int
    mean: float
    most_to_mean: float | None


@dataclass(frozen=True)
class Allocation:
    """How the queues of a topic are shared out."""

    strategy: str
    shares: tuple[Share, ...]
    unevenness: tuple[Unevenness, ...]
    nobody: tuple[int, ...]

    @property
    def owners(self) -> dict[int, tuple[str, ...]]:
        """The consumers of each queue; more than one only by strategy CONFIG."""
        owners: dict[int, tuple[str, ...]] = {}
        for share in self.shares:
            for queue_id in share.queue_ids:
                owners[queue_id] = (*owners.get(queue_id, ()), share.consumer)
        return owners


@dataclass(frozen=True)
class Move:
    """A queue that another consumer gets."""

    queue_id: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def allocation(
    strategy: Strategy, topic: str, broker_name: str, queues: Sequence[TopicQueue], consumers: Sequence[str]
) -> Allocation:
    """How a strategy shares out the queues of a topic."""
    by_id = {queue.queue_id: queue for queue in queues}
    allocated = allocate(strategy, [MessageQueue(topic, broker_name, queue_id) for queue_id in by_id], consumers)
    has_lag = any(queue.lag is not None for queue in queues)
    shares = []
    for client_id, share in allocated.items():
        own = [by_id[queue.queue_id] for queue in share]
        measured = ([queue.messages for queue in own], [queue.log_bytes for queue in own], [queue.lag for queue in own])
        messages, log_bytes, lag = (None if None in one else sum(filter(None, one)) for one in measured)
        ids = tuple(queue.queue_id for queue in own)
        shares.append(Share(client_id, ids, messages, log_bytes, lag if has_lag else None))
    taken = {queue_id for share in shares for queue_id in share.queue_ids}
    uneven = (_unevenness(measure, [getattr(share, measure) for share in shares]) for measure in MEASURES)
    return Allocation(
        strategy.name,
        tuple(shares),
        tuple(one for one in uneven if one is not None),
        tuple(queue_id for queue_id in by_id if queue_id not in taken),
    )


def moves(before: Allocation, after: Allocation) -> list[Move]:
    """The queues that have other consumers after a change, by queue id.

    A consumer loses a queue and another one gets it: what the first has not committed is consumed twice.
    """
    old, new = before.owners, after.owners
    changed = [queue_id for queue_id in old.keys() | new.keys() if old.get(queue_id) != new.get(queue_id)]
    return [Move(queue_id, old.get(queue_id, ()), new.get(queue_id, ())) for queue_id in sorted(changed)]


def _unevenness(measure: str, values: Sequence[int | None]) -> Unevenness | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    mean = sum(known) / len(known)
    return Unevenness(measure, min(known), max(known), mean, max(known) / mean if mean else None)
