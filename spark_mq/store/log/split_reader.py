"""Reading one split exactly: the records and corrupt ranges that start in it.

Where its first record lies is found from the bytes before it (`split_start`), or by hopping from the segment's start.
Splits of the last segment always hop, for what is live there depends on everything before (`live_reader`); a process
that reads several of them, one after the other, keeps its place between them.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_mq.errors import DataLossError
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.frames import ScanStatus
from spark_mq.format.kernels.resync import ResyncCandidates
from spark_mq.format.record import BLANK_SIZE, MAX_BLANK_SIZE, MAX_RECORD_SIZE
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import CHUNK_SIZE, RecordChunk, RecordReader, more_to_read
from spark_mq.store.log.segment_source import SegmentSource
from spark_mq.store.log.splits import Split

LOOK_BACK = MAX_RECORD_SIZE + (128 << 10)
"""How far before a split one looks at least. `MAX_RECORD_SIZE` is what `split_start` needs; the rest is room for
records that no earlier one can reach over, so that on a sound log no search is left to be done."""


_TAIL = 64 << 10
"""Bytes read behind the split's start: most records that lie astride it are whole then."""


def read_split(split: Split, plan: str) -> Iterator[RecordChunk | CorruptRange]:
    """The records and corrupt ranges that a split owns.

    `plan` names the listing that the split comes from: places kept from another one are not used.

    Raises `DataLossError` where the log is not what it was when the split's start or stop became known.
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
    """The split's start, if a record, a blank or a corrupt range does begin there."""
    part = next(RecordReader(source, split.start, chunk_size=_TAIL).read(split.start + 1), None)
    if isinstance(part, CorruptRange) and find_start(source, split) != split.start:
        raise _log_was_cut(split, split.start)
    return split.start


def _log_was_cut(split: Split, position: int) -> DataLossError:
    offset = split.segment.base + position
    return DataLossError(
        f"{split.segment.location}: no record starts at commit log offset {offset} any more: the broker lost the end "
        "of its log and wrote it anew, or the path is another store"
    )


def find_start(source: SegmentSource, split: Split) -> int:
    """The position of the first record or corrupt range that the split owns; at or behind its stop if it owns none."""
    window_start = min(split.start - LOOK_BACK, split.segment.size - MAX_BLANK_SIZE)
    if window_start > 0:
        places = _possible_starts(source, window_start, split)
        if len(places) == 1:
            return places.pop()
    reader = RecordReader(source, 0)
    for _ in reader.read(split.start):
        pass
    return reader.position


def _is_early(source: SegmentSource, split: Split, time: int) -> bool:
    """Whether the records behind the split, and so its own, were stored before `time`."""
    behind = Split(split.segment, split.stop, split.segment.size)
    if behind.stop - behind.start <= MAX_RECORD_SIZE:
        return False
    return _are_stored(source, find_start(source, behind), EARLIEST_MILLIS, time - 1)


def _are_stored(source: SegmentSource, position: int, first: int, last: int) -> bool:
    """Whether the records from `position` on were stored in `first` ... `last`.

    All that lie in more than `MAX_RECORD_SIZE` bytes, without damage between: so they are not one record with a damaged
    time, and not all in one body, whose records the hop takes where the one they are in is damaged. False where the
    segment ends before.
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
    """Positions among which the one of `find_start` is, told from the bytes behind `window_start`; none: undecided."""
    segment, start = split.segment, split.start
    hops = ResyncCandidates(segment.base + window_start)
    position, least = window_start, 0
    stop = min(start, segment.size - BLANK_SIZE + 1)
    while position < stop:
        buffer = source.read(position, max(least, min(CHUNK_SIZE, start - position + _TAIL)))
        reached, found = hops.follow(buffer, stop - position, segment.base + position, segment.size - position)
        if found == ScanStatus.FULL:
            return set()
        position += reached
        least = max(least, more_to_read(buffer.size, reached))
    offsets, is_searching = hops.behind(segment.base + start)
    places = {min(offset - segment.base, split.stop) for offset in offsets}
    if is_searching and len(places) <= 1:
        places.add(min(RecordReader(source, 0).find_next(start, split.stop), split.stop))
    return places


def _read_live(split: Split, plan: str) -> Iterator[RecordChunk | CorruptRange]:
    reader = _Kept.take(split, plan) or LiveReader(SegmentSource(split.segment))
    try:
        reader.skip(split.start)
        yield from reader.read(split.stop)
    except BaseException:  # also when whoever reads the split goes away half-way
        reader.close()
        raise
    _Kept.keep(split, plan, reader)


class _Kept:
    """The reader of the last segment that this process used last: the next split goes on from where it stands."""

    _kept: tuple[str, int, LiveReader] | None = None
    """The listing, the stop up to which the reader has read, and the reader."""

    @classmethod
    def take(cls, split: Split, plan: str) -> LiveReader | None:
        """The kept reader, if it is of this listing and has not read beyond the split's start."""
        kept, cls._kept = cls._kept, None
        if kept is None:
            return None
        if kept[0] == plan and kept[1] <= split.start:
            return kept[2]
        kept[2].close()
        return None

    @classmethod
    def keep(cls, split: Split, plan: str, reader: LiveReader) -> None:
        """Keep a reader that has read all of `split`."""
        if cls._kept is not None:
            cls._kept[2].close()
        cls._kept = (plan, split.stop, reader)
