"""The records of one segment in order, chunk by chunk, also joined ones. Reading continues after damage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Bytes
from spark_mq.format.dledger import HEAD_SIZE
from spark_mq.format.kernels.big_endian import read_i32
from spark_mq.format.kernels.frames import CORRUPTION_REASONS, Frames, ScanStatus, find_frame, new_frames, scan_records
from spark_mq.format.kernels.kernel import FRAME_DTYPE
from spark_mq.format.record import BLANK_SIZE, MAX_RECORD_SIZE, MIN_RECORD_SIZE, decode_record
from spark_mq.store.log.commit_log import SegmentSource
from spark_mq.store.log.record_lookup import UNFINISHED, UNFINISHED_REASON, is_finished
from spark_mq.store.log.segment_files import CorruptRange

_SMALL = 256 << 10
"""Chunks with fewer bytes of records are joined."""
_INDICES = [name for name in FRAME_DTYPE.names or () if FRAME_DTYPE[name] == np.int64]
"""The fields of a frame that are indices in the buffer; the others are lengths and flags."""
CHUNK_SIZE = 4 << 20
"""Bytes read at a time: small enough for a processor's cache, and much larger than a usual record."""

_TAIL = 4 << 10
"""Bytes read after a stop, so that most records that cross the stop are whole after one read."""

_SEARCH_SIZE = 64 << 10
"""Bytes of the first read of a search for a record, which is usually near."""


def joined_chunks(parts: Iterable[RecordChunk | CorruptRange]) -> Iterator[RecordChunk | list[CorruptRange]]:
    """The same records in the same order, in fewer chunks, each of which is valid until the next part is read."""
    joined, damage = _JoinedChunk(), list[CorruptRange]()
    for part in parts:
        if isinstance(part, CorruptRange):
            damage.append(part)
            continue
        frames = np.asarray(part.frames)  # single records of a record array are slow
        start, (last, size) = frames.item(0)[0], frames.item(-1)[:2]
        is_small = last + size - start < _SMALL
        if not (is_small and joined.has_room(part.base + last + size)):
            if damage:
                yield damage
                damage = []
            yield from joined.taken()
        if is_small:
            joined.add(part, start, last + size)
        else:
            yield part
    if damage:
        yield damage
    yield from joined.taken()


class _JoinedChunk:
    """Copies of chunks, at the same distances from each other as in the log."""

    def __init__(self) -> None:
        self._buffer: Bytes = np.empty(0, np.uint8)
        self._frames: Frames = new_frames(0)
        self._base = 0
        self._counts: list[int] = []
        self._shifts: list[int] = []
        self._count = 0

    def has_room(self, stop: int) -> bool:
        """Whether a chunk that ends at a commit log offset can be added."""
        return not self._count or stop <= self._base + CHUNK_SIZE

    def add(self, part: RecordChunk, start: int, stop: int) -> None:
        """Add the chunk, whose records are from `start` to `stop` in its buffer."""
        if not self._buffer.size:
            self._buffer, self._frames = np.empty(CHUNK_SIZE, np.uint8), new_frames(CHUNK_SIZE // MIN_RECORD_SIZE + 1)
        if not self._count:
            self._base = part.base + start
        shift, count = part.base - self._base, part.frames.size
        self._buffer[start + shift : stop + shift] = part.buffer[start:stop]
        np.asarray(self._frames)[self._count : self._count + count] = part.frames
        self._counts.append(count)
        self._shifts.append(shift)
        self._count += count

    def taken(self) -> Iterator[RecordChunk]:
        """The chunk, unless nothing was added; what is added next begins another one."""
        if self._count:
            frames, shifts = self._frames[: self._count], np.repeat(self._shifts, self._counts)
            for name in _INDICES:
                np.asarray(frames)[name] += shifts
            self._counts, self._shifts, self._count = [], [], 0
            yield RecordChunk(self._buffer, frames, self._base)


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
        if count and is_finished(decode_record(stored := buffer.tobytes(), 0, base), lambda: stored):
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
        needed = max(min(int(read_i32(buffer, 0)), MAX_RECORD_SIZE), HEAD_SIZE)  # of a record, or of an entry's head
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
        """The position of the first record or blank at or after `position`; the segment's size if there is none."""
        segment = self._segment
        limit = min(segment.data_end, segment.size - BLANK_SIZE + 1)
        limit = limit if stop is None else min(stop, limit)
        scratch = new_frames(1)
        size = min(_SEARCH_SIZE, self._chunk_size)
        while position < limit:
            # The first bytes of a size can be zeros, too.
            position = max(position, self._source.next_data(position) - BLANK_SIZE)
            if position >= limit:
                break
            buffer = self._source.read(position, size)
            searched = min(buffer.size, limit - position)
            at, found = find_frame(buffer, 0, searched, segment.base + position, segment.size - position, scratch)
            if found in (ScanStatus.RECORD, ScanStatus.BLANK):
                return position + at
            position += at
            size = max(size, self._chunk_size, more_to_read(buffer.size, at))
        return segment.size


def more_to_read(size: int, reached: int) -> int:
    """The number of bytes that the next read needs, if `size` bytes were too few to decide about index `reached`.

    Twice as many bytes if less than half of them was processed, else 0. A body can contain any number of record heads
    whose sizes end just after the bytes that were read. With this rule all of them together cost a few reads, not one
    read each.
    """
    return 0 if 2 * reached >= size else min(2 * size, 2 * MAX_RECORD_SIZE)
