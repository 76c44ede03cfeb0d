"""Bytes of the log by topic, as the units of the queues tell: each unit has the size of its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_mq.format.consume_queue import Units, is_live
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue

_UNITS = 1 << 18
"""Units of one read."""


@dataclass(frozen=True)
class TopicBytes:
    """The messages of a topic that its queues offer."""

    topic: str
    messages: int
    log_bytes: int
    expired_messages: int
    expired_bytes: int


def topic_bytes(store: MessageStore, min_offset: int) -> list[TopicBytes]:
    """The bytes of the log by topic, the largest first.

    All live units are read: 20 bytes for each message. Messages that are in no queue, such as half messages that were
    committed, are not counted.

    Args:
        min_offset: Messages before this commit log offset count as expired.
    """
    sums: dict[str, list[int]] = {}
    log_start = store.get_min_phy_offset()
    for name, queue in store.queues.items():
        entry = sums.setdefault(name[0], [0, 0, 0, 0])
        for units in _live_units(queue, store.get_min_offset_in_queue(*name), store.get_max_offset_in_queue(*name)):
            counted = units[units["commit_log_offset"] >= log_start]
            expired = counted[counted["commit_log_offset"] < min_offset]
            for at, part in ((0, counted), (2, expired)):
                entry[at] += part.size
                entry[at + 1] += int(part["store_size"].sum(dtype="int64"))
    found = [TopicBytes(topic, *entry) for topic, entry in sums.items() if entry[0]]
    return sorted(found, key=lambda one: (-one.log_bytes, one.topic))


def queue_bytes(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
    """The number of messages that a queue offers, and bytes of their records; 0 if the queue has no files.

    All its live units are read.
    """
    queue = store.queues.get((topic, queue_id))
    if queue is None:
        return 0, 0
    messages = size = 0
    log_start = store.get_min_phy_offset()
    ends = store.get_min_offset_in_queue(topic, queue_id), store.get_max_offset_in_queue(topic, queue_id)
    for units in _live_units(queue, *ends):
        counted = units[units["commit_log_offset"] >= log_start]
        messages += counted.size
        size += int(counted["store_size"].sum(dtype="int64"))
    return messages, size


def _live_units(queue: ConsumeQueue, start: int, stop: int) -> Iterator[Units]:
    for first in range(start, stop, _UNITS):
        units = queue.units(first, min(first + _UNITS, stop))
        yield units[is_live(units)]
