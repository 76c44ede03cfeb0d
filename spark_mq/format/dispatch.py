"""Where a message stands in consume queues: in its own queue, and in light message queues that its properties name."""

from __future__ import annotations

from collections.abc import Mapping

from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_TYPE_MASK,
)

LIGHT_PREFIX = "%LMQ%"
"""How the name of a light message queue begins (`MixAll.LMQ_PREFIX`@5.3.3)."""


def offset_in_queue(record: Record, topic: str, queue_id: int) -> int | None:
    """The queue offset that a message has in the queue `queue_id` of `topic`; None if it is not in that queue.

    Messages of transaction types PREPARED and ROLLBACK are in no queue (`CommitLogDispatcherBuildConsumeQueue`@5.3.3).
    A message is in its own queue, and in those that its property INNER_MULTI_DISPATCH names, at the offsets that
    INNER_MULTI_QUEUE_OFFSET has (`ConsumeQueue.multiDispatchLmqQueue`@5.3.3).
    """
    if record.sys_flag & TRANSACTION_TYPE_MASK not in (0, TRANSACTION_COMMIT_TYPE):
        return None
    if record.queue_id == queue_id and decode_utf8(record.topic) == topic:
        return record.queue_offset
    if INNER_MULTI_DISPATCH not in record.properties:
        return None
    is_light = queue_id == 0 and topic.startswith(LIGHT_PREFIX)
    if record.queue_id != queue_id and not is_light:
        return None
    return _dispatched_offset(parse_properties(record.properties), topic)


def _dispatched_offset(properties: Mapping[bytes, bytes], topic: str) -> int | None:
    names = properties.get(INNER_MULTI_DISPATCH, b"").split(b",")
    offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, b"").split(b",")
    name = topic.encode("utf-8", "replace")
    if name not in names or len(names) != len(offsets):
        return None
    text = offsets[names.index(name)]
    return int(text) if text.isdigit() and len(text) < 20 else None
