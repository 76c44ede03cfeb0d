"""The messages of one queue from the newest to the oldest, by its units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_mq.format.record import Record
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.scan import FIRST, FOREVER
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import QueueCover

_FIRST_UNITS, _MOST_UNITS = 64, 4096
_LOOKED_AT_UNITS = 4096


def messages_newest_first(
    cover: QueueCover, start: int = FIRST, stop: int = FOREVER
) -> Iterator[Record | CorruptRange]:
    """The messages of the queue offsets from `start` to `stop` (not included), backwards, and damaged ranges.

    A few units are read at a time, more with each step, and holes are read from the log as in
    `QueueCover.messages_and_damage`.
    """
    step = _FIRST_UNITS
    first, end = cover.first_unit, cover.end_of_units
    middle = min(stop, end) - step
    while stop > start:
        begin = start if middle <= max(start, first) else middle
        yield from reversed(list(cover.messages_and_damage(begin, stop)))
        step = min(2 * step, _MOST_UNITS)
        stop, middle = begin, begin - step


def tail_start(queues: Sequence[ConsumeQueue], covers: Sequence[QueueCover], at_least: int) -> int | None:
    """The offset of a record at or after `at_least`, as early as the last units of the queues show; else None.

    Args:
        queues: The queues.
        covers: What the units of each queue prove.
        at_least: A commit log offset.

    """
    earliest: int | None = None
    for queue, cover in zip(queues, covers, strict=True):
        end = cover.end_of_units
        begin = max(cover.first_unit, end - _LOOKED_AT_UNITS)
        units = queue.units(begin, end)
        near = (units["commit_log_offset"] >= at_least).nonzero()[0].tolist()
        proven = cover.proven(begin + near[0]) if near else None
        if proven is not None and proven.record.commit_log_offset >= at_least:
            offset = proven.record.commit_log_offset
            earliest = offset if earliest is None else min(earliest, offset)
    return earliest
