"""Reading a segment's records in order, chunk by chunk, over damage too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spark_mq.errors import CorruptLogError
from spark_mq.format.big_endian import Bytes, read_i32
from spark_mq.format.record import (
    AFTER_HOSTS,
    BORN_HOST_AT,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAX_RECORD_SIZE,
    MIN_RECORD_SIZE,
    SYS_FLAG_AT,
    TIMESTAMP_SIZE,
)
from spark_mq.format.scan import FRAME_DTYPE, REASONS, Found, Frames, find_frame, scan_records
from spark_mq.format.sys_flag import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG
from spark_mq.store.corrupt_range import CorruptRange
from spark_mq.store.last_record import UNFINISHED, UNFINISHED_REASON, is_finished
from spark_mq.store.segment_source import SegmentSource

CHUNK_SIZE = 4 << 20
"""Bytes read at a time: small enough for a processor's cache, large against a record."""

_TAIL = 4 << 10
"""Bytes read behind a stop, so that most records that lie astride it are whole at once."""

_MAX_HEAD = BORN_HOST_AT + 2 * HOST_V6_SIZE + TIMESTAMP_SIZE + AFTER_HOSTS.size
_MAX_REST = 2 * (2 + 0x7FFF)
"""Bytes behind a body: topic and properties, each with its length, a short."""

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
        self._frames: Frames = np.recarray(0, FRAME_DTYPE)

    def read(self, stop: int) -> Iterator[RecordChunk | CorruptRange]:
        """The records that start before `stop`, and corrupt ranges that do; none behind the segment's `data_end`."""
        segment = self._segment
        stop = min(stop, segment.data_end)
        needed = 0
        while self.position < stop:
            start = self.position
            buffer = self._source.read(start, max(needed, min(self._chunk_size, stop - start + _TAIL)))
            needed = 0
            frames = self._frame_space(buffer.size)
            base, end = segment.base + start, segment.size - start
            count, reached, found = scan_records(buffer, 0, stop - start, base, end, frames)
            self.position = start + reached
            if count and segment.is_last and self.position >= segment.data_end:
                yield from self._read_last(RecordChunk(buffer, base, frames[:count]))
                continue
            if count:
                yield RecordChunk(buffer, base, frames[:count])
            if found == Found.BLANK:
                self.position = segment.size
            elif found == Found.MORE:
                needed = 0 if reached else self._whole_record(buffer)
            elif found in REASONS:
                yield self._skip(Found(found))

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
        if count and is_finished(buffer, frames[:1]):
            self.position = last + size
            yield RecordChunk(buffer, base, frames[:1])
        else:
            self.position = segment.size
            length = segment.size - last
            yield CorruptRange(str(segment.location), base, length, UNFINISHED, UNFINISHED_REASON)

    def _frame_space(self, size: int) -> Frames:
        most = size // MIN_RECORD_SIZE + 1
        if self._frames.size < most:
            self._frames = np.recarray(most, FRAME_DTYPE)
        return self._frames

    def _whole_record(self, buffer: Bytes) -> int:
        """Bytes to read so that the record at the buffer's start is whole."""
        wanted = min(int(read_i32(buffer, 0)), MAX_RECORD_SIZE)
        if wanted <= buffer.size:
            raise CorruptLogError(f"{self._segment.location}: the record at {self.position} cannot be read whole")
        return wanted

    def _skip(self, found: Found) -> CorruptRange:
        """Move from a corrupt place to the next record, or to the segment's end."""
        corrupt = self.position
        self.position = self.find_next(corrupt + 1)
        length = self.position - corrupt
        segment = self._segment
        return CorruptRange(str(segment.location), segment.base + corrupt, length, found.name, REASONS[found])

    def find_next(self, position: int, stop: int | None = None) -> int:
        """The position of the first record or filler at or behind `position`.

        With `stop`, only positions before it are looked at. The segment's size if there is none.
        """
        segment = self._segment
        limit = segment.data_end if stop is None else min(stop, segment.data_end)
        scratch = np.recarray(1, FRAME_DTYPE)
        wanted = min(_SEARCH_SIZE, self._chunk_size)
        while position < limit:
            buffer = self._source.read(position, wanted)
            searched = min(buffer.size, limit - position)
            at, found = find_frame(buffer, 0, searched, segment.base + position, segment.size - position, scratch)
            if found in (Found.RECORD, Found.BLANK):
                return position + at
            wanted = self._chunk_size
            position += at
            if found == Found.MORE and (at == 0 or position + buffer.size - at >= segment.size):
                if self._is_record_without_its_body(position):
                    return position
                position += 1
        return segment.size

    def _is_record_without_its_body(self, position: int) -> bool:
        """Whether a whole record lies at `position`, of which only what is around the body is read.

        Bodies can hold any number of heads that claim megabytes: none of them makes this read so much.
        """
        segment = self._segment
        head = self._source.read(position, _MAX_HEAD).copy()
        if head.size < MIN_RECORD_SIZE:
            return False
        size, sys_flag = int(read_i32(head, 0)), int(read_i32(head, SYS_FLAG_AT))
        hosts = sum(HOST_V6_SIZE if sys_flag & bit else HOST_V4_SIZE for bit in (BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG))
        body_start = BORN_HOST_AT + hosts + TIMESTAMP_SIZE + AFTER_HOSTS.size
        if head.size < body_start:
            return False
        body_length = max(int(read_i32(head, body_start - 4)), 0)
        rest = size - body_start - body_length
        if not 0 < rest <= _MAX_REST or position + size > segment.size:
            return False
        tail = self._source.read(position + body_start + body_length, rest)
        without_body = np.concatenate((head[:body_start], tail))
        without_body[:4] = np.frombuffer((size - body_length).to_bytes(4, "big"), np.uint8)
        without_body[body_start - 4 : body_start] = 0
        frame = np.recarray(1, FRAME_DTYPE)
        place, found = find_frame(without_body, 0, 1, segment.base + position, without_body.size, frame)
        return bool(place == 0 and found == Found.RECORD)
