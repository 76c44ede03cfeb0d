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
        yield from _LivePlaces.reader(split, plan).read(split.stop)
        return
    with SegmentSource(split.segment) as source:
        yield from RecordReader(source, find_start(source, split)).read(split.stop)


def find_start(source: SegmentSource, split: Split) -> int:
    """The position of the first record at or behind the split's start; exact, whatever the bodies hold."""
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


class _LivePlaces:
    """The reader of the last segment that this process used last: the next split goes on from there."""

    _kept: tuple[str, int, LiveReader] | None = None
    """The listing, the stop up to which the reader has read, and the reader."""

    @classmethod
    def reader(cls, split: Split, plan: str) -> LiveReader:
        """A reader that stands at the first record of `split`."""
        kept, cls._kept = cls._kept, None
        if kept is not None and kept[0] == plan and kept[1] <= split.start:
            reader = kept[2]
        else:
            reader = LiveReader(SegmentSource(split.segment))
        reader.skip(split.start)
        cls._kept = (plan, split.stop, reader)
        return reader
