"""A range of the commit log between two offsets at which records start: its splits, and cuts of it.

The end of such a range is the live end as it once was, or a cut made here. So all records before it are live, and its
splits are read alike in every segment, the last one too. A range may have lost bytes since: segments expire. This
module is plain Python: it runs while Spark plans.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.log.commit_log import Segment, clip_sizes
from spark_mq.store.log.corrupt_range import MISSING, CorruptRange
from spark_mq.store.log.segment_files import list_segment_files
from spark_mq.store.log.splits import Split

EXPIRED = "EXPIRED"
"""The code of a range before the log's first segment."""


@dataclass(frozen=True)
class OffsetRange:
    """The commit log offsets `start` to `end` (not included) of the files that there were when it was listed."""

    start: int
    end: int
    segments: tuple[Segment, ...]
    """Those that hold a part of the range. None counts as last: the range has its end."""
    missing: tuple[CorruptRange, ...]
    """What of the range no segment contains."""
    stray: tuple[CorruptRange, ...] = ()
    """The files beside the segments that are named as segments, but are none; they belong to no range."""

    @property
    def missing_bytes(self) -> int:
        """Bytes that no segment contains."""
        return sum(missing.length for missing in self.missing)

    def splits(self, split_size: int, is_start_known: bool = True, is_end_known: bool = True) -> list[Split]:
        """The range in splits of at most `split_size` bytes.

        With `is_start_known` the first one begins, and with both the last one ends, where the range does; a task makes
        sure. Without, the range has the records that start in it, wherever that is.
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
    """The range as the store's files have it now. Raises `StoreNotFoundError` where the path is no store."""
    listed = list_segment_files(store)
    files = clip_sizes([(int(info.base_name), info.size) for info in listed.segments])
    folder = store / COMMIT_LOG
    segments, missing, reached = [], [], start
    for base, size in files:
        if start < base + size and base < end:
            missing += _missing(folder, reached, base, EXPIRED if base == files[0][0] else MISSING)
            segments.append(Segment(folder / f"{base:020d}", base, size, size, is_last=False))
            reached = base + size
    missing += _missing(folder, reached, end, MISSING if files and files[0][0] < end else EXPIRED)
    return OffsetRange(start, end, tuple(segments), tuple(missing), listed.stray)


def _missing(folder: Location, start: int, end: int, code: str) -> list[CorruptRange]:
    if start >= end:
        return []
    reason = "the segment expired before it was read" if code == EXPIRED else "no segment contains these bytes"
    return [CorruptRange(str(folder / f"{start:020d}"), start, end - start, code, reason)]
