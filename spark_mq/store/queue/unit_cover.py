"""The part of the log for which the units of all queues account, and the units of some queues in it.

A queue alone cannot show that it is complete: a broker may not have dispatched a message yet, a file or a folder may be
lost, and messages of transaction types PREPARED and ROLLBACK are in no queue. All queues together can: their units are
extents of the log (`unit_runs`). So the units of all queues are read, 20 bytes for each message, segment by segment.
Where extents follow one another, each message has its unit, and those of the requested queues are found by their units
alone. The other parts of the log must be read.

Where all units are extents of the log, each unit accounts for the record to which it leads, also if that record
belongs to another queue. Then the message at the unit's queue offset usually has no unit: it is in a part of the log
for which no unit accounts. So the records of these parts show which units are wrong. If no such part is left, the wrong
units lead to one another's messages, and the readers of the units see that.

This module runs while Spark plans, and imports no kernels: it looks at few records.

`ReadCost` has the prices by which a planner compares two ways to the same rows. The unit is one byte that is read in
order. A read at another place costs a *jump* more, and a queue some calls. The constants are a model, not a measurement
of the machine at hand; `benchmarks.topics` measures what they lead to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import ArrayRows, Int64s
from spark_mq.format.consume_queue import UNIT_SIZE, Queue, Units, is_live
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.dledger import HEAD_SIZE
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import MAGIC_AT, Record, decode_record
from spark_mq.io.location import Location
from spark_mq.store.log.log_range import LogRange, cut, joined, merged, rest
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.segment_files import RECORD_MAGIC
from spark_mq.store.queue.consume_queue import ConsumeQueue, announce_units
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.queue.unit_runs import UnitChain, UnitCursor, accounted, extents_of, in_order, own_stop

_MOST_BYTES = 32 << 20
"""Bytes of messages without a unit that are looked at. If there are more, the whole log is scanned."""
_MOST_WRONG = 1 << 10
"""Wrong units that are told from others. If there are more, the whole log is scanned."""

Queues = Mapping[Queue, ConsumeQueue]
_MOST_RUNS = 1 << 10
"""Runs of a segment that are compared with the log: two or more records are read for each."""


@dataclass(frozen=True)
class ReadCost:
    """The prices of one kind of storage.

    Attributes:
        jump: Bytes that could be read in order in the time of a read at another place.
        queue: Bytes that could be read in the time in which one queue is opened, and its end is compared with the log.
        most_units: Units of all queues that the one process that plans a read may compare with the log.
    """

    jump: int
    queue: int
    most_units: int = 1 << 30

    @property
    def gap(self) -> int:
        """Bytes between two records that are read over: half a jump, so that little more is read than necessary."""
        return self.jump // 2

    def of(self, log_bytes: int, jumps: int = 0, unit_bytes: int = 0, queues: int = 0) -> int:
        """The cost of a read, in bytes that are read in order."""
        return log_bytes + jumps * self.jump + unit_bytes + queues * self.queue


LOCAL = ReadCost(jump=4 << 10, queue=128 << 10)
"""A local disk whose files are cached or which is an SSD: a call takes about 2 microseconds, a scan 2 GB a second.

A thousand million units are 20 GB, and take some 15 seconds of a processor.
"""
REMOTE = ReadCost(jump=4 << 20, queue=24 << 20, most_units=1 << 27)
"""An object store, by assumption: 50 milliseconds until the first byte, then 80 MB a second, six reads for a queue.

A hundred million units are 2.7 GB, and half a minute.
"""

CLEARLY_LESS = 0.7
"""The part of the other way's cost that a way by queues may cost to be chosen: it has more to go wrong."""


def cost_of(location: Location) -> ReadCost:
    """The prices of the storage of a store."""
    return LOCAL if location.is_local else REMOTE


def coalesced(offsets: Int64s, sizes: Int64s, gap: int) -> tuple[Int64s, Int64s]:
    """The starts and stops of the ranges to read for records; a gap of at most `gap` bytes is read over."""
    if not offsets.size:
        return offsets, offsets
    stops = np.maximum.accumulate(offsets + sizes)
    jumps = np.flatnonzero(offsets[1:] - stops[:-1] > gap)
    starts = offsets[np.concatenate(([0], jumps + 1))]
    return starts, stops[np.concatenate((jumps, [offsets.size - 1]))]


def with_contradicted(
    records: RecordLookup, log: LogRange, holes: Sequence[LogRange], queues: Queues
) -> list[LogRange]:
    """The parts of a log that must be scanned: those without units, and those to which wrong units lead, in order."""
    found, unseen, seen_bytes = list(holes), list(holes), 0
    while unseen:
        seen_bytes += sum(part.size for part in unseen)
        if seen_bytes > _MOST_BYTES:
            return [log]
        extents = _wrong_records(records, _by_segment(records, unseen), queues)
        if len(extents) > _MOST_WRONG:
            return [log]
        unseen = [part for extent in extents for part in cut(rest(extent, found), log)]
        found = joined([*found, *unseen])
    return found


def _wrong_records(records: RecordLookup, parts: Iterable[LogRange], queues: Queues) -> list[LogRange]:
    """The records to which wrong units lead, as the messages of some parts of the log show."""
    places: defaultdict[Queue, list[tuple[int, int]]] = defaultdict(list)
    for part in parts:
        for record in _dispatched(records, part):
            place = record.queue_offset, record.commit_log_offset
            places[decode_utf8(record.topic), record.queue_id].append(place)
    found: set[tuple[int, int]] = set()
    for name, here in places.items():
        if name in queues:
            queue_offsets, offsets = np.array(here, np.int64).T
            units = queues[name].units_at(queue_offsets)
            wrong = units[is_live(units) & (units["commit_log_offset"] != offsets)]
            found.update(zip(wrong["commit_log_offset"].tolist(), wrong["store_size"].tolist(), strict=True))
    return [LogRange(offset, offset + size) for offset, size in sorted(found) if records.is_at(offset, size)]


