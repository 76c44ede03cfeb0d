"""Queues that have units of messages of other queues: those that property INNER_MULTI_DISPATCH names.

A broker with enableMultiDispatch puts a message also into these queues, at the offsets in INNER_MULTI_QUEUE_OFFSET
(`ConsumeQueue.multiDispatchLmqQueue`@5.3.3 and @4.9.7). Which of the units are there depends on settings and on the
version. So these units are not checked: no finding says that one is extra, or leads to another queue's message. The
units of the queue's own messages are checked as in any queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.properties import INNER_MULTI_DISPATCH
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.verifier.finding import findings

if TYPE_CHECKING:
    from spark_mq.format.array_types import Bytes
    from spark_mq.format.kernels.frames import Frames

Queue = tuple[str, int]
"""Topic and queue id."""

NOT_COMPARABLE = ("QUEUE_NO_MESSAGE", "QUEUE_PRE_BLANK", "QUEUE_UNIT_EXTRA")
"""Findings about units that are not of the queue's own messages."""


def dispatched_queues(buffer: Bytes, frames: Frames) -> set[Queue]:
    """The queues that messages name, besides light message queues.

    Args:
        buffer: The bytes that contain the messages.
    """
    from spark_mq.format.kernels.columns import MessageColumns

    which = MessageColumns(buffer, frames).has_property(INNER_MULTI_DISPATCH)
    if not which.any():
        return set()
    messages = MessageColumns(buffer, frames[which])
    names = pc.split_pattern(messages.property_text(INNER_MULTI_DISPATCH), ",")
    queue_ids = messages.column("queue_id").take(pc.list_parent_indices(names))
    queues = pa.table([names.flatten(), queue_ids], ["topic", "queue_id"])
    is_light = pc.starts_with(queues["topic"], LIGHT_PREFIX)
    found = queues.filter(pc.invert(is_light)).group_by(["topic", "queue_id"]).aggregate([])
    return {(row["topic"], row["queue_id"]) for row in found.to_pylist() if row["topic"]}


def not_checked_queues(queues: Iterable[Queue]) -> Iterator[pa.RecordBatch]:
    """A note for each of the queues."""
    for topic, queue_id in sorted(queues):
        yield findings(
            "NOT_CHECKED",
            file=f"{CONSUME_QUEUE}/{topic}/{queue_id}",
            topic=topic,
            queue_id=queue_id,
            found="units of messages that name this queue in INNER_MULTI_DISPATCH are not checked",
        )
