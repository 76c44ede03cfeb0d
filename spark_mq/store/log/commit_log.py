"""The commit log of a store: its segments, where its data end, and its splits. Plain Python: it runs while Spark plans.

`commitlog/` contains segments (the broker's "mapped files") of one size, 1 GiB by default. The name of a segment is the
commit log offset of its first byte, with 20 digits. Sizes are those of the files. Zeros follow the last record: a
broker creates a segment in its full size, and the next one or two in advance (`AllocateMappedFileService`@5.3.3).

A split owns the records and corrupt ranges that start in it; `split_reader` reads it. Store times grow along the log,
unless a broker's clock was set back. This module assumes that a clock is set back by at most `CLOCK_TOLERANCE_MILLIS`.
So if a record was stored later than a time by more than this tolerance, all records after it were stored later than
that time. If a record was stored earlier by more than this, all records before it were.

While Spark plans, one record of each segment is read, the first. A body cannot pretend to be this record, because the
record starts at the segment's start. But its time can be damaged, so one record alone never decides. A segment is early
if the first records of two segments after it are early. A segment is late if its own first record and that of a
segment before it are late. All segments further on that side must agree, so that a clock that was set back for good is
noticed.

The segments at the edges of the time range can contain splits that are outside it. Such splits are marked, and
`split_reader` checks more of their records.

The end of an `OffsetRange` was the live end once, or is a boundary before it. So all records before it are live, and
splits are read in the same way in every segment, including the last. Segments can expire, so a range can lack bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Self

import numpy as np

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Bytes
from spark_mq.format.dledger import HEAD_SIZE as ENTRY_HEAD_SIZE
from spark_mq.format.dledger import is_head
from spark_mq.format.record import HEAD_SIZE, read_store_timestamp
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS
from spark_mq.io.file_reader import FileReader, OpenFile
from spark_mq.io.location import Location
from spark_mq.io.remote_file import READ_SIZE
from spark_mq.store.log.segment_files import MISSING, CorruptRange, SegmentFile, find_data_end, list_segment_files

EXPIRED = "EXPIRED"
"""The code of a range before the log's first segment."""
CLOCK_TOLERANCE_MILLIS = 60_000
"""Milliseconds by which a broker's clock may be set back without a record being missed."""
DEFAULT_SPLIT_SIZE = 128 << 20
MIN_SPLIT_SIZE = 1024


@dataclass(frozen=True)
class OffsetRange:
    """The commit log offsets from `start` to `end` (not included), in the files that existed when it was listed."""

    start: int
    end: int
    segments: tuple[Segment, ...]
    """The segments that contain a part of the range. `is_last` of each is False: the range has a known end."""
    missing: tuple[CorruptRange, ...]
    """The parts of the range that no segment contains."""
    stray: tuple[CorruptRange, ...] = ()
    """The files that have the name of a segment, but are not one; they do not belong to any range."""

    @property
    def missing_bytes(self) -> int:
        """Bytes of the range that no segment contains."""
        return sum(missing.length for missing in self.missing)

    def splits(self, split_size: int, is_start_known: bool = True, is_end_known: bool = True) -> list[Split]:
        """The splits of the range, of at most `split_size` bytes.

        Args:
            is_start_known: Whether the range starts at a boundary. The task that reads the first split checks this. If
                False, the range owns the records that start in it.
        """
        splits = []
        for segment in self.segments:
            first, stop = max(self.start - segment.base, 0), min(self.end - segment.base, segment.size)
            for start in range(first, stop, split_size):
                split_stop = min(start + split_size, stop)
                begins = is_start_known and start == first
                ends = is_start_known and is_end_known and segment.base + split_stop == self.end
                splits.append(Split(segment, start, split_stop, is_start_known=begins, is_stop_known=ends))
        return splits


