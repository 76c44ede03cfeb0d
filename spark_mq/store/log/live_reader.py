"""The records of the last segment, up to the live end.

Zeros, a record that is being written, or a stale tail follow the live end. A recovery that truncates the log does not
clear the bytes (`MappedFileQueue.truncateDirtyFiles`@5.3.3). So old records, whole and with the right offset, can
follow the live ones, even without a gap. Their age shows that they are stale:

- Records before `LastRun.confirmed` are live: so far a broker read the log when it started, or a job of ours wrote it.
- After a clean stop, all records up to the last one that was stored at `logicsMsgTimestamp` of the checkpoint are live:
  it is the last one that the broker put into a consume queue. Older records that follow it are stale.
- Another record that follows the record before it without a gap is live, unless its store time is earlier, and its
  queue offset contradicts the log: it is not the next of its queue, and not 0, as in a topic that was created again.
  (An earlier time alone is a clock that was set back.) If its queue has no known record, the first record of a known
  queue in the next 64 KiB decides. If nothing does, the records count as live, as for the next start of a broker.
- A record after bytes that are not a record is live only if its store time is not earlier than that of the records
  before, and its queue offset is above the earlier one of its queue, or 0. Otherwise the log ended at those bytes.

Prepared and rolled back messages have no queue offset (`CommitLog.doAppend`@4.9.0), and an inner batch takes several
queue offsets at once. For these messages only the time decides.

While a broker overwrites a stale tail, the reader can reach a position before the broker does, and read a live record
after it a moment later. All bytes before a live record have been written, so that position is read again.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.dispatch import has_unit
from spark_mq.format.kernels.frames import Frames, skip_records
from spark_mq.format.kernels.queue_table import QueueTable
from spark_mq.format.record import HEAD_SIZE, QUEUE_OFFSET_AT, read_store_timestamp
from spark_mq.store.config.checkpoint import LastRun
from spark_mq.store.log.commit_log import Segment, SegmentSource
from spark_mq.store.log.record_reader import RecordChunk, RecordReader, joined_chunks
from spark_mq.store.log.segment_files import CorruptRange

_LOOK_AHEAD = 64 << 10
_SKIPPED_SIZE = 512 << 10
"""Bytes that are read at a time to skip records: they stay in the cache of one core."""
NO_TIME = -(1 << 63)
"""A time earlier than that of every record, for a reader at the start of a segment."""

_UNSEEN = -1


class LiveReader:
    """Reads the last segment from its start, and stops at its live end.

    `position` is the current position, and the live end once `ended` is True. `newest` is the store time, in
    milliseconds, of the record before `position`. A reader that is created with both values of an earlier reader
    continues there. `uncertain_from` is the position of the first record that counts as live only because nothing
    proves that it is stale; None if the reader found no such record.
    """

    def __init__(self, source: SegmentSource, position: int = 0, newest: int = NO_TIME) -> None:
        self.ended = False
        self.position = position
        self.newest = newest
        self.uncertain_from: int | None = None
        self._source = source
        self._segment = source.segment
        self._reader = RecordReader(source, position)
        self._queue_offsets = _QueueOffsets(source.segment)

    def skip(self, start: int) -> None:
        """Move to the first record at or after `start`, or to the live end."""
        while not self.ended and self.position < start and self._skip_sound(start):
            pass
        for _ in self.read(start):
            pass

    def _skip_sound(self, start: int) -> bool:
        """Skip records about which nothing has to be decided; returns whether there were some.

        A reader of a later split has to know only that there was no anomaly before it, so this does what `read` does
        with such records, in half the time.
        """
        position, segment = self.position, self._segment
        stop = min(start, segment.data_end) - position
        buffer = self._source.read(position, max(min(_SKIPPED_SIZE, stop), 0))
        reached, newest = skip_records(
            buffer, stop, segment.data_end - position, segment.base + position, segment.size - position, self.newest
        )
        self.position = self._reader.position = position + reached
        self.newest = newest
        return reached > 0

    def read(self, stop: int) -> Iterator[RecordChunk | CorruptRange]:
        """The live records that start before `stop`, from `position` on, and corrupt ranges between them."""
        is_read = self.ended
        while not is_read:
            is_read = yield from self._read_on(stop)

    def _read_on(self, stop: int) -> Generator[RecordChunk | CorruptRange, None, bool]:
        """What `read` gives; False if a record is now where damage was: then this must be read again."""
        damage: list[CorruptRange] = []
        for part in joined_chunks(self._reader.read(stop)):
            if isinstance(part, list):
                damage += part
                continue
            count, uncertain_from = self._count_live(part)
            live = part.frames[:count]
            end = part.base + int(live[-1].position) + int(live[-1].store_size) if count else 0
            inside = bisect_left(damage, end, key=attrgetter("commit_log_offset"))
            if any(map(self._is_record_now, damage[:inside])):
                self._reader.position = self.position
                self._queue_offsets = _QueueOffsets(self._segment)
                return False
            self.ended = count < part.frames.size
            if count:
                self._queue_offsets.add(part, self.position, end - self._segment.base)
                self.position = end - self._segment.base
                self.newest = int(int64s_at(part.buffer, live.store_timestamp_at[-1:])[0])
                self.uncertain_from = uncertain_from if self.uncertain_from is None else self.uncertain_from
                yield from _in_order(RecordChunk(part.buffer, live, part.base), damage[:inside])
                del damage[:inside]
            if self.ended:
                return True
        if damage:
            # After a blank or nothing, the log can just as well have ended at the damage.
            record = self._record_at(self._reader.position)
            self.ended = record is None or not self._count_live(record)[0]
            if self.ended:
                return True
            if self._is_record_now(damage[0]):
                self._reader.position = self.position
                return False
            yield from damage
        self.position = self._reader.position
        return True

    @cached_property
    def _last_run(self) -> LastRun:
        return LastRun.of(self._segment.location.parent.parent)

    @cached_property
    def _last_dispatched_end(self) -> int:
        """The end of the last record that was stored at the time of the last dispatched one; 0 if none was.

        Records before `position` may be left out: it is the first position about which something has to be decided.
        """
        time, end = self._last_run.dispatched, 0
        if time > 0:
            with SegmentSource(self._segment) as source:
                for part in joined_chunks(RecordReader(source, self.position).read(self._segment.data_end)):
                    if not isinstance(part, list):
                        found = np.flatnonzero(int64s_at(part.buffer, part.frames.store_timestamp_at) == time)
                        if found.size:
                            last = part.frames[found[-1]]
                            end = part.base - self._segment.base + int(last.position) + int(last.store_size)
        return end

    def _count_live(self, chunk: RecordChunk) -> tuple[int, int | None]:
        """How many records of the chunk come before the first stale one; of these the first that is uncertain."""
        times = int64s_at(chunk.buffer, chunk.frames.store_timestamp_at)
        before = np.concatenate((np.array([self.newest], np.int64), times[:-1]))
        positions = chunk.base - self._segment.base + chunk.frames.position
        is_after_damage = self._follow_damage(positions, chunk.frames.store_size)
        questions = np.flatnonzero((times < before) | is_after_damage)
        uncertain_from: int | None = None
        if questions.size:
            questions = questions[positions[questions] >= self._last_run.confirmed - self._segment.base]
        if questions.size and positions[questions[-1]] >= self._last_dispatched_end:
            questions = questions[positions[questions] >= self._last_dispatched_end]
            last = self._queue_offsets.before(chunk, int(positions[0]))
            queued, queue_offset = has_unit(chunk.frames), _queue_offset(chunk.buffer, chunk.frames)
            is_next = queued & (last != _UNSEEN) & (queue_offset == last + 1)
            is_later = (times >= before) & (~queued | (queue_offset == 0) | (queue_offset > last))
            for index in questions[~(is_after_damage & is_later)[questions]].tolist():
                is_stale = is_after_damage[index] or 0 < self._last_run.dispatched == before[index]
                if is_stale or not (is_next[index] or self._is_live_from(int(positions[index]))):
                    return int(index), uncertain_from
                if uncertain_from is None:
                    uncertain_from = int(positions[index])
        return int(chunk.frames.size), uncertain_from

    def _follow_damage(self, positions: Int64s, sizes: Int32s) -> Flags:
        """Which records, at these positions of the segment, do not follow the record before."""
        if positions[-1] + sizes[-1] - self.position == sizes.sum(dtype=np.int64):
            return np.zeros(positions.size, np.bool_)
        found: Flags = np.diff(positions + sizes, prepend=self.position) != sizes
        return found

    def _is_live_from(self, position: int) -> bool:
        """Whether nothing proves that a stale tail starts with the record at `position`, older than the one before."""
        self._queue_offsets.advance(position)
        with SegmentSource(self._segment) as source:
            for part in RecordReader(source, position, chunk_size=_LOOK_AHEAD).read(position + _LOOK_AHEAD):
                if isinstance(part, CorruptRange):
                    return True
                frames = part.frames[has_unit(part.frames)]
                last, queue_offset = (
                    self._queue_offsets.last_of(part.buffer, frames),
                    _queue_offset(part.buffer, frames),
                )
                decides = np.flatnonzero((last != _UNSEEN) & (queue_offset != 0))
                if decides.size:
                    return int(queue_offset[decides[0]]) == int(last[decides[0]]) + 1
        return True

    def _is_record_now(self, damage: CorruptRange) -> bool:
        """Whether a record is now where damage was: only a broker writes it, into a local file."""
        position, descriptor = damage.commit_log_offset - self._segment.base, self._source.descriptor
        if descriptor is None:
            return False
        head = os.pread(descriptor, HEAD_SIZE, position)
        return (
            read_store_timestamp(head, damage.commit_log_offset) is not None and self._record_at(position) is not None
        )

    def _record_at(self, position: int) -> RecordChunk | None:
        """The record at `position`, from a read of its own; None if there is none."""
        with SegmentSource(self._segment) as source:
            part = next(RecordReader(source, position, chunk_size=_LOOK_AHEAD).read(position + 1), None)
        return part if isinstance(part, RecordChunk) else None


def _in_order(chunk: RecordChunk, damage: Sequence[CorruptRange]) -> Iterator[RecordChunk | CorruptRange]:
    """The records of a chunk, and the damage before and between them."""
    offsets = [part.commit_log_offset - chunk.base for part in damage]
    start = 0
    for part, stop in zip(damage, np.searchsorted(chunk.frames.position, offsets).tolist(), strict=True):
        if start < stop:
            yield replace(chunk, frames=chunk.frames[start:stop])
            start = stop
        yield part
    yield replace(chunk, frames=chunk.frames[start:])


class _QueueOffsets:
    """The queue offset of the last record of each queue, among the records before some position of the segment.

    These offsets are needed only after an anomaly, so this class reads the records a second time. Positions only grow.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._position = 0
        self._is_needed = False
        self._queues = QueueTable()
        self._last: Int64s = np.empty(0, np.int64)

    def advance(self, position: int) -> None:
        """Read the records before `position`."""
        if position <= self._position:
            return
        with SegmentSource(self._segment) as source:
            for part in joined_chunks(RecordReader(source, self._position).read(position)):
                if not isinstance(part, list):
                    self._add(part)
        self._position = position

    def add(self, chunk: RecordChunk, start: int, end: int) -> None:
        """Take the records of a chunk, which were read already, from `start` to `end`."""
        if self._is_needed and start <= self._position:
            self._add(chunk)
            self._position = end

    def _add(self, chunk: RecordChunk) -> None:
        frames = chunk.frames[has_unit(chunk.frames)]
        numbers = self._numbers(chunk.buffer, frames)
        self._last[numbers] = _queue_offset(chunk.buffer, frames)  # the last value of each number stays

    def before(self, chunk: RecordChunk, position: int) -> Int64s:
        """The queue offset before each record of the chunk at `position` in its queue; -1 for none."""
        self._is_needed = True
        self.advance(position)
        found = np.full(chunk.frames.size, _UNSEEN, np.int64)
        queued = np.flatnonzero(has_unit(chunk.frames))
        frames = chunk.frames[queued]
        numbers, queue_offsets = self._numbers(chunk.buffer, frames), _queue_offset(chunk.buffer, frames)
        order = np.argsort(numbers, kind="stable")
        of_queue = numbers[order]
        is_first = np.diff(of_queue, prepend=-1) != 0
        found[queued[order]] = np.where(is_first, self._last[of_queue], np.roll(queue_offsets[order], 1))
        return found

    def last_of(self, buffer: Bytes, frames: Frames) -> Int64s:
        """The last queue offset of each record's queue; -1 for a queue without a record so far."""
        numbers = self._numbers(buffer, frames)
        last: Int64s = self._last[numbers]
        return last

    def _numbers(self, buffer: Bytes, frames: Frames) -> Int32s:
        numbers = self._queues.numbers(buffer, frames)
        unseen = np.full(self._queues.count - self._last.size, _UNSEEN, np.int64)
        self._last = np.concatenate((self._last, unseen))
        return numbers


def _queue_offset(buffer: Bytes, frames: Frames) -> Int64s:
    return int64s_at(buffer, frames.position + QUEUE_OFFSET_AT)
