"""The part of the log for which the units of all queues account, and the units of some queues in it.

A queue alone cannot show that it is complete: a broker may not have dispatched a message yet, a file or a folder may be
lost, and messages of transaction types PREPARED and ROLLBACK are in no queue. All queues together can: their units are
tiles of the log (`tiles`). So the units of all queues are read, 20 bytes for each message, segment by segment. Where
tiles follow one another, each message has its unit, and those of the requested queues are found by their units alone.
The other parts of the log must be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import UNIT_SIZE, Units, is_live
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.store.log.log_range import LogRange, end_of_blank
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue, announce_units
from spark_mq.store.queue.contradictions import with_contradicted
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.queue.tiles import accounted, cut, merged, rest
from spark_mq.store.queue.unit_cursor import UnitCursor, own_stop
from spark_mq.store.queue.unit_tiles import UnitChain, in_order, tiles_of

_MOST_RUNS = 1 << 10
"""Runs of a segment that are compared with the log: two or more records are read for each."""


@dataclass(frozen=True)
class FoundUnits:
    """Units of some queues; one element of each array for each unit.

    Attributes:
        sizes: Sizes of the records, in bytes.
    """

    offsets: Int64s
    sizes: Int64s
    tags_codes: Int64s
    queues: Int64s
    queue_offsets: Int64s

    @classmethod
    def of_queue(cls, queue: int, first: int, units: Units) -> FoundUnits:
        """The units of one queue that lead to a message; `first` is the queue offset of the first element."""
        live = np.flatnonzero(is_live(units))
        kept = units[live]
        return cls(
            kept["commit_log_offset"].astype(np.int64),
            kept["store_size"].astype(np.int64),
            kept["tags_code"].astype(np.int64),
            np.full(live.size, queue, np.int64),
            live + first,
        )

    @classmethod
    def joined(cls, parts: Sequence[FoundUnits]) -> FoundUnits:
        """The units of all parts in the order of the log."""
        if not parts:
            return cls(*(np.empty(0, np.int64) for _ in range(5)))
        columns = zip(*(part._arrays for part in parts), strict=True)
        found = cls(*(np.concatenate(column) for column in columns))
        return found.at(np.argsort(found.offsets, kind="stable"))

    def at(self, chosen: slice | npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> FoundUnits:
        """The units with these indexes."""
        return FoundUnits(*(array[chosen] for array in self._arrays))

    def in_ranges(self, ranges: Sequence[LogRange]) -> FoundUnits:
        """The units that lead into the ranges, which are in order."""
        bounds = np.array([bound for part in ranges for bound in (part.start, part.stop)], np.int64)
        return self.at(np.searchsorted(bounds, self.offsets, side="right") % 2 == 1)

    @property
    def count(self) -> int:
        """The number of units."""
        return self.offsets.size

    @property
    def log_bytes(self) -> int:
        """The size of all records, in bytes."""
        return int(self.sizes.sum())

    @property
    def _arrays(self) -> tuple[Int64s, ...]:
        return self.offsets, self.sizes, self.tags_codes, self.queues, self.queue_offsets


@dataclass(frozen=True)
class LogCover:
    """What the units of all queues show about a range of the log.

    Attributes:
        covered: The ranges in which units lead to all messages, in order. Each is in one segment.
        uncovered: The other ranges. Each starts with a record, a blank or a corrupt range.
    """

    covered: tuple[LogRange, ...]
    uncovered: tuple[LogRange, ...]
    unit_bytes: int


def log_cover(
    covers: Iterable[tuple[ConsumeQueue, QueueCover]], records: RecordLookup, log: LogRange, merge_distance: int
) -> LogCover:
    """What the units of all queues show about `log`, which starts at a boundary and ends at one, or at the live end.

    Args:
        covers: All queues of the store, and what their units prove.
        merge_distance: Uncovered ranges become one if fewer bytes are between them.
    """
    segments = list(_in_segments(records, log))
    cursors = list(_cursors(covers, log, len(segments)))
    covered: list[LogRange] = []
    unit_bytes = 0
    for within in segments:
        announce_units([(cursor.queue, *cursor.following()) for cursor in cursors])
        chain, taken = UnitChain(within), []
        for cursor in cursors:
            first, block = cursor.take(within.stop)
            unit_bytes += block.size * UNIT_SIZE
            chain.add(block)
            taken.append((cursor.queue, first, block.size))
        blocks = (queue.units(first, first + count) for queue, first, count in taken)
        covered += _covered(records, chain.stop(), blocks, within)
    queues = {(cursor.queue.topic, cursor.queue.queue_id): cursor.queue for cursor in cursors}
    uncovered = merged(with_contradicted(records, log, rest(log, covered), queues), merge_distance)
    covered = [part for within in segments for part in cut(rest(log, uncovered), within)]
    return LogCover(tuple(covered), tuple(uncovered), unit_bytes)


def units_within(
    covers: Sequence[tuple[ConsumeQueue, QueueCover]], log: LogRange, parts: Sequence[LogRange]
) -> FoundUnits:
    """The units of some queues that lead to messages in parts of the log, in its order.

    Args:
        covers: The queues, and what their units prove; `FoundUnits.queues` are indexes of them.
    """
    numbers = {(queue.topic, queue.queue_id): index for index, (queue, _) in enumerate(covers)}
    found = []
    for cursor in _cursors(covers, log, 1):
        first, block = cursor.take(log.stop)
        found.append(FoundUnits.of_queue(numbers[cursor.queue.topic, cursor.queue.queue_id], first, block))
    return FoundUnits.joined(found).in_ranges(parts)


def _cursors(covers: Iterable[tuple[ConsumeQueue, QueueCover]], log: LogRange, parts: int) -> Iterator[UnitCursor]:
    """A cursor for each queue that has messages of its own, at the start of `log`, which is read in so many parts."""
    for queue, cover in covers:
        if queue.topic.startswith(LIGHT_PREFIX):
            continue
        stop = own_stop(cover)
        if stop is not None:
            yield UnitCursor(queue, stop, log.start, parts)


def _covered(records: RecordLookup, stop: int | None, blocks: Iterable[Units], within: LogRange) -> list[LogRange]:
    """The ranges of one segment for which the units account, with the blank at the segment's end.

    Args:
        stop: The end of the run of all units' tiles from the segment's start on; None if they are not one run.
        blocks: The units of each queue, which are compared one by one if they are not one run.
    """

    def is_record(commit_log_offset: int, store_size: int | None = None) -> bool:
        try:
            record = records.record(commit_log_offset, store_size)
        except CorruptLogError:
            return False
        return store_size in (None, record.size)

    if stop is not None:
        if stop == within.stop or end_of_blank(records, stop) == within.stop:
            return [within]
        if is_record(stop):
            return [LogRange(within.start, stop)]
    parts = accounted(*tiles_of(map(in_order, blocks), within), is_record, _MOST_RUNS)
    if parts and parts[-1].stop < within.stop and end_of_blank(records, parts[-1].stop) == within.stop:
        parts[-1] = LogRange(parts[-1].start, within.stop)
    return parts


def _in_segments(records: RecordLookup, log: LogRange) -> Iterator[LogRange]:
    for segment in records.segments:
        part = LogRange(max(segment.base, log.start), min(segment.base + segment.size, log.stop))
        if part.size > 0:
            yield part
