"""Reading one split exactly, the records and corrupt ranges that start in it; and offsets at which a range can start.

The split's first record is found from the bytes before the split (`format.kernels.resync`), or by a scan from the
segment's start. A split of a last segment whose live end is not known (`Segment.is_last`) is always scanned from the
segment's start, because all records before a position decide which records there are live (`live_reader`).

A *boundary* is an offset at which a record, a blank or a corrupt range starts, or the end of the range. `end` must be
the live end or a boundary returned earlier, so all records before it are live. Cost: a few MiB around the offset; the
whole range when counting messages; one or two segments when searching by time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from spark_mq.errors import DataLossError
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.frames import ScanStatus
from spark_mq.format.kernels.resync import ResyncCandidates
from spark_mq.format.record import BLANK_SIZE, MAX_BLANK_SIZE, MAX_RECORD_SIZE
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import SegmentSource, Split, list_offset_range, within_time
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import CHUNK_SIZE, RecordChunk, RecordReader, more_to_read
from spark_mq.store.log.segment_files import CorruptRange

_LOOKS_BACK = (64 << 10, 4 << 20, 128 << 20)
"""Bytes before an offset in which the last record is searched for, one size after the other."""
WHOLE = 1 << 62
"""The size of splits that are whole segments: none begins in the middle of one."""
LOOK_BACK = MAX_RECORD_SIZE + (128 << 10)
"""Bytes before a split that are read to find its start. `format.kernels.resync` needs `MAX_RECORD_SIZE`. The other
bytes are room for records that no earlier record can cover, so a log without damage needs no further search."""


_TAIL = 64 << 10
"""Bytes read after the split's start: most records that cross the start are then whole."""


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
    for chunk in read_chunks(store, start, end):
        if count <= chunk.frames.size:
            last = chunk.frames[count - 1]
            return min(chunk.base + int(last.position) + int(last.store_size), end)
        count -= chunk.frames.size
    return end


def read_chunks(store: Location, start: int, end: int) -> Iterator[RecordChunk]:
    """The records from boundary `start` to boundary `end`; damage is left out."""
    return chain.from_iterable(map(_chunks, list_offset_range(store, start, end).splits(WHOLE)))


def offset_for_time(store: Location, end: int, millis: int) -> int:
    """The offset of the first message stored at `millis` (milliseconds) or later; `end` if there is none.

    Splits that `within_time` leaves out are not read: this relies on a clock that was not set back by more than a
    minute.
    """
    splits = within_time(list_offset_range(store, 0, end).splits(WHOLE), millis, None)
    return _first_stored(chain.from_iterable(map(_chunks, splits)), end, millis)


def place_of_newer(store: Location, start: int, end: int, millis: int) -> int:
    """The offset of the first message from boundary `start` on that was stored at `millis` or later; `end` if none.

    Unlike `offset_for_time`, this function reads all records before that offset, and relies on no clock.
    """
    return _first_stored(read_chunks(store, start, end), end, millis)


def _first_stored(chunks: Iterable[RecordChunk], end: int, millis: int) -> int:
    for chunk in chunks:
        late = np.flatnonzero(int64s_at(chunk.buffer, chunk.frames.store_timestamp_at) >= millis)
        if late.size:
            return chunk.base + int(chunk.frames[int(late[0])].position)
    return end


def _chunks(split: Split) -> Iterator[RecordChunk]:
    """The records of a split that starts at a boundary."""
    with SegmentSource(split.segment) as source:
        for part in RecordReader(source, split.start).read(split.stop):
            if isinstance(part, RecordChunk):
                yield part


def last_record(store: Location, start: int, end: int) -> int | None:
    """The offset of the last record between the boundaries `start` and `end`; None if there is none."""
    for split in reversed(list_offset_range(store, start, end).splits(WHOLE)):
        with SegmentSource(split.segment) as source:
            for size in (*_LOOKS_BACK, split.stop):
                first = max(split.stop - size, split.start)
                if first > split.start:
                    first = find_start(source, replace(split, start=first))
                last = None
                for part in RecordReader(source, first).read(split.stop):
                    if isinstance(part, RecordChunk):
                        last = part.base + int(part.frames[-1].position)
                if last is not None or split.stop - size <= split.start:
                    break
        if last is not None:
            return last
    return None


