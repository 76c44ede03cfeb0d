"""The records of one segment in order, chunk by chunk. Reading continues after damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Bytes
from spark_mq.format.kernels.big_endian import read_i32
from spark_mq.format.kernels.frames import CORRUPTION_REASONS, Frames, ScanStatus, find_frame, new_frames, scan_records
from spark_mq.format.record import BLANK_SIZE, MAX_RECORD_SIZE, MIN_RECORD_SIZE, decode_record
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.last_record import UNFINISHED, UNFINISHED_REASON, is_finished
from spark_mq.store.log.segment_source import SegmentSource

CHUNK_SIZE = 4 << 20
"""Bytes read at a time: small enough for a processor's cache, and much larger than a usual record."""

_TAIL = 4 << 10
"""Bytes read after a stop, so that most records that cross the stop are whole after one read."""

_SEARCH_SIZE = 64 << 10
"""Bytes of the first read of a search for a record, which is usually near."""


@dataclass(frozen=True)
class Records:
    """Records in the order of the log. The positions in `frames` are indices in `buffer`."""

    buffer: Bytes
    frames: Frames


@dataclass(frozen=True)
class RecordChunk(Records):
    """Records of a range of the log. A chunk is valid until the next one is read, which uses the same memory.

    `base` is the commit log offset of `buffer[0]`.
    """

    base: int


class RecordReader:
    """Reads one segment from the start of a record on.

    `position` is the current position. After an iteration it is the start of the first record that was not read (at
    the stop or later), or the segment's size.
    """

    def __init__(self, source: SegmentSource, position: int, chunk_size: int = CHUNK_SIZE) -> None:
        self.position = position
        self._source = source
        self._segment = source.segment
        self._chunk_size = max(chunk_size, 2 * MIN_RECORD_SIZE)
        self._frames: Frames = new_frames(0)

    def read(self, stop: int) -> Iterator[RecordChunk | CorruptRange]:
        """The records and corrupt ranges that start before `stop`, and before the segment's `data_end`."""
        segment = self._segment
        stop = min(stop, segment.data_end)
        needed, size = 0, self._chunk_size
        while self.position < stop:
            start = self.position
            buffer = self._source.read(start, max(needed, min(size, stop - start + _TAIL)))
            needed, size = 0, min(2 * size, self._chunk_size)
            frames = self._frame_space(buffer.size)
            base, end = segment.base + start, segment.size - start
            count, reached, found = scan_records(buffer, 0, stop - start, base, end, frames)
            self.position = start + reached
            if count and segment.is_last and self.position >= segment.data_end:
                yield from self._read_last(RecordChunk(buffer, frames[:count], base))
                continue
            if count:
                yield RecordChunk(buffer, frames[:count], base)
            if found == ScanStatus.BLANK:
                self.position = segment.size
            elif found == ScanStatus.MORE:
                needed = 0 if reached else self._whole_record(buffer)
            elif found in CORRUPTION_REASONS:
                yield self._skip(ScanStatus(found))
                size = min(_SEARCH_SIZE, size)  # damaged ranges can be close to each other

    def _read_last(self, chunk: RecordChunk) -> Iterator[RecordChunk | CorruptRange]:
        """The chunk, whose last record reaches `data_end`. That record is read again, and counts only if whole."""
        segment = self._segment
        size = int(chunk.frames[-1].store_size)
        last = chunk.base - segment.base + int(chunk.frames[-1].position)
        if chunk.frames.size > 1:
            self.position = last
            yield RecordChunk(chunk.buffer, chunk.frames[:-1], chunk.base)
        buffer, frames, base = self._source.read(last, size), self._frame_space(size), segment.base + last
        count, _, _ = scan_records(buffer, 0, 1, base, segment.size - last, frames)
        if count and _is_finished(buffer, base):
            self.position = last + size
            yield RecordChunk(buffer, frames[:1], base)
        else:
            self.position = segment.size
            length = segment.size - last
            yield CorruptRange(str(segment.location), base, length, UNFINISHED, UNFINISHED_REASON)

    def _frame_space(self, size: int) -> Frames:
        max_records = size // MIN_RECORD_SIZE + 1
        if self._frames.size < max_records:
            self._frames = new_frames(max_records)
        return self._frames

    def _whole_record(self, buffer: Bytes) -> int:
        """Bytes to read so that the record at the buffer's start is whole."""
        needed = min(int(read_i32(buffer, 0)), MAX_RECORD_SIZE)
        if needed <= buffer.size:
            raise CorruptLogError(f"{self._segment.location}: the record at {self.position} cannot be read whole")
        return needed

    def _skip(self, found: ScanStatus) -> CorruptRange:
        """Move from damage to the next record or blank, or to the segment's end."""
        corrupt = self.position
        self.position = self.find_next(corrupt + 1)
        length = self.position - corrupt
        segment = self._segment
        return CorruptRange(
            str(segment.location), segment.base + corrupt, length, found.name, CORRUPTION_REASONS[found]
        )

    def find_next(self, position: int, stop: int | None = None) -> int:
        """The position of the first record or blank at or after `position`; the segment's size if there is none.

        With `stop`, only positions before it are searched.
        """
        segment = self._segment
        limit = min(segment.data_end, segment.size - BLANK_SIZE + 1)
        limit = limit if stop is None else min(stop, limit)
        scratch = new_frames(1)
        size = min(_SEARCH_SIZE, self._chunk_size)
        while position < limit:
            buffer = self._source.read(position, size)
            searched = min(buffer.size, limit - position)
            at, found = find_frame(buffer, 0, searched, segment.base + position, segment.size - position, scratch)
            if found in (ScanStatus.RECORD, ScanStatus.BLANK):
                return position + at
            position += at
            size = max(size, self._chunk_size, more_to_read(buffer.size, at))
        return segment.size


def _is_finished(buffer: Bytes, commit_log_offset: int) -> bool:
    """Whether the record that the buffer contains is written to its end."""
    stored = buffer.tobytes()
    return is_finished(decode_record(stored, 0, commit_log_offset), lambda: stored)


def more_to_read(size: int, reached: int) -> int:
    """The number of bytes that the next read needs, if `size` bytes were too few to decide about index `reached`.

    Twice as many bytes if less than half of them was processed, else 0. A body can contain any number of record heads
    whose sizes end just after the bytes that were read. With this rule all of them together cost a few reads, not one
    read each.
    """
    return 0 if 2 * reached >= size else min(2 * size, 2 * MAX_RECORD_SIZE)