def _dispatched(records: RecordLookup, part: LogRange) -> Iterator[Record]:
    """The messages that start in a part of a segment, and that queues contain. Damage is stepped over."""
    data = records.read(part.start, part.size)
    position = 0
    while 0 <= position < len(data):
        try:
            record = decode_record(data, position, part.start + position)
        except CorruptLogError:
            found = RECORD_MAGIC.search(data, position + 1 + MAGIC_AT)
            position = -1 if found is None else found.start() - MAGIC_AT
            continue
        if record.is_in_queue:
            yield record
        position += record.size


@dataclass(frozen=True)
class FoundUnits(ArrayRows):
    """Units of some queues; one element of each array for each unit."""

    offsets: Int64s
    sizes: Int64s
    tags_codes: Int64s
    queues: Int64s
    queue_offsets: Int64s

    @classmethod
    def of_queue(cls, queue: int, first: int, units: Units) -> Self:
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
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The units of all parts in the order of the log."""
        if not parts:
            return cls(*(np.empty(0, np.int64) for _ in range(5)))
        found = cls.concatenate(parts)
        return found.take(np.argsort(found.offsets, kind="stable"))

    def in_ranges(self, ranges: Sequence[LogRange]) -> FoundUnits:
        """The units that lead into the ranges, which are in order."""
        bounds = np.array([bound for part in ranges for bound in (part.start, part.stop)], np.int64)
        return self.take(np.searchsorted(bounds, self.offsets, side="right") % 2 == 1)

    @property
    def count(self) -> int:
        """The number of units."""
        return self.offsets.size

    @property
    def log_bytes(self) -> int:
        """The size of all records, in bytes."""
        return int(self.sizes.sum())


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

    @property
    def scanned(self) -> int:
        """Bytes of the log for which units do not account."""
        return sum(part.size for part in self.uncovered)


def log_cover(
    covers: Iterable[tuple[ConsumeQueue, QueueCover]], records: RecordLookup, log: LogRange, merge_distance: int
) -> LogCover:
    """What the units of all queues show about `log`, which starts at a boundary and ends at one, or at the live end.

    Args:
        merge_distance: Uncovered ranges become one if fewer bytes are between them.
    """
    segments = _by_segment(records, [log])
    cursors = list(_cursors(covers, log, len(segments)))
    covered: list[LogRange] = []
    unit_bytes = 0
    for within in segments:
        segment = records.segment_of(within.start)
        head_size = HEAD_SIZE if segment is not None and segment.has_entries else 0
        announce_units([(cursor.queue, *cursor.following()) for cursor in cursors])
        chain, taken = UnitChain(within), []
        for cursor in cursors:
            first, block = cursor.take(within.stop)
            unit_bytes += block.size * UNIT_SIZE
            chain.add(_with_heads(block, head_size))
            taken.append((cursor.queue, first, block.size))
        blocks = (_with_heads(queue.units(first, first + count), head_size) for queue, first, count in taken)
        covered += _covered(records, chain.stop(), blocks, within, head_size)
    queues = {(cursor.queue.topic, cursor.queue.queue_id): cursor.queue for cursor in cursors}
    uncovered = merged(with_contradicted(records, log, rest(log, covered), queues), merge_distance)
    return LogCover(tuple(_by_segment(records, rest(log, uncovered))), tuple(uncovered), unit_bytes)


def units_within(
    covers: Sequence[tuple[ConsumeQueue, QueueCover]], log: LogRange, parts: Sequence[LogRange]
) -> FoundUnits:
    """The units of some queues that lead to messages in parts of the log, in its order."""
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


def _with_heads(units: Units, head_size: int) -> Units:
    """The units of extents that begin with the head of a DLedger entry."""
    if not head_size:
        return units
    units = units[is_live(units)]
    units["commit_log_offset"] -= head_size
    units["store_size"] += head_size
    return units


def _covered(
    records: RecordLookup, stop: int | None, blocks: Iterable[Units], within: LogRange, head_size: int
) -> list[LogRange]:
    """The ranges of one segment for which the units account, with the blank at the segment's end.

    Args:
        stop: The end of the run of all units' extents from the segment's start on; None if they are not one run.
    """

    def is_record(commit_log_offset: int, store_size: int | None = None) -> bool:
        size = None if store_size is None else store_size - head_size
        record = records.find(commit_log_offset + head_size, size)
        return record is not None and size in (None, record.size)

    if stop is not None:
        if stop == within.stop or records.end_of_blank(stop) == within.stop:
            return [within]
        if is_record(stop):
            return [LogRange(within.start, stop)]
    parts = accounted(*extents_of(map(in_order, blocks), within), is_record, _MOST_RUNS)
    if parts and parts[-1].stop < within.stop and records.end_of_blank(parts[-1].stop) == within.stop:
        parts[-1] = LogRange(parts[-1].start, within.stop)
    return parts


def _by_segment(records: RecordLookup, parts: Sequence[LogRange]) -> list[LogRange]:
    """The same parts of the log, each in one segment, in its order."""
    segments = (LogRange(segment.base, segment.end_offset) for segment in records.segments)
    return [part for segment in segments for part in cut(parts, segment)]