def list_offset_range(store: Location, start: int, end: int) -> OffsetRange:
    """The range in the files that the store has now. Raises `StoreNotFoundError` if the path is not a store."""
    listed = list_segment_files(store)
    folder = listed.folder
    files = listed.files
    segments, missing, reached = [], [], start
    for file in files:
        if start < file.end_offset and file.base < end:
            missing += _missing(folder, reached, file.base, EXPIRED if file is files[0] else MISSING)
            segments.append(Segment.whole(file))
            reached = file.end_offset
    missing += _missing(folder, reached, end, MISSING if files and files[0].base < end else EXPIRED)
    return OffsetRange(start, end, tuple(segments), tuple(missing), listed.stray)


def _missing(folder: Location, start: int, end: int, code: str) -> list[CorruptRange]:
    if start >= end:
        return []
    reason = "the segment expired before it was read" if code == EXPIRED else "no segment contains these bytes"
    return [CorruptRange(str(folder / f"{start:020d}"), start, end - start, code, reason)]


def within_time(splits: Sequence[Split], start: int | None, end: int | None) -> list[Split]:
    """The splits that can contain records stored from `start` to `end` (milliseconds, both included; None is open).

    `splits` must be in the order of the log. Splits at the edges of the time range get a `skip_before` and a
    `skip_after`, except in the last segment, whose splits are scanned from the segment's start anyway.
    """
    if start is None and end is None:
        return list(splits)
    skip_before = EARLIEST_MILLIS if start is None else start - CLOCK_TOLERANCE_MILLIS
    skip_after = LATEST_MILLIS if end is None else end + CLOCK_TOLERANCE_MILLIS
    segments = {split.segment.base: split.segment for split in splits}
    times = [(base, time) for base, segment in segments.items() if (time := _first_store_time(segment)) is not None]
    early = [base for base, _ in takewhile(lambda look: look[1] < skip_before, times)]
    late = [base for base, _ in takewhile(lambda look: look[1] > skip_after, reversed(times))]
    kept = []
    for split in splits:
        segment = split.segment
        is_early = len(early) >= 2 and early[-2] >= segment.end_offset
        is_late = len(late) >= 2 and late[-2] <= segment.base
        if is_early or is_late:
            continue
        begins_early = not segment.is_last and bool(early) and early[-1] >= segment.base
        ends_late = not segment.is_last and bool(late) and late[-1] <= segment.end_offset
        kept.append(
            replace(
                split, skip_before=skip_before if begins_early else None, skip_after=skip_after if ends_late else None
            )
        )
    return kept


def _first_store_time(segment: Segment) -> int | None:
    """The store time of the record at the segment's start; None if there is none."""
    with FileReader(segment.location) as file:
        data, at = file.read(0, min(ENTRY_HEAD_SIZE + HEAD_SIZE, segment.size)), 0
    if segment.has_entries and is_head(data, segment.base):
        at = ENTRY_HEAD_SIZE
    return read_store_timestamp(data[at:], segment.base + at)


@dataclass(frozen=True)
class Split:
    """The records of `segment` that start at position `start` or later, and before `stop`.

    Attributes:
        skip_before: A reader may skip the split if a sample shows that all its records were stored before this time
            (milliseconds). None disables the check.
        is_start_known: Whether `start` was a boundary when the split was planned: a record, a blank or a corrupt range
            started there. The broker can have truncated and rewritten its log since.
    """

    segment: Segment
    start: int
    stop: int
    skip_before: int | None = None
    skip_after: int | None = None
    is_start_known: bool = False
    is_stop_known: bool = False


def plan_splits(log: CommitLog, split_size: int) -> list[Split]:
    """The splits of the whole log, in its order, of at most `split_size` bytes.

    The last segment of a store that is not local is one split. Each split of a last segment is scanned from the
    segment's start, which would cost more over a network than the parallel reading saves.
    """
    splits = []
    for segment in log.segments:
        step = split_size if segment.location.is_local or not segment.is_last else segment.data_end
        for start in range(0, segment.data_end, step):
            splits.append(Split(segment, start, min(start + step, segment.data_end)))
    return splits


def within_offsets(splits: Sequence[Split], start: int, stop: int) -> list[Split]:
    """The parts of `splits` from the commit log offset `start` on, and before `stop`."""
    kept = []
    for split in splits:
        base = split.segment.base
        kept_start, kept_stop = max(split.start, start - base), min(split.stop, stop - base)
        if kept_start < kept_stop:
            kept.append(replace(split, start=kept_start, stop=kept_stop))
    return kept