def read_split(split: Split) -> Iterator[RecordChunk | CorruptRange]:
    """The records and corrupt ranges that a split owns."""
    with SegmentSource(split.segment) as source:
        if split.segment.is_last:
            live = LiveReader(source)
            live.skip(split.start)
            yield from live.read(split.stop)
            return
        if split.skip_before is not None and _is_early(source, split, split.skip_before):
            return
        start = _known_start(source, split) if split.is_start_known else find_start(source, split)
        if split.skip_after is None or not _are_stored(source, start, split.skip_after + 1, LATEST_MILLIS):
            reader = RecordReader(source, start)
            yield from reader.read(split.stop)
            if split.is_stop_known and reader.position != split.stop:
                raise _log_was_cut(split, split.stop)


def _known_start(source: SegmentSource, split: Split) -> int:
    """The split's start. Raises `DataLossError` if no record, blank or corrupt range starts there."""
    part = next(RecordReader(source, split.start, chunk_size=_TAIL).read(split.start + 1), None)
    if isinstance(part, CorruptRange) and find_start(source, split) != split.start:
        raise _log_was_cut(split, split.start)
    return split.start


def _log_was_cut(split: Split, position: int) -> DataLossError:
    offset = split.segment.base + position
    return DataLossError(
        f"{split.segment.location}: no record starts at commit log offset {offset} any more: the broker lost the end "
        "of its log and rewrote it, or the path is another store"
    )


def find_start(source: SegmentSource, split: Split) -> int:
    """The position of the first record or corrupt range that the split owns; its stop or later if it owns none."""
    window_start = min(split.start - LOOK_BACK, split.segment.size - MAX_BLANK_SIZE)
    if window_start > 0:
        positions = _possible_starts(source, window_start, split)
        if len(positions) == 1:
            return positions.pop()
    reader = RecordReader(source, 0)
    for _ in reader.read(split.start):
        pass
    return reader.position


def _is_early(source: SegmentSource, split: Split, time: int) -> bool:
    """Whether the records after the split, and therefore its own, were stored before `time`."""
    after = Split(split.segment, split.stop, split.segment.size)
    if after.stop - after.start <= MAX_RECORD_SIZE:
        return False
    return _are_stored(source, find_start(source, after), EARLIEST_MILLIS, time - 1)


def _are_stored(source: SegmentSource, position: int, first: int, last: int) -> bool:
    """Whether the records from `position` on were stored from `first` to `last` (milliseconds, both included).

    All records in more than `MAX_RECORD_SIZE` bytes are checked, and there must be no damage between them. So the
    answer does not depend on one record with a damaged time, nor on one damaged record whose body contains records,
    which the scan then takes for records of the log. False if the segment ends before.
    """
    reader = RecordReader(source, position)
    for part in reader.read(position + MAX_RECORD_SIZE + 1):
        if isinstance(part, CorruptRange):
            return False
        times = int64s_at(part.buffer, part.frames.store_timestamp_at)
        if times.min() < first or times.max() > last:
            return False
    return position + MAX_RECORD_SIZE < reader.position < source.segment.size


def _possible_starts(source: SegmentSource, window_start: int, split: Split) -> set[int]:
    """Candidates for the result of `find_start`, from the bytes after `window_start`; empty if this is undecided."""
    segment, start = split.segment, split.start
    candidates = ResyncCandidates(segment.base + window_start)
    position, min_size = window_start, 0
    stop = min(start, segment.size - BLANK_SIZE + 1)
    while position < stop:
        buffer = source.read(position, max(min_size, min(CHUNK_SIZE, start - position + _TAIL)))
        reached, found = candidates.follow(buffer, stop - position, segment.base + position, segment.size - position)
        if found == ScanStatus.FULL:
            return set()
        position += reached
        min_size = max(min_size, more_to_read(buffer.size, reached))
    offsets, is_searching = candidates.after(segment.base + start)
    positions = {min(offset - segment.base, split.stop) for offset in offsets}
    if is_searching and len(positions) <= 1:
        positions.add(min(RecordReader(source, 0).find_next(start, split.stop), split.stop))
    return positions
