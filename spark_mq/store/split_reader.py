"""Reading one split exactly: the records and corrupt ranges that start in it.

Where its first record lies is found from the bytes before it (`split_start`), or by hopping from the segment's start.
Splits of the last segment always hop, for what is live there depends on everything before (`live_reader`); a process
that reads several of them, one after the other, keeps its place between them.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_mq.format.record import LOOK_BACK
from spark_mq.format.split_start import UNDECIDED, first_record
from spark_mq.store.corrupt_range import CorruptRange
from spark_mq.store.live_reader import LiveReader
from spark_mq.store.record_reader import RecordChunk, RecordReader
from spark_mq.store.segment_source import SegmentSource
from spark_mq.store.splits import Split


def read_split(split: Split, plan: str) -> Iterator[RecordChunk | CorruptRange]:
    """The records and corrupt ranges that a split owns.

    `plan` names the listing that the split comes from: places kept from another one are not used.
    """
    if split.segment.is_last:
        yield from _read_live(split, plan)
        return
    with SegmentSource(split.segment) as source:
        yield from RecordReader(source, find_start(source, split)).read(split.stop)


def find_start(source: SegmentSource, split: Split) -> int:
    """The position of the first record at or behind the split's start; what can deceive it: `split_start`."""
    if split.start == 0:
        return 0
    segment = split.segment
    if split.start > LOOK_BACK:
        window_start = split.start - LOOK_BACK
        window = source.read(window_start, 2 * LOOK_BACK)
        base, end = segment.base + window_start, segment.size - window_start
        first = first_record(window, LOOK_BACK, base, end)
        if first != UNDECIDED:
            return window_start + int(first)
    reader = RecordReader(source, 0)
    for _ in reader.read(split.start):
        pass
    return reader.position


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