class SegmentSource(OpenFile):
    """An open segment, of which any range can be read. `bytes_read` counts the bytes that were read.

    An array that `read` returned is valid until the next `read`, which uses the same memory. A segment over a network
    is read in large pieces, and the last one is kept: reads that follow one another, or overlap, get each byte once.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.bytes_read = 0
        self._piece, self._piece_at = b"", 0
        self._memory: Bytes = np.empty(0, np.uint8)
        super().__init__(segment.location, segment.size)

    def read(self, position: int, length: int) -> Bytes:
        """The `length` bytes from `position` on; fewer if the segment ends before."""
        length = min(length, self.segment.size - position)
        data = self._read_local(position, length) if self._remote is None else self._read_remote(position, length)
        self.bytes_read += data.size
        if data.size < length:
            raise CorruptLogError(
                f"{self.segment.location}: the file ended at {position + data.size}, it had {self.segment.size} bytes "
                "when the store was listed; run again if the broker has just removed it"
            )
        return data

    def _read_local(self, position: int, length: int) -> Bytes:
        if self._memory.size < length:
            self._memory = np.empty(length, np.uint8)
        return self._memory[: self.read_into(self._memory[:length].data, position)]

    def _read_remote(self, position: int, length: int) -> Bytes:
        assert self._remote is not None
        kept = position - self._piece_at
        if not 0 <= kept <= len(self._piece):
            self._piece, self._piece_at, kept = b"", position, 0
        if kept + length > len(self._piece):
            rest = self._piece[kept:]
            start = position + len(rest)
            wanted = max(length - len(rest), min(READ_SIZE, self.segment.data_end - start))
            self._piece, self._piece_at, kept = rest + self._remote.read_range(start, wanted), position, 0
        return np.frombuffer(self._piece, np.uint8)[kept : kept + length]


@dataclass(frozen=True)
class Segment(SegmentFile):
    """A segment to be read.

    Attributes:
        data_end: The position after which the file contains only zeros; `size`, except in the last segment.
        is_last: Whether the broker appends to this segment. Then any bytes can follow the live end.
    """

    data_end: int
    is_last: bool

    @classmethod
    def whole(cls, file: SegmentFile) -> Self:
        """The segment in a range whose end is known."""
        return cls(file.location, file.base, file.size, file.size, is_last=False, has_entries=file.has_entries)


@dataclass(frozen=True)
class CommitLog:
    """The segments that contain records, by offset; files of zeros at the end are left out."""

    location: Location
    segments: tuple[Segment, ...]
    stray: tuple[CorruptRange, ...] = ()

    @classmethod
    def open(cls, store: Location, live_end: int | None = None) -> Self:
        """The commit log of the store directory `store`, up to its live end if that is given."""
        listed = list_segment_files(store)
        segments = list(map(Segment.whole, listed.files))
        if live_end is None and listed.entries is not None:
            from spark_mq.store.log.dledger_log import find_entries_end

            live_end = find_entries_end(segments)
        if live_end is not None:
            return cls(listed.folder, tuple(segments), listed.stray).ending_at(live_end)
        while segments:
            last = segments.pop()
            data_end = find_data_end(last.location, last.size)
            if data_end > 0:
                segments.append(replace(last, data_end=data_end, is_last=True))
                break
        return cls(listed.folder, tuple(segments), listed.stray)

    def ending_at(self, live_end: int) -> Self:
        """The log up to its live end: of its last segment, too, each split can then be read by itself."""
        kept = [segment for segment in self.segments if segment.base < live_end]
        if kept:
            last = kept[-1]
            kept[-1] = replace(last, data_end=min(last.data_end, live_end - last.base), is_last=False)
        return replace(self, segments=tuple(kept))

    @property
    def gaps(self) -> list[CorruptRange]:
        """The ranges between two segments that no segment contains."""
        return [
            gap
            for before, after in pairwise(self.segments)
            for gap in _missing(self.location, before.end_offset, after.base, MISSING)
        ]
