"""The messages of a topic one after the other, in the order of the log or backwards, for commands.

The log is read in parts of some segments, and a caller that stops early reads only the first ones. Where the units of
the topic's queues lead to few records, and the units of all queues account for the part (`store.queue.unit_cover`),
only these records are read. Everything else is scanned. A unit that leads to something else is not believed: the part
of the log around it is scanned, too. So the messages are those of a scan of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from spark_mq.errors import CorruptLogError
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.record import Record
from spark_mq.source.predicate import IntegerSet, Predicate
from spark_mq.source.time_window import (
    MERGE_DISTANCE,
    queues_of,
    time_window,
    unit_count,
    units_into,
    units_of_part,
    with_covers,
)
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.scan import InQueue, scan, scan_backwards
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.message_selection import select_messages, tail_starts
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.queue.unit_cover import (
    CLEARLY_LESS,
    FoundUnits,
    LogCover,
    ReadCost,
    cost_of,
    log_cover,
    units_within,
)

Part = Record | CorruptRange

_FIRST_BYTES = 4 << 20
"""Bytes at the start of the log that are read in plain Python: a caller that stops there needs no unit."""
_RECORD = 32 << 10
"""Bytes that a scan reads in the time in which plain Python reads one record at another place."""
_MOST_UNITS = 4 << 20
"""Units of all queues that are compared with the log at once: 80 MB, less than a second."""


def topic_messages(
    store: MessageStore, topic: str, begin: int | None = None, end: int | None = None, newest_first: bool = False
) -> Iterator[Part]:
    """The messages of a topic, and the damaged ranges of what is scanned.

    All messages stored from `begin` to `end` are in the result; others can be, too.
    """
    if not store.queue_names or topic.startswith(LIGHT_PREFIX) or "\ufffd" in topic:
        return select_messages(store, topic, None, begin, end, newest_first)
    return _TopicMessages(store, topic, begin, end).parts(newest_first)


@dataclass(frozen=True)
class _TopicMessages:
    store: MessageStore
    topic: str
    begin: int | None
    end: int | None

    def parts(self, newest_first: bool) -> Iterator[Part]:
        covers = with_covers(self.store, queues_of(self.store))
        own = [queue for queue, _ in covers if queue.topic == self.topic]
        times = Predicate(store_timestamp=IntegerSet(self.begin, self.end))
        log = time_window(times, self.store, own or [covers[0][0]])
        if newest_first:
            starts = [] if self.end is not None else [at for at in tail_starts(self.store, self.topic) if at in log]
            if starts:
                yield from self._scan(LogRange(starts[-1], log.stop), True, starts)
                log = LogRange(log.start, starts[-1])
        else:
            reached = log.start
            first = LogRange(log.start, min(log.start + _FIRST_BYTES, log.stop))
            with suppress(CorruptLogError):  # the reader of splits handles damage
                for record in self.store.records.iterate(first):
                    reached = record.commit_log_offset + record.size
                    if self._filter.matches(record):
                        yield record
            log = LogRange(reached, log.stop)
        if cost_of(self.store.location).of(0, queues=len(covers)) > CLEARLY_LESS * log.size:
            yield from self._scan(log, newest_first)
            return
        ranges = self._ranges(log, [queue for queue, _ in covers])
        for part in reversed(ranges) if newest_first else ranges:
            yield from self._of_range(part, own, covers, newest_first)

    @property
    def _filter(self) -> InQueue:
        return InQueue(self.topic)

    def _ranges(self, log: LogRange, everything: Sequence[ConsumeQueue]) -> list[LogRange]:
        """Parts of a log in its order: each has segments with about `_MOST_UNITS` units in all, or one segment."""
        most = _MOST_UNITS * max(self.store.live_log.size, 1) // max(unit_count(everything), 1)
        bounds = [log.start]
        for segment in self.store.records.segments:
            if log.start < segment.base < log.stop and segment.base + segment.size - bounds[-1] > most:
                bounds.append(segment.base)
        return [LogRange(start, stop) for start, stop in pairwise([*bounds, log.stop]) if start < stop]

    def _of_range(
        self,
        part: LogRange,
        own: Sequence[ConsumeQueue],
        covers: Sequence[tuple[ConsumeQueue, QueueCover]],
        newest_first: bool,
    ) -> Iterator[Part]:
        price = cost_of(self.store.location)
        if self._cost(part, own, [queue for queue, _ in covers], price) > CLEARLY_LESS * part.size:
            return self._scan(part, newest_first)
        cover = log_cover(covers, self.store.records, part, MERGE_DISTANCE)
        units = units_within(with_covers(self.store, own), part, cover.covered)
        if cover.scanned + units.count * _RECORD > CLEARLY_LESS * part.size:
            return self._scan(part, newest_first)
        return self._by_units(cover, units, own, newest_first)

    def _cost(
        self, part: LogRange, own: Sequence[ConsumeQueue], everything: Sequence[ConsumeQueue], price: ReadCost
    ) -> float:
        """What it costs to read the units of all queues, and the records of the topic, in bytes of a scan."""
        unit_bytes = units_of_part(self.store, everything, part) * UNIT_SIZE
        of_all = price.of(0, unit_bytes=unit_bytes, queues=len(everything))
        if of_all > part.size:
            return of_all
        return of_all + sum(map(len, units_into(own, part))) * max(price.jump, _RECORD)

    def _by_units(
        self, cover: LogCover, units: FoundUnits, own: Sequence[ConsumeQueue], newest_first: bool
    ) -> Iterator[Part]:
        pieces = sorted(
            [*((piece, True) for piece in cover.covered), *((piece, False) for piece in cover.uncovered)],
            key=lambda piece: piece[0].start,
        )
        for piece, is_covered in reversed(pieces) if newest_first else pieces:
            if is_covered:
                yield from self._records(piece, units.in_ranges([piece]), own, newest_first)
            else:
                yield from self._scan(piece, newest_first)

    def _records(
        self, piece: LogRange, units: FoundUnits, own: Sequence[ConsumeQueue], newest_first: bool
    ) -> Iterator[Part]:
        """The messages to which units lead. Where one leads to something else, the rest of the piece is scanned."""
        reached = piece.stop if newest_first else piece.start
        for index in range(units.count - 1, -1, -1) if newest_first else range(units.count):
            record = self._own_record(units, own, index)
            if record is None:
                rest = LogRange(piece.start, reached) if newest_first else LogRange(reached, piece.stop)
                yield from self._scan(rest, newest_first)
                return
            yield record
            offset = record.commit_log_offset
            reached = offset if newest_first else offset + record.size

    def _own_record(self, units: FoundUnits, own: Sequence[ConsumeQueue], index: int) -> Record | None:
        """The record to which a unit leads; None if it is not the message at the unit's place in its queue."""
        size, queue = int(units.sizes[index]), own[units.queues[index]]
        try:
            record = self.store.records.record(int(units.offsets[index]), size)
        except CorruptLogError:
            return None
        place = record.queue_id, record.queue_offset
        is_own = place == (queue.queue_id, int(units.queue_offsets[index])) and record.size == size
        return record if is_own and self._filter.matches(record) else None

    def _scan(self, part: LogRange, newest_first: bool, starts: Sequence[int] = ()) -> Iterator[Part]:
        store = self.store
        if newest_first:
            return scan_backwards(store.records, part, self._filter, self.begin, self.end, starts)
        return scan(store.records, part, self._filter, self.begin, self.end)
