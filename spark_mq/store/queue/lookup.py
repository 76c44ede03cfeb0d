"""What the units of a consume queue prove, and the parts of the log that must be read for all other messages.

Every look-up by queue offset uses this rule. A unit is proven by its record: the unit points to a whole record
of the live log, the record has the unit's size, and the record says that it is in this queue at this queue offset. All
other units prove nothing: units that were lost or never written, pre-blank units, units of messages that expired, stale
units, wrong units. A message without a proven unit can only be between the messages of the proven units beside it,
because the messages of a queue are in the log in the order of the queue. So that part of the log is read for it. If no
unit before it is proven, that part starts with the log; if no unit after it is proven, that part ends with the log.

How a proven unit is found does not change the answer: each one is a bound. A broker assigns each queue offset once. If
a log has a message twice, the message of the proven unit is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Flags
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, Queue, Units
from spark_mq.format.dispatch import offset_in_queue
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import Record
from spark_mq.store.log.log_range import LiveEnd, LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.scan import FIRST, FOREVER, InQueue, scan
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.queue.consume_queue import ConsumeQueue

_FIRST_UNITS = 32
_MOST_UNITS = 4096
_TRIES = 4
"""The number of units at each end of a run that are checked before the run is given up."""
_MOST_RUNS = 64


@dataclass(frozen=True)
class UnitsRead:
    """Records that a task reads by their units.

    Attributes:
        pieces: Parts of the log in which the queues' units lead to all messages, in order, each in one segment.
        queues: The units to read. Those that lead outside `pieces` belong to other tasks.
        count: The number of units that lead into `pieces` and have one of the tags codes.
    """

    pieces: tuple[LogRange, ...]
    queues: tuple[QueueRange, ...]
    count: int
    tags_codes: frozenset[int] | None = None


@dataclass(frozen=True)
class QueueRange:
    """The queue offsets of a queue from `start` to `stop` (not included)."""

    topic: str
    queue_id: int
    start: int
    stop: int


@dataclass(frozen=True)
class ProvenUnit:
    """A message that a proven unit leads to."""

    queue_offset: int
    record: Record

    @property
    def end(self) -> int:
        """The commit log offset after its record."""
        return self.record.commit_log_offset + self.record.size


@dataclass(frozen=True)
class UncoveredOffsets:
    """Queue offsets from `start` to `stop` (not included) that have no proven unit.

    `log` is the part of the live log that can contain their messages. It starts with a record. Its size is 0 if no part
    of the log can contain them.
    """

    start: int
    stop: int
    log: LogRange


class QueueCover:
    """One queue's units, compared with the live log; `queue` is None if the store has no files of it."""

    def __init__(
        self,
        name: Queue,
        queue: ConsumeQueue | None,
        records: RecordLookup,
        live_end: LiveEnd,
        proof_end: int | None = None,
    ) -> None:
        """The cover of one queue, in which records after `proof_end` prove nothing."""
        self.topic, self.queue_id = name
        self.log = LogRange(records.min_offset, live_end.offset)
        self._live_end = live_end
        self._proof_end = live_end.offset if proof_end is None else proof_end
        self.queue = queue
        self._records = records

    @cached_property
    def certain(self) -> QueueCover:
        """The same cover, in which a record that can be stale proves nothing: newer messages can be before it."""
        return self._before(self._live_end.certain)

    @cached_property
    def dispatched(self) -> QueueCover:
        """The same cover, in which only a record proves a unit whose earlier units are not stale either."""
        return self._before(self._live_end.dispatched)

    def _before(self, proof_end: int) -> QueueCover:
        name = self.topic, self.queue_id
        return QueueCover(name, self.queue, self._records, self._live_end, proof_end)

    def proven(self, queue_offset: int) -> ProvenUnit | None:
        """The message that the unit at the queue offset leads to; None if the unit proves nothing."""
        if self.queue is None or queue_offset < 0:
            return None
        commit_log_offset, store_size, _ = self.queue.unit(queue_offset)
        return self._proof(queue_offset, commit_log_offset, store_size)

    def why_not(self, queue_offset: int) -> str | None:
        """Why the unit at the queue offset does not lead to its message; None if it does."""
        if self.proven(queue_offset) is not None or self.queue is None:
            return None
        commit_log_offset, store_size, _ = self.queue.unit(queue_offset)
        try:
            record = self._records.record(commit_log_offset, store_size)
        except CorruptLogError as error:
            return f"NO_RECORD: {error}"
        reason = f"OTHER_RECORD: unit {queue_offset} of {self.topic}/{self.queue_id}"
        if record.size != store_size:
            return f"{reason} has size {store_size}, the record {record.size}"
        own_offset = offset_in_queue(record, self.topic, self.queue_id)
        if own_offset is None:
            return f"{reason} points to a message of {decode_utf8(record.topic)}/{record.queue_id}"
        if own_offset != queue_offset:
            return f"{reason} points to the message with queue offset {own_offset}"
        return f"{reason} points to {commit_log_offset}, and the live log is from {self.log.start} to {self.log.stop}"

    def parts(self, start: int, stop: int) -> Iterator[ProvenUnit | UncoveredOffsets]:
        """The queue offsets from `start` to before `stop`, in order: messages of proven units, and the others."""
        uncovered_start, reached = start, None
        for proven in self._proven_from(start, stop):
            if uncovered_start < proven.queue_offset:
                begin = self._begin_of(start) if reached is None else reached
                yield UncoveredOffsets(
                    uncovered_start, proven.queue_offset, self._between(begin, proven.record.commit_log_offset)
                )
            yield proven
            uncovered_start, reached = proven.queue_offset + 1, proven.end
        if uncovered_start < stop:
            begin = self._begin_of(start) if reached is None else reached
            yield UncoveredOffsets(uncovered_start, stop, self._between(begin, self._end_of(stop)))

    def messages(self, start: int, stop: int = FOREVER) -> Iterator[Record]:
        """The messages of the queue offsets from `start` to `stop` (not included), in the order of the queue."""
        return (part for part in self.messages_and_damage(start, stop) if isinstance(part, Record))

    def messages_and_damage(self, start: int, stop: int = FOREVER) -> Iterator[Record | CorruptRange]:
        """As `messages`, with the damaged ranges in the parts of the log that are read for uncovered offsets."""
        for part in self.parts(start, stop):
            if isinstance(part, ProvenUnit):
                yield part.record
            else:
                yield from self._read(part)

    def messages_of(self, offsets: UncoveredOffsets) -> Iterator[Record]:
        """The messages of uncovered offsets, read from the log; damage there is skipped."""
        return (part for part in self._read(offsets) if isinstance(part, Record))

    def _read(self, offsets: UncoveredOffsets) -> Iterator[Record | CorruptRange]:
        row_filter = InQueue(self.topic, self.queue_id, offsets.start, offsets.stop)
        return scan(self._records, offsets.log, row_filter)

    def uncovered(self, start: int, stop: int = FOREVER) -> UncoveredOffsets:
        """The queue offsets from `start` to `stop` (not included), as if no unit of them were proven."""
        return UncoveredOffsets(start, stop, self._between(self._begin_of(start), self._end_of(stop)))

    def plan(self, start: int, stop: int, most: int) -> tuple[list[QueueRange], list[LogRange]] | None:
        """How to read the queue offsets from `start` to `stop` (not included) in ranges of at most `most` units.

        The ranges to read by units, of which the first and the last unit are proven; and the parts of the log, in its
        order, that can contain the messages of the other queue offsets.

        All units are read, but the records of only a few units: those at the ends of ranges, and next to units that
        contradict each other. None if so many units contradict each other that reading the log is better.
        """
        runs = self._runs(start, min(stop, self.end_of_units), most)
        if len(runs) > _MOST_RUNS + (self.end_of_units - start) // most:
            return None
        ranges, uncovered = [], []
        uncovered_start, reached = start, None
        for first, last in filter(None, (self._trimmed(run_start, run_stop) for run_start, run_stop in runs)):
            if uncovered_start < first.queue_offset:
                begin = self._begin_of(start) if reached is None else reached
                uncovered.append(LogRange(begin, first.record.commit_log_offset))
            ranges.append(QueueRange(self.topic, self.queue_id, first.queue_offset, last.queue_offset + 1))
            uncovered_start, reached = last.queue_offset + 1, last.end
        if uncovered_start < stop:
            uncovered.append(LogRange(self._begin_of(start) if reached is None else reached, self._end_of(stop)))
        if any(part.start > part.stop for part in uncovered):
            return None
        return ranges, [part for part in uncovered if part.size]

    def last_message(self) -> Record | None:
        """The queue's last message in the live log. The log after the last proven unit is read."""
        before = self._last_before(FOREVER)
        last = None if before is None else before.record
        for record in self.messages_of(self.uncovered(FIRST if before is None else before.queue_offset + 1)):
            last = record
        return last

    def first_proven(self) -> ProvenUnit | None:
        """The message of the first proven unit; an earlier one can be proven if some units after it are not."""
        return self._first_from(self.first_unit, self.end_of_units)

    @cached_property
    def last_proven(self) -> ProvenUnit | None:
        """The message of the last proven unit; a later one can be proven if some units before it are not."""
        return self._last_before(FOREVER)

    def around(self, is_later: Callable[[Record], bool]) -> tuple[ProvenUnit | None, ProvenUnit | None]:
        """The last proven message that is not later, and the first one that is; None for a missing one.

        `is_later` must be False for the first messages of the queue and True for all others. Messages without a proven
        unit can be between the two results.
        """
        early: ProvenUnit | None = None
        later: ProvenUnit | None = None
        low, high = self.first_unit, self.end_of_units
        while low < high:
            middle = (low + high) // 2
            found = self._first_from(middle, high)
            if found is None:
                high = middle
            elif is_later(found.record):
                later, high = found, middle
            else:
                early, low = found, found.queue_offset + 1
        return early, later

    @property
    def first_unit(self) -> int:
        """The queue offset of the first unit in the queue's files; 0 if there is none."""
        return self.queue.files[0].first if self.queue is not None and self.queue.files else 0

    @property
    def end_of_units(self) -> int:
        """The queue offset after the last unit that was written; 0 if there is none."""
        return 0 if self.queue is None else self.queue.written_end

    def _proof(self, queue_offset: int, commit_log_offset: int, store_size: int) -> ProvenUnit | None:
        if store_size <= 0 or store_size == PRE_BLANK_SIZE:
            return None
        if commit_log_offset < self.log.start or commit_log_offset > self._proof_end - store_size:
            return None
        record = self._records.find(commit_log_offset, store_size)
        if record is None or record.size != store_size or self.queue is None:
            return None
        stated = offset_in_queue(record, self.topic, self.queue_id)
        is_own = stated is not None and stated == self.queue.record_offset(queue_offset)
        return ProvenUnit(queue_offset, record) if is_own else None

    def _can_be_proven(self, units: Units) -> Flags:
        sizes = units["store_size"].astype(np.int64)
        offsets = units["commit_log_offset"].astype(np.int64)
        is_message = (sizes > 0) & (sizes != PRE_BLANK_SIZE)
        result: Flags = is_message & (offsets >= self.log.start) & (offsets <= self._proof_end - sizes)
        return result

    def _proven_from(self, start: int, stop: int) -> Iterator[ProvenUnit]:
        """Proven units from `start` to `stop` (not included), in order; some can be missed among many unproven ones."""
        if self.queue is None:
            return
        start, stop, count = max(start, self.first_unit), min(stop, self.end_of_units), _FIRST_UNITS
        while start < stop:
            units = self.queue.units(start, min(start + count, stop))
            is_any = False
            for index in np.flatnonzero(self._can_be_proven(units)).tolist():
                commit_log_offset, store_size, _ = units[index].tolist()
                proven = self._proof(start + index, commit_log_offset, store_size)
                if proven is not None:
                    yield proven
                    is_any = True
            start, count = start + units.size, min(2 * count, _MOST_UNITS)
            if not is_any and start < stop:
                following = self._first_from(start, stop)
                start = stop if following is None else following.queue_offset

    def _begin_of(self, queue_offset: int) -> int:
        """A commit log offset before which no message at the queue offset or later is."""
        before = self._last_before(queue_offset)
        return self.log.start if before is None else before.end

    def _end_of(self, queue_offset: int) -> int:
        """A commit log offset at or after which no message before the queue offset is."""
        following = self._first_from(queue_offset, self.end_of_units)
        return self.log.stop if following is None else following.record.commit_log_offset

    def _between(self, begin: int, end: int) -> LogRange:
        """The log between two bounds; the whole log if they contradict each other."""
        return LogRange(begin, end) if begin <= end else self.log

    def _first_from(self, start: int, stop: int) -> ProvenUnit | None:
        """A proven unit from `start` on, before `stop`: the first one if all units after it are proven, too."""
        return self._nearest(range(max(start, self.first_unit), stop))

    def _last_before(self, stop: int) -> ProvenUnit | None:
        """A proven unit before `stop`: the last one if all units before it are proven, too."""
        return self._nearest(range(min(stop, self.end_of_units) - 1, self.first_unit - 1, -1))

    def _nearest(self, offsets: range) -> ProvenUnit | None:
        """A proven unit near the start of `offsets`: steps that double, up to the last offset, then a binary search."""
        if not offsets:
            return None
        unproven, index = -1, 0
        while (proven := self.proven(offsets[index])) is None:
            if index == len(offsets) - 1:
                return None
            unproven, index = index, min(2 * index + 1, len(offsets) - 1)
        while index - unproven > 1:
            middle = (unproven + index) // 2
            nearer = self.proven(offsets[middle])
            unproven, index, proven = (middle, index, proven) if nearer is None else (unproven, middle, nearer)
        return proven

    def _runs(self, start: int, stop: int, most: int) -> list[tuple[int, int]]:
        """Ranges of units that can be proven and that follow one another in the log, of at most `most` units."""
        if self.queue is None or start >= stop:
            return []
        units = self.queue.units(start, stop)
        can_be = self._can_be_proven(units)
        offsets, sizes = units["commit_log_offset"].astype(np.int64), units["store_size"].astype(np.int64)
        follows = can_be[1:] & can_be[:-1]
        follows[follows] = (offsets[:-1] + np.where(can_be[:-1], sizes[:-1], 0))[follows] <= offsets[1:][follows]
        bounds = [0, *(np.flatnonzero(~follows) + 1).tolist(), units.size]
        return [
            (start + at, start + min(at + most, bounds[index + 1]))
            for index in range(len(bounds) - 1)
            if can_be[bounds[index]]
            for at in range(bounds[index], bounds[index + 1], most)
        ]

    def _trimmed(self, start: int, stop: int) -> tuple[ProvenUnit, ProvenUnit] | None:
        """The first and the last proven unit of a run, if some of the units at its ends are proven."""
        tries = range(start, min(start + _TRIES, stop))
        first = next(filter(None, map(self.proven, tries)), None)
        if first is None:
            return None
        tries = range(stop - 1, max(stop - 1 - _TRIES, first.queue_offset), -1)
        last = next(filter(None, map(self.proven, tries)), None)
        return first, first if last is None else last
