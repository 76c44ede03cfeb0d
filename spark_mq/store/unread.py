"""The messages that consumer groups lose because they did not read them in time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.store.config.config_file import ConsumerOffset, load_consumer_offsets
from spark_mq.store.expiry import SegmentRetention
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue


@dataclass(frozen=True)
class UnreadLoss:
    """The unread messages that a group loses in one queue.

    Attributes:
        consumer_offset: The queue offset that the group consumes next.
        unread: The number of messages from there on that the queue has.
        lost: The number of messages from there on that are deleted already.
        file: The segment of the first unread message; None if it is the newest segment, or if there is none.
        loses: The number of unread messages that are deleted together with the first one: those in expired segments
            if its segment has expired, else those in all segments that are deleted at the same time.
        expired: The number of unread messages in all segments that have expired.
        expire_timestamp: When the segment expires, milliseconds since the epoch.
        delete_timestamp: When the broker deletes the segment.
    """

    consumer_group: str
    topic: str
    queue_id: int
    consumer_offset: int
    unread: int
    lost: int
    file: str | None
    loses: int
    expired: int
    expire_timestamp: int | None
    delete_timestamp: int | None


def unread_losses(store: MessageStore, segments: Sequence[SegmentRetention]) -> list[UnreadLoss]:
    """What consumer groups lose, the first loss first (`config/consumerOffset.json`).

    Groups that have read all messages except those of the newest segment are left out. A group without an offset in a
    queue is not known.

    Args:
        segments: The store's segments (`segment_retentions`).
    """
    found = []
    for committed in load_consumer_offsets(store.location):
        queue = store.queues.get((committed.topic, committed.queue_id))
        loss = None if queue is None or not segments else _loss(store, queue, committed, segments)
        if loss is not None:
            found.append(loss)
    never = max((segment.delete_timestamp or 0 for segment in segments), default=0) + 1
    return sorted(found, key=lambda loss: (loss.delete_timestamp or never, -loss.loses, -loss.lost))


def _loss(
    store: MessageStore, queue: ConsumeQueue, committed: ConsumerOffset, segments: Sequence[SegmentRetention]
) -> UnreadLoss | None:
    name = committed.topic, committed.queue_id
    first, stop = _unread(store, committed)
    lost = max(first - committed.offset, 0)
    segment = _segment_of(queue, first, segments) if first < stop else None
    if segment is None or segment.expire_timestamp is None:
        if not lost:
            return None
        return UnreadLoss(committed.consumer_group, *name, committed.offset, stop - first, lost, None, 0, 0, None, None)

    kept = next(one for one in segments if not one.is_expired)
    following = kept
    if not segment.is_expired:
        later = [one for one in segments if one.commit_log_offset > segment.commit_log_offset]
        at = segment.delete_timestamp
        following = next((one for one in later if one.delete_timestamp != at), segments[-1])
    return UnreadLoss(
        committed.consumer_group,
        *name,
        committed.offset,
        stop - first,
        lost,
        segment.file,
        _count_before(queue, first, stop, following.commit_log_offset),
        _count_before(queue, first, stop, kept.commit_log_offset),
        segment.expire_timestamp,
        segment.delete_timestamp,
    )


@dataclass(frozen=True)
class UnreadMessages:
    """The number of unread messages of a group in a part of one queue."""

    consumer_group: str
    topic: str
    queue_id: int
    count: int


def unread_before(store: MessageStore, commit_log_offset: int) -> list[UnreadMessages]:
    """The messages before a commit log offset that groups have not read, most first; the errors of `unread_losses`."""
    found = []
    for committed in load_consumer_offsets(store.location):
        queue = store.queues.get((committed.topic, committed.queue_id))
        if queue is None:
            continue
        count = _count_before(queue, *_unread(store, committed), commit_log_offset)
        if count:
            found.append(UnreadMessages(committed.consumer_group, committed.topic, committed.queue_id, count))
    return sorted(found, key=lambda one: -one.count)


def _unread(store: MessageStore, committed: ConsumerOffset) -> tuple[int, int]:
    """The queue offset of the first message that a group has not read, and the offset after the queue's last one."""
    name = committed.topic, committed.queue_id
    start, stop = store.get_min_offset_in_queue(*name), store.get_max_offset_in_queue(*name)
    return min(max(committed.offset, start), stop), stop


def _count_before(queue: ConsumeQueue, first: int, stop: int, commit_log_offset: int) -> int:
    return bisect_left(range(first, stop), commit_log_offset, key=lambda queue_offset: queue.unit(queue_offset)[0])


def _segment_of(
    queue: ConsumeQueue, queue_offset: int, segments: Sequence[SegmentRetention]
) -> SegmentRetention | None:
    """The segment of a unit's message; None if the unit does not point to one of them."""
    commit_log_offset, store_size, _ = queue.unit(queue_offset)
    index = bisect_right([segment.commit_log_offset for segment in segments], commit_log_offset) - 1
    if index < 0 or store_size <= 0 or store_size == PRE_BLANK_SIZE:
        return None
    return segments[index] if commit_log_offset < segments[index].end_offset else None
