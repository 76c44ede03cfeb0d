"""Boundaries of the commit log, at which a range can start or stop: by offset, by number of messages, by time.

A *boundary* is an offset at which a record, a blank or a corrupt range starts, or the end of the range. `end` must be
the live end or a boundary returned earlier, so all records before it are live. Cost: a few MiB around the offset; the
whole range when counting messages; one or two segments when searching by time.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import SegmentSource
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.split_reader import find_start
from spark_mq.store.log.splits import Split, list_offset_range, within_time

_LOOKS_BACK = (64 << 10, 4 << 20, 128 << 20)
"""Bytes before an offset in which the last record is searched for, one size after the other."""


def next_boundary(store: Location, offset: int, end: int) -> int:
    """The first boundary at or after `offset`, at most `end`."""
    if offset >= end:
        return end
    for segment in list_offset_range(store, offset, end).segments:
        if offset <= segment.base:
            return segment.base
        split = Split(segment, offset - segment.base, min(end - segment.base, segment.size))
        with SegmentSource(segment) as source:
            return min(segment.base + find_start(source, split), end)
    return end


def boundary_after(store: Location, start: int, end: int, count: int) -> int:
    """The boundary after the first `count` messages from boundary `start` on, at most `end`."""
    listed = list_offset_range(store, start, end)
    for segment in listed.segments:
        with SegmentSource(segment) as source:
            reader = RecordReader(source, max(start - segment.base, 0))
            for part in reader.read(end - segment.base):
                if not isinstance(part, RecordChunk):
                    continue
                if count <= part.frames.size:
                    last = part.frames[count - 1]
                    return min(part.base + int(last.position) + int(last.store_size), end)
                count -= part.frames.size
    return end


def offset_for_time(store: Location, end: int, millis: int) -> int:
    """The offset of the first message stored at `millis` (milliseconds) or later; `end` if there is none.

    Splits that `within_time` leaves out are not read: this relies on a clock that was not set back by more than a
    minute.
    """
    listed = list_offset_range(store, 0, end)
    largest = max((segment.size for segment in listed.segments), default=1)
    for split in within_time(listed.splits(largest), millis, None):
        with SegmentSource(split.segment) as source:
            offset = _first_stored(RecordReader(source, split.start), split.stop, millis)
        if offset is not None:
            return offset
    return end


def place_of_newer(store: Location, start: int, end: int, millis: int) -> int:
    """The offset of the first message from boundary `start` on that was stored at `millis` or later; `end` if none.

    Unlike `offset_for_time`, this function reads all records before that offset, and relies on no clock.
    """
    for segment in list_offset_range(store, start, end).segments:
        with SegmentSource(segment) as source:
            position, stop = max(start - segment.base, 0), min(end - segment.base, segment.size)
            offset = _first_stored(RecordReader(source, position), stop, millis)
        if offset is not None:
            return offset
    return end


def _first_stored(reader: RecordReader, stop: int, millis: int) -> int | None:
    """The offset of the first record before `stop` that was stored at `millis` or later."""
    for part in reader.read(stop):
        if isinstance(part, RecordChunk):
            times = int64s_at(part.buffer, part.frames.store_timestamp_at)
            late = np.flatnonzero(times >= millis)
            if late.size:
                return part.base + int(part.frames[int(late[0])].position)
    return None


def last_record(store: Location, start: int, end: int) -> int | None:
    """The offset of the last record between the boundaries `start` and `end`; None if there is none.

    The bytes just before `end` are read first, and more of them only if no record starts there.
    """
    for segment in reversed(list_offset_range(store, start, end).segments):
        range_start, stop = max(start - segment.base, 0), min(end - segment.base, segment.size)
        with SegmentSource(segment) as source:
            for size in (*_LOOKS_BACK, stop):
                position = max(stop - size, range_start)
                is_whole = position == range_start
                first = position if is_whole else find_start(source, Split(segment, position, stop))
                offset = _last_start(RecordReader(source, first), stop)
                if offset is not None:
                    return offset
                if is_whole:
                    break
    return None


def _last_start(reader: RecordReader, stop: int) -> int | None:
    """The offset of the last record that starts before `stop`."""
    offset = None
    for part in reader.read(stop):
        if isinstance(part, RecordChunk) and part.frames.size:
            offset = part.base + int(part.frames[-1].position)
    return offset
