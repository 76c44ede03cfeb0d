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

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.dispatch import QueueTable, has_unit
from spark_mq.format.kernels.frames import Frames, skip_records
from spark_mq.format.record import QUEUE_OFFSET_AT
from spark_mq.store.config.last_run import LastRun
from spark_mq.store.log.commit_log import Segment
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.segment_source import SegmentSource

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
    continues there. `doubt` is the position of the first record that counts as live only because nothing proves that it
    is stale; None if the reader found no such record.
    """

    def __init__(self, source: SegmentSource, position: int = 0, newest: int = NO_TIME) -> None:
        self.ended = False
        self.position = position
        self.newest = newest
        self.doubt: int | None = None
        self._source = source
        self._segment = source.segment
        self._reader = RecordReader(source, position)
        self._queue_offsets = _QueueOffsets(source.segment)

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def go_on_at(self, position: int, newest: int) -> None:
        """Move to a later position, of which an earlier reader of the same files had both values."""
        self.position = self._reader.position = position
        self.newest = newest

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
        if self.ended:
            return
        for part in self._reader.read(stop):
            if isinstance(part, CorruptRange):
                corrupt = part.commit_log_offset - self._segment.base
                if not self._is_live_after(corrupt):
                    self.ended = True
                    return
                if self._record_at(corrupt) is not None:
                    self._reader.position = corrupt
                    continue
                self.position = self._reader.position
                yield part
            else:
                live = part.frames[: self._count_live(part)]
                self.position += int(live.store_size.sum(dtype=np.int64))
                self.ended = live.size < part.frames.size
                if live.size:
                    yield RecordChunk(part.buffer, live, part.base)
                if self.ended:
                    return
        self.position = self._reader.position

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
                for part in RecordReader(source, self.position).read(self._segment.data_end):
                    if isinstance(part, RecordChunk):
                        found = np.flatnonzero(int64s_at(part.buffer, part.frames.store_timestamp_at) == time)
                        if found.size:
                            last = part.frames[found[-1]]
                            end = part.base - self._segment.base + int(last.position) + int(last.store_size)
        return end

    def _is_settled(self, position: int) -> bool:
        """Whether a record at `position` is live whatever its time and queue offset are."""
        confirmed = self._last_run.confirmed - self._segment.base
        return position < confirmed or position < self._last_dispatched_end

    def _count_live(self, chunk: RecordChunk) -> int:
        """How many records of the chunk come before the first stale one."""
        times = int64s_at(chunk.buffer, chunk.frames.store_timestamp_at)
        before = np.concatenate((np.array([self.newest], np.int64), times[:-1]))
        steps = np.flatnonzero(times < before)
        if steps.size:
            first = chunk.base - self._segment.base
            positions = first + chunk.frames.position
            steps = steps[positions[steps] >= self._last_run.confirmed - self._segment.base]
        if steps.size and not self._is_settled(int(positions[steps[-1]])):
            steps = steps[positions[steps] >= self._last_dispatched_end]
            follows = self._queue_offsets.follows(chunk, first)
            for index in steps.tolist():
                was_last = 0 < self._last_run.dispatched == before[index]
                if was_last or not (follows[index] or self._is_live_from(int(positions[index]))):
                    self.newest = int(before[index])
                    return int(index)
                if self.doubt is None:
                    self.doubt = int(positions[index])
        self.newest = int(times[-1])
        return int(chunk.frames.size)

    def _is_live_from(self, position: int) -> bool:
        """Whether nothing proves that a stale tail starts with the record at `position`, which is older than the last.

        The first record that continues a known queue, or contradicts it, decides.
        """
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

    def _is_live_after(self, corrupt: int) -> bool:
        """Whether the record at the reader's position, after the corrupt bytes at `corrupt`, is live."""
        # After a blank or nothing, the log can just as well have ended at the corrupt bytes.
        record = self._record_at(self._reader.position)
        if record is None:
            return False
        if self._is_settled(self._reader.position):
            return True
        return self._follows(record.buffer, record.frames, corrupt)

    def _record_at(self, position: int) -> RecordChunk | None:
        """The record at `position`, from a read of its own; None if there is none."""
        with SegmentSource(self._segment) as source:
            part = next(RecordReader(source, position, chunk_size=_LOOK_AHEAD).read(position + 1), None)
        return part if isinstance(part, RecordChunk) else None

    def _follows(self, buffer: Bytes, frame: Frames, corrupt: int) -> bool:
        if int64s_at(buffer, frame.store_timestamp_at)[0] < self.newest:
            return False
        if not has_unit(frame)[0]:
            return True
        self._queue_offsets.advance(corrupt)
        queue_offset = _queue_offset(buffer, frame)[0]
        return bool(queue_offset == 0 or queue_offset > self._queue_offsets.last_of(buffer, frame)[0])


class _QueueOffsets:
    """The queue offset of the last record of each queue, among the records before some position of the segment.

    These offsets are needed only after an anomaly, so this class reads the records a second time. Positions only grow.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._position = 0
        self._queues = QueueTable()
        self._last: Int64s = np.empty(0, np.int64)

    def advance(self, position: int) -> None:
        """Read the records before `position`."""
        with SegmentSource(self._segment) as source:
            reader = RecordReader(source, self._position)
            for part in reader.read(position):
                if isinstance(part, RecordChunk):
                    frames = part.frames[has_unit(part.frames)]
                    numbers = self._numbers(part.buffer, frames)
                    self._last[numbers] = _queue_offset(part.buffer, frames)  # the last value of each number stays
            self._position = reader.position

    def follows(self, chunk: RecordChunk, position: int) -> npt.NDArray[np.bool_]:
        """Which records of the chunk at `position` continue their queue, as the record before them in it says."""
        self.advance(position)
        found = np.zeros(chunk.frames.size, np.bool_)
        with_unit = np.flatnonzero(has_unit(chunk.frames))
        frames = chunk.frames[with_unit]
        numbers, queue_offsets = self._numbers(chunk.buffer, frames), _queue_offset(chunk.buffer, frames)
        order = np.argsort(numbers, kind="stable")
        of_queue = numbers[order]
        before = np.concatenate((np.zeros(1, np.int64), queue_offsets[order][:-1]))
        is_first = np.concatenate((np.ones(1, np.bool_), of_queue[1:] != of_queue[:-1]))[: order.size]
        before = np.where(is_first, self._last[of_queue], before[: order.size])
        found[with_unit[order]] = (before != _UNSEEN) & (queue_offsets[order] == before + 1)
        return found

    def last_of(self, buffer: Bytes, frames: Frames) -> Int64s:
        """The last queue offset of each record's queue; -1 for a queue without a record so far."""
        numbers = self._numbers(buffer, frames)
        last: Int64s = self._last[numbers]
        return last

    def _numbers(self, buffer: Bytes, frames: Frames) -> npt.NDArray[np.int32]:
        numbers = self._queues.numbers(buffer, frames)
        unseen = np.full(self._queues.count - self._last.size, _UNSEEN, np.int64)
        self._last = np.concatenate((self._last, unseen))
        return numbers


def _queue_offset(buffer: Bytes, frames: Frames) -> Int64s:
    return int64s_at(buffer, frames.position + QUEUE_OFFSET_AT)
