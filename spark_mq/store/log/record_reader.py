"""Reading a segment's records in order, chunk by chunk, over damage too."""

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
"""Bytes read at a time: small enough for a processor's cache, large against a record."""

_TAIL = 4 << 10
"""Bytes read behind a stop, so that most records that lie astride it are whole at once."""

_SEARCH_SIZE = 64 << 10
"""Bytes read first where a record is looked for; it is near, unless there is damage."""


@dataclass(frozen=True)
class RecordChunk:
    """Records in the order of the log. Valid until the next one is asked for: the memory is used again."""

    buffer: Bytes
    base: int
    frames: Frames


class RecordReader:
    """Hops over one segment from a record's start on.

    `position` is where the hop stands; after iteration it is the start of the first record that was not read
    (at or behind the stop), or the segment's size.
    """

    def __init__(self, source: SegmentSource, position: int, chunk_size: int = CHUNK_SIZE) -> None:
        self.position = position
        self._source = source
        self._segment = source.segment
        self._chunk_size = max(chunk_size, 2 * MIN_RECORD_SIZE)
        self._frames: Frames = new_frames(0)

    def read(self, stop: int) -> Iterator[RecordChunk | CorruptRange]:
        """The records that start before `stop`, and corrupt ranges that do; none behind the segment's `data_end`."""
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
                yield from self._read_last(RecordChunk(buffer, base, frames[:count]))
                continue
            if count:
                yield RecordChunk(buffer, base, frames[:count])
            if found == ScanStatus.BLANK:
                self.position = segment.size
            elif found == ScanStatus.MORE:
                needed = 0 if reached else self._whole_record(buffer)
            elif found in CORRUPTION_REASONS:
                yield self._skip(ScanStatus(found))
                size = min(_SEARCH_SIZE, size)  # damaged places can lie close to each other

    def _read_last(self, chunk: RecordChunk) -> Iterator[RecordChunk | CorruptRange]:
        """The chunk, whose last record reaches `data_end`: that one from a second look, and only if it is whole."""
        segment = self._segment
        size = int(chunk.frames[-1].store_size)
        last = chunk.base - segment.base + int(chunk.frames[-1].position)
        if chunk.frames.size > 1:
            self.position = last
            yield RecordChunk(chunk.buffer, chunk.base, chunk.frames[:-1])
        buffer, frames, base = self._source.read(last, size), self._frame_space(size), segment.base + last
        count, _, _ = scan_records(buffer, 0, 1, base, segment.size - last, frames)
        if count and _is_finished(buffer, base):
            self.position = last + size
            yield RecordChunk(buffer, base, frames[:1])
        else:
            self.position = segment.size
            length = segment.size - last
            yield CorruptRange(str(segment.location), base, length, UNFINISHED, UNFINISHED_REASON)

    def _frame_space(self, size: int) -> Frames:
        most = size // MIN_RECORD_SIZE + 1
        if self._frames.size < most:
            self._frames = new_frames(most)
        return self._frames

    def _whole_record(self, buffer: Bytes) -> int:
        """Bytes to read so that the record at the buffer's start is whole."""
        wanted = min(int(read_i32(buffer, 0)), MAX_RECORD_SIZE)
        if wanted <= buffer.size:
            raise CorruptLogError(f"{self._segment.location}: the record at {self.position} cannot be read whole")
        return wanted

    def _skip(self, found: ScanStatus) -> CorruptRange:
        """Move from a corrupt place to the next record, or to the segment's end."""
        corrupt = self.position
        self.position = self.find_next(corrupt + 1)
        length = self.position - corrupt
        segment = self._segment
        return CorruptRange(
            str(segment.location), segment.base + corrupt, length, found.name, CORRUPTION_REASONS[found]
        )

    def find_next(self, position: int, stop: int | None = None) -> int:
        """The position of the first record or blank at or behind `position`.

        With `stop`, only positions before it are looked at. The segment's size if there is none.
        """
        segment = self._segment
        limit = min(segment.data_end, segment.size - BLANK_SIZE + 1)
        limit = limit if stop is None else min(stop, limit)
        scratch = new_frames(1)
        wanted = min(_SEARCH_SIZE, self._chunk_size)
        while position < limit:
            buffer = self._source.read(position, wanted)
            searched = min(buffer.size, limit - position)
            at, found = find_frame(buffer, 0, searched, segment.base + position, segment.size - position, scratch)
            if found in (ScanStatus.RECORD, ScanStatus.BLANK):
                return position + at
            position += at
            wanted = max(wanted, self._chunk_size, more_to_read(buffer.size, at))
        return segment.size


def _is_finished(buffer: Bytes, commit_log_offset: int) -> bool:
    """Whether the record that the buffer contains is written to its end."""
    stored = buffer.tobytes()
    return is_finished(decode_record(stored, 0, commit_log_offset), lambda: stored)


def more_to_read(size: int, reached: int) -> int:
    """How much to read at least, where `size` bytes ended before it could be said what lies at index `reached`.

    The double where less than half of them was done, else 0. Bodies can hold any number of heads that claim to reach
    just beyond what was read: so all of them together make for a few reads, not for one each.
    """
    return 0 if 2 * reached >= size else min(2 * size, 2 * MAX_RECORD_SIZE)
