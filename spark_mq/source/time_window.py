"""The part of the log that can have messages of a time range, from the units of some queues.

As in `store.log.time_pruning`, a broker's clock may have been set back by `CLOCK_TOLERANCE_MILLIS`. So a record that
was stored earlier than a time by more than that shows that all records before it were stored before that time.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_mq.source.predicate import Predicate
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE, plan_splits
from spark_mq.store.log.time_pruning import CLOCK_TOLERANCE_MILLIS, within_time
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import QueueCover


def live_log(store: MessageStore) -> LogRange:
    """The live log of a store."""
    return LogRange(store.get_min_phy_offset(), store.get_max_phy_offset())


def time_window(predicate: Predicate, store: MessageStore, queues: Sequence[ConsumeQueue]) -> LogRange:
    """The part of the live log that can contain messages of the requested store times; it starts at a boundary."""
    log = live_log(store)
    begin, end = predicate.store_timestamp.bounds
    if begin is None and end is None:
        return log
    splits = within_time(plan_splits(CommitLog.open(store.location), DEFAULT_SPLIT_SIZE), begin, end)
    if not splits:
        return LogRange(log.start, log.start)
    start = max(min(split.segment.base for split in splits), log.start)
    stop = min(max(split.segment.end_offset for split in splits), log.stop)
    for queue in queues:
        cover = store.queue_cover(queue.topic, queue.queue_id).certain
        if begin is not None:
            start = max(start, _start_of_time(cover, begin - CLOCK_TOLERANCE_MILLIS))
        if end is not None:
            found = _stop_of_time(cover, end + CLOCK_TOLERANCE_MILLIS)
            stop = stop if found is None else min(stop, found)
    return LogRange(start, max(start, stop))


def _start_of_time(cover: QueueCover, time: int) -> int:
    """The offset of the earlier one of two neighbours in the queue that were stored before `time`; -1 without them.

    If the time of one of the two is damaged, the other one still shows that the records before both are early.
    """
    early, _ = cover.around(lambda record: record.store_timestamp >= time)
    before = None if early is None else cover.proven(early.queue_offset - 1)
    return before.record.commit_log_offset if before is not None and before.record.store_timestamp < time else -1


def _stop_of_time(cover: QueueCover, time: int) -> int | None:
    """The offset of the later one of two neighbours in the queue that were stored after `time`; None without them."""
    _, later = cover.around(lambda record: record.store_timestamp > time)
    after = None if later is None else cover.proven(later.queue_offset + 1)
    return after.record.commit_log_offset if after is not None and after.record.store_timestamp > time else None
