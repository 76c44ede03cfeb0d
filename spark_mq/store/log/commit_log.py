"""The commit log of a store: its segments, and where its bytes end.

`commitlog/` holds segments (the broker's "mapped files") of one size, 1 GiB by default, each named by the commit log
offset of its first byte, 20 digits. Sizes are taken from the files. Behind the last record lie zeros: the last segment
is made whole beforehand, and the one or two after it may exist already (`AllocateMappedFileService`@5.3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.log.corrupt_range import MISSING, CorruptRange
from spark_mq.store.log.data_end import find_data_end
from spark_mq.store.log.segment_files import MAX_OFFSET, list_segment_files


@dataclass(frozen=True)
class Segment:
    """One file of the commit log.

    `base` is the commit log offset of its first byte; `size` its length in bytes, or what of it counts where the next
    segment begins earlier; `data_end` an index behind which there are only zeros (`size`, except in the last
    segment). `is_last`: the broker appends here, so that behind the live end anything may lie.
    """

    location: Location
    base: int
    size: int
    data_end: int
    is_last: bool

    @property
    def end_offset(self) -> int:
        """The commit log offset behind the segment."""
        return self.base + self.size


@dataclass(frozen=True)
class CommitLog:
    """The segments that hold records, by offset; files that hold only zeros are left out.

    `stray` are files that are named as segments, but are none (`segment_files`).
    """

    location: Location
    segments: tuple[Segment, ...]
    stray: tuple[CorruptRange, ...] = ()

    @classmethod
    def open(cls, store: Location) -> Self:
        """List the segments of the store directory `store`.

        Raises `StoreNotFoundError` where there is no directory, or none with a commit log, and `UnsupportedStoreError`
        where it is one of another kind.
        """
        location = store / COMMIT_LOG
        listed = list_segment_files(store)
        files = [(int(info.base_name), info.size) for info in listed.segments]
        while files:
            base, size = files[-1]
            data_end = find_data_end(location / f"{base:020d}", size)
            if data_end > 0:
                return cls(location, _segments(location, files, data_end), listed.stray)
            files.pop()
        return cls(location, (), listed.stray)

    @property
    def gaps(self) -> list[CorruptRange]:
        """Ranges that no segment contains although there are segments on both sides."""
        gaps = []
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if after.base > before.end_offset:
                file = str(self.location / f"{before.end_offset:020d}")
                length = after.base - before.end_offset
                gaps.append(CorruptRange(file, before.end_offset, length, MISSING, "no segment contains these bytes"))
        return gaps


def clip_sizes(files: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """First offset and size of each file, by offset; a file counts only up to where the next one begins."""
    ends = [base for base, _ in files[1:]]
    return [(base, min(size, end - base)) for (base, size), end in zip(files, [*ends, MAX_OFFSET], strict=False)]


def _segments(location: Location, files: list[tuple[int, int]], last_data_end: int) -> tuple[Segment, ...]:
    segments = []
    for index, (base, size) in enumerate(clip_sizes(files)):
        is_last = index == len(files) - 1
        data_end = last_data_end if is_last else size
        segments.append(Segment(location / f"{base:020d}", base, size, data_end, is_last))
    return tuple(segments)
