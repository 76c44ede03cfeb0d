"""Reading one split exactly: the records and corrupt ranges that start in it.

The split's first record is found from the bytes before the split (`format.kernels.resync`), or by a scan from the
segment's start. Splits of the last segment are always scanned from its start, because all records before a position
decide which records there are live (`live_reader`). A process that reads several of these splits one after the other
keeps the reader between them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from spark_mq.errors import DataLossError
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.frames import ScanStatus
from spark_mq.format.kernels.resync import ResyncCandidates
from spark_mq.format.record import BLANK_SIZE, MAX_BLANK_SIZE, MAX_RECORD_SIZE
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.log.commit_log import Segment, SegmentSource
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import CHUNK_SIZE, RecordChunk, RecordReader, more_to_read
from spark_mq.store.log.splits import Split
from spark_mq.store.settled_files import settled_state

LOOK_BACK = MAX_RECORD_SIZE + (128 << 10)
"""Bytes before a split that are read to find its start. `format.kernels.resync` needs `MAX_RECORD_SIZE`. The other
bytes are room for records that no earlier record can cover, so a log without damage needs no further search."""


_TAIL = 64 << 10
"""Bytes read after the split's start: most records that cross the start are then whole."""

_MOST: Final = 16
_MOST_PLACES: Final = 1 << 12

_found: OrderedDict[bytes, list[tuple[int, int, int]]] = OrderedDict()
"""Places in last segments that this process reached: from where on a reader searched, the place that it found, and the
store time before it, by the state of the files. So a worker that reads the same store again does not skip the records
before a split once more, while no file changes (`settled_files`)."""


def read_split(split: Split, plan: str | None = None) -> Iterator[RecordChunk | CorruptRange]:
    """The records and corrupt ranges that a split owns.

    Args:
        plan: A name of the listing that the split is from, which no other listing has. A reader kept from another
            listing is not used. By default, the split is read for itself.
    """
    if split.segment.is_last:
        yield from _read_live(split, plan)
        return
    with SegmentSource(split.segment) as source:
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


def _read_live(split: Split, plan: str | None) -> Iterator[RecordChunk | CorruptRange]:
    state = _state_of_end(split.segment)
    kept = None if plan is None else _Kept.take(split, plan)
    first_state, reader = kept or (state, LiveReader(SegmentSource(split.segment)))
    try:
        known = _place_before(state, split.start)
        if known is not None and known[0] > reader.position:
            reader.go_on_at(*known)
        reader.skip(split.start)
        if not reader.ended and first_state == state == _state_of_end(split.segment):  # none changed while it was read
            _keep_place(state, split.start, reader.position, reader.newest)
        yield from reader.read(split.stop)
    except BaseException:  # also if the caller stops before the end of the split
        reader.close()
        raise
    if plan is None:
        reader.close()
    else:
        _Kept.keep(split, plan, first_state, reader)


class _Kept:
    """The reader of a last segment that this process used last: the next split continues at its position."""

    _kept: tuple[str, int, bytes | None, LiveReader] | None = None
    """The listing, the stop up to which the reader has read, the state of the files when it began, and the reader."""

    @classmethod
    def take(cls, split: Split, plan: str) -> tuple[bytes | None, LiveReader] | None:
        """The kept reader, and the state of the files when it began.

        None if it is of another listing, or has read past the split's start.
        """
        kept, cls._kept = cls._kept, None
        if kept is None:
            return None
        if kept[0] == plan and kept[1] <= split.start:
            return kept[2:]
        kept[3].close()
        return None

    @classmethod
    def keep(cls, split: Split, plan: str, state: bytes | None, reader: LiveReader) -> None:
        """Keep a reader that has read all of `split`."""
        if cls._kept is not None:
            cls._kept[3].close()
        cls._kept = (plan, split.stop, state, reader)


def _state_of_end(segment: Segment) -> bytes | None:
    """The state of all files that decide where the log ends in a last segment; None if they have none."""
    store = segment.location.parent.parent
    files = [segment.location, store / CHECKPOINT]
    return settled_state(store, files, (segment.base, segment.size, segment.data_end))


def _place_before(state: bytes | None, start: int) -> tuple[int, int] | None:
    """The first record at or after `start`, or else an earlier place, from which a reader gets there; None if unknown.

    The result is its position, and the store time of the record before it in milliseconds.
    """
    if state is None or state not in _found:
        return None
    _found.move_to_end(state)
    places = _found[state]
    after = bisect_right(places, (start, 1 << 63))
    return places[after - 1][1:] if after else None


def _keep_place(state: bytes | None, start: int, position: int, newest: int) -> None:
    """Keep the place that a reader found: the first record, or corrupt range, at or after a position of the segment.

    Args:
        state: The state of the files before they were read; nothing is kept for None.
        position: The place; the log has not ended before it.
        newest: The store time of the record before it, in milliseconds.
    """
    if state is None:
        return
    places = _found.setdefault(state, [])
    place = start, position, newest
    if place not in places and len(places) < _MOST_PLACES:
        insort(places, place)
    while len(_found) > _MOST:
        _found.popitem(last=False)
