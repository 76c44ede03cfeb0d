"""Places of the commit log at which a range of it may begin or end: by offset, by bytes, by messages, by time.

Nothing but a record, a blank or a corrupt range starts at such a place; behind it, or at the range's end. `end` is the
live end, or a place that was found here: records before it are live. What is looked at are the bytes about the place;
for a number of messages the range itself, for a time one segment or two.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.io.location import Location
from spark_mq.store.log.offset_range import list_offset_range
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.segment_source import SegmentSource
from spark_mq.store.log.split_reader import find_start
from spark_mq.store.log.splits import Split
from spark_mq.store.log.time_pruning import within_time

_LOOKS_BACK = (64 << 10, 4 << 20, 128 << 20)
"""Bytes before an offset in which its last record is looked for."""


def next_boundary(store: Location, offset: int, end: int) -> int:
    """The first place at or behind `offset`, at most `end`."""
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
    """The place behind the first `count` messages that start at or behind place `start`, at most `end`."""
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
    """The place of the first message stored at `millis` or later; `end` if there is none.

    What `within_time` leaves out is not looked at: it trusts that a clock was not set back by more than a minute.
    """
    listed = list_offset_range(store, 0, end)
    largest = max((segment.size for segment in listed.segments), default=1)
    for split in within_time(listed.splits(largest), millis, None):
        with SegmentSource(split.segment) as source:
            place = _first_stored(RecordReader(source, split.start), split.stop, millis)
        if place is not None:
            return place
    return end


def place_of_newer(store: Location, start: int, end: int, millis: int) -> int:
    """The place of the first message at or after place `start` that was stored at `millis` or later; `end` if none.

    Unlike `offset_for_time` it reads all records before that place, and trusts nothing.
    """
    for segment in list_offset_range(store, start, end).segments:
        with SegmentSource(segment) as source:
            first, stop = max(start - segment.base, 0), min(end - segment.base, segment.size)
            place = _first_stored(RecordReader(source, first), stop, millis)
        if place is not None:
            return place
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
    """The offset of the last record between the places `start` and `end`; None if there is none.

    It looks at the bytes before `end` first, and at more and more of them if no record starts there.
    """
    for segment in reversed(list_offset_range(store, start, end).segments):
        least, stop = max(start - segment.base, 0), min(end - segment.base, segment.size)
        with SegmentSource(segment) as source:
            for size in (*_LOOKS_BACK, stop):
                first = max(stop - size, least)
                at = first if first == least else find_start(source, Split(segment, first, stop))
                found = _last_start(RecordReader(source, at), stop)
                if found is not None:
                    return found
                if first == least:
                    break
    return None


def _last_start(reader: RecordReader, stop: int) -> int | None:
    found = None
    for part in reader.read(stop):
        if isinstance(part, RecordChunk) and part.frames.size:
            found = part.base + int(part.frames[-1].position)
    return found
