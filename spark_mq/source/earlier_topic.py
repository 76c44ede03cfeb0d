"""The parts of the log that can have messages of a topic of the same name, which was deleted before this one began.

If a topic is deleted, its queues are deleted, and its messages stay in the log. A topic that is created again begins at
queue offset 0 (`DefaultMessageStore.deleteTopics`@5.3.3). So two messages can have the same topic, queue id and queue
offset. A unit leads only to the newer one, and the older one is before the first message of the queue.
"""

from __future__ import annotations

from spark_mq.errors import CorruptLogError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.java_text import decode_utf8
from spark_mq.source.options import ReadOptions
from spark_mq.source.time_window import time_window
from spark_mq.source.topic_plan import parts_without_units
from spark_mq.store.log.log_range import LogRange, iterate_records
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import Proven

_FEW_BYTES = 256 << 10
"""Bytes of the log that are read here, record by record: a task with its kernels would take longer."""


def log_of_earlier_topic(options: ReadOptions, store: MessageStore, queue: ConsumeQueue) -> list[LogRange]:
    """The parts of the live log that can have messages of the queue before its own first one, in order.

    They are empty if a unit of the queue leads to a message that has expired: everything older has expired, too. Parts
    for which the units of all queues account are left out.

    Args:
        options: The options of the read, whose times limit the log.
    """
    first = store.queue_cover(queue.topic, queue.queue_id).first_proven()
    if first is None or _is_after_expired(store, queue, first):
        return []
    window = time_window(options.predicate, store, [queue])
    before = LogRange(window.start, min(window.stop, first.record.commit_log_offset))
    if before.size <= 0:
        return []
    parts = [before] if before.size <= _FEW_BYTES else parts_without_units(store, before, queue)
    if sum(part.size for part in parts) > _FEW_BYTES:
        return parts
    return [part for part in parts if _can_have_messages(store, part, queue)]


def _is_after_expired(store: MessageStore, queue: ConsumeQueue, first: Proven) -> bool:
    """Whether the unit before the first proven one is of a message that has expired."""
    commit_log_offset, store_size, _ = queue.unit(first.queue_offset - 1)
    is_message = store_size > 0 and store_size != PRE_BLANK_SIZE
    return is_message and 0 <= commit_log_offset < store.get_min_phy_offset()


def _can_have_messages(store: MessageStore, part: LogRange, queue: ConsumeQueue) -> bool:
    try:
        return any(
            record.queue_id == queue.queue_id and decode_utf8(record.topic) == queue.topic
            for record in iterate_records(store.records, part)
        )
    except CorruptLogError:
        return True
