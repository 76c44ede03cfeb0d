"""The part of the log that a read can need: by its live end, by times, and by the units of some queues.

As in `store.log.commit_log`, a broker's clock may have been set back by `CLOCK_TOLERANCE_MILLIS`. So a record that
was stored earlier than a time by more than that shows that all records before it were stored before that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.source.predicate import Predicate
from spark_mq.store.log.commit_log import (
    CLOCK_TOLERANCE_MILLIS,
    DEFAULT_SPLIT_SIZE,
    CommitLog,
    plan_splits,
    within_time,
)
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.queue.unit_cover import LogCover, cost_of, log_cover
from spark_mq.store.queue.unit_runs import first_unit_from
from spark_mq.store.store_lock import StateMemory

MERGE_DISTANCE = 256 << 10
"""Parts of the log that must be scanned become one if fewer bytes are between them: each one is a task."""
_COVERS = StateMemory[LogCover]()
"""By the state of the files, the live log, and the part of it."""


@dataclass(frozen=True)
class QueueComparison:
    """The comparison of the units of all queues with a part of the log, which may have been done before.

    `state` is that of all files of the store: the end of a queue depends on segments outside the part, too.
    """

    store: MessageStore
    everything: Sequence[ConsumeQueue]
    log: LogRange
    state: bytes | None
    known: LogCover | None

    @classmethod
    def of(cls, store: MessageStore, everything: Sequence[ConsumeQueue], log: LogRange) -> Self:
        """The comparison with a part of the live log that starts at a boundary."""
        state = store.first_state
        known = None if state is None else _COVERS.recall((state, store.live_log, log))
        return cls(store, everything, log, state, known)

    def cost(self) -> int | str:
        """What it costs, in bytes that are read in order; or that there are too many units."""
        if self.known is not None:
            return 0
        price, units = cost_of(self.store.location), units_of_part(self.store, self.everything, self.log)
        if units > price.most_units:
            most = f"{price.most_units:,} to compare with the log: limit the time"
            return f"the queues have {units:,} units, more than {most}"
        return price.of(0, unit_bytes=units * UNIT_SIZE, queues=len(self.everything))

    def result(self) -> LogCover:
        """What the units of all queues show about the part of the log."""
        if self.known is not None:
            return self.known
        found = log_cover(with_covers(self.store, self.everything), self.store.records, self.log, MERGE_DISTANCE)
        if self.state is not None and self.store.state_of_files() == self.state:  # none changed while they were read
            _COVERS.keep((self.state, self.store.live_log, self.log), found)
        return found

    def note(self, cover: LogCover) -> str:
        """The work in words."""
        if self.known is not None:
            return "an earlier read of the same files has found what is in no queue"
        return f"{cover.unit_bytes:,} bytes of units of all queues were read to find what is in no queue"


def with_covers(store: MessageStore, queues: Iterable[ConsumeQueue]) -> list[tuple[ConsumeQueue, QueueCover]]:
    """The queues, each with what its units prove."""
    return [(queue, store.queue_cover(queue.topic, queue.queue_id)) for queue in queues]


def unit_count(queues: Iterable[ConsumeQueue]) -> int:
    """The number of units in the files of queues."""
    return sum(queue.written_end - queue.files[0].first for queue in queues)


def units_of_part(store: MessageStore, queues: Iterable[ConsumeQueue], part: LogRange) -> int:
    """About the number of the queues' units that lead into a part of the live log."""
    return unit_count(queues) * part.size // max(store.live_log.size, 1)


def units_into(queues: Iterable[ConsumeQueue], part: LogRange) -> list[range]:
    """The queue offsets of each queue whose units lead into a part of the log, found by bisection."""
    found = []
    for queue in queues:
        end = queue.written_end
        is_last_in = queue.unit(end - 1)[0] < part.stop
        stop = end if is_last_in else first_unit_from(queue, part.stop, end)
        found.append(range(first_unit_from(queue, part.start, end), stop))
    return found


def queues_of(store: MessageStore, predicate: Predicate | None = None) -> list[ConsumeQueue]:
    """The store's queues, or those whose topic and queue id can match."""
    topics, queue_ids = (None, None) if predicate is None else (predicate.topics, predicate.queue_ids)
    names = (name for name in store.queue_names if topics is None or name[0] in topics)
    found = (store.find_queue(*name) for name in names if queue_ids is None or name[1] in queue_ids)
    return [queue for queue in found if queue is not None]


def open_log(store: MessageStore) -> CommitLog:
    """The log, of which tasks read splits.

    On a local disk, its live end is found here, once. Over a network, the task that reads the last segment finds it.
    """
    return CommitLog.open(store.location, store.live_end.offset if store.location.is_local else None)


def time_window(predicate: Predicate, store: MessageStore, queues: Sequence[ConsumeQueue]) -> LogRange:
    """The part of the live log that can contain messages of the requested store times; it starts at a boundary."""
    log = store.live_log
    begin, end = predicate.store_timestamp.bounds
    if begin is None and end is None:
        return log
    splits = within_time(plan_splits(CommitLog.open(store.location, log.stop), DEFAULT_SPLIT_SIZE), begin, end)
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
