"""The offsets of a consumer group set to a time, as `mqadmin resetOffsetByTime` does for a group without consumers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_mq.errors import RemotingError, first_names
from spark_mq.live.cluster import LiveBroker
from spark_mq.remoting.client import shown
from spark_mq.remoting.requests import consumer_connections, consumer_offset, offset_by_time
from spark_mq.remoting.writes import update_consumer_offset

FIRST, LAST = "first", "last"


@dataclass(frozen=True)
class OffsetReset:
    """A queue, the offset of the group there, and the one that it gets.

    Attributes:
        consumer_offset: The queue offset that the group consumes next; None if it has none.
        skipped: Messages that the group will not consume, which it would have; negative: messages that it gets again.
    """

    broker: str
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    consumer_offset: int | None
    reset_offset: int

    @property
    def skipped(self) -> int:
        """How many messages the group does not get; negative: how many it gets again."""
        now = self.min_offset if self.consumer_offset is None else self.consumer_offset
        return self.reset_offset - min(max(now, self.min_offset), self.max_offset)


def planned_resets(brokers: Sequence[LiveBroker], group: str, topic: str, to: str | int) -> Iterator[OffsetReset]:
    """What a reset sets, by broker and queue; nothing is changed.

    It is to FIRST, LAST, or a store time in milliseconds, for which each broker looks (`getOffsetInQueueByTime`).
    """
    for broker in brokers:
        for queue in broker.queues(topic):
            found = consumer_offset(broker.client, broker.address, group, topic, queue.queue_id)
            if to == FIRST:
                target = queue.start
            elif to == LAST:
                target = queue.stop
            else:
                target = offset_by_time(broker.client, broker.address, topic, queue.queue_id, int(to))
            target = min(max(target, queue.start), queue.stop)
            yield OffsetReset(broker.broker.name, topic, queue.queue_id, queue.start, queue.stop, found, target)


def check_no_consumers(brokers: Sequence[LiveBroker], group: str) -> None:
    """Raise `RemotingError` if a consumer of the group is connected: it would write its own offsets over new ones."""
    for broker in brokers:
        connected = consumer_connections(broker.client, broker.address, group)
        if connected is not None:
            raise RemotingError(
                f"consumers of group {group} are connected to broker {broker.broker.name} "
                f"({shown(first_names(connected.consumers))}), and would write their own offsets over the new ones: "
                "stop them first, or use mqadmin resetOffsetByTime, which tells them"
            )


def apply_resets(brokers: Sequence[LiveBroker], group: str, resets: Sequence[OffsetReset]) -> int:
    """Set the offsets, and read each one again; returns how many changed.

    Raises `RemotingError` if a consumer is connected, or if a broker does not know the group, or has another offset
    afterwards.
    """
    check_no_consumers(brokers, group)
    by_name = {broker.broker.name: broker for broker in brokers}
    changed = [one for one in resets if one.consumer_offset != one.reset_offset]
    for one in changed:
        broker = by_name[one.broker]
        update_consumer_offset(broker.client, broker.address, group, one.topic, one.queue_id, one.reset_offset)
        found = consumer_offset(broker.client, broker.address, group, one.topic, one.queue_id)
        if found != one.reset_offset:
            raise RemotingError(
                f"{broker.address}: group {group} has offset {found} in queue {one.topic}/{one.queue_id} after it was "
                f"set to {one.reset_offset}: something else sets it, too"
            )
    return len(changed)
