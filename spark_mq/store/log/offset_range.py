"""A range of the commit log between two boundaries, and its splits.

The end of such a range was the live end once, or is a boundary before it. So all records before it are live, and splits
are read in the same way in every segment, including the last. Segments can expire, so a range can lack bytes. This
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
            split_size: The largest number of bytes of a split.
            is_start_known: Whether the range starts at a boundary. The task that reads the first split checks this. If
                False, the range owns the records that start in it.
            is_end_known: Whether the range also stops at a boundary. The task that reads the last split checks this.
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
