"""The commit log of a store: its segments, and where its bytes end.

`commitlog/` holds segments (the broker's "mapped files") of one size, 1 GiB by default, each named by the commit log
offset of its first byte, 20 digits. Sizes are taken from the files. Behind the last record lie zeros: the last segment
is made whole beforehand, and the one or two after it may exist already (`AllocateMappedFileService`@5.3.3).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pyarrow import fs

from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import check_plain_log
from spark_mq.store.config.store_paths import COMMIT_LOG, MAPPED_FILE_NAME
from spark_mq.store.log.corrupt_range import MISSING, CorruptRange

_MAX_OFFSET = (1 << 63) - 1
_ZERO_BLOCK = bytes(4 << 20)


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
    """The segments that hold records, by offset; files that hold only zeros are left out."""

    location: Location
    segments: tuple[Segment, ...]

    @classmethod
    def open(cls, store: Location) -> Self:
        """List the segments of the store directory `store`.

        Raises `StoreNotFoundError` where there is no directory, or none with a commit log, and `UnsupportedStoreError`
        where it is one of another kind.
        """
        location = store / COMMIT_LOG
        files = [(int(info.base_name), info.size) for info in segment_files(store)]
        while files:
            base, size = files[-1]
            data_end = find_data_end(location / f"{base:020d}", size)
            if data_end > 0:
                return cls(location, _segments(location, files, data_end))
            files.pop()
        return cls(location, ())

    @property
    def gaps(self) -> list[CorruptRange]:
        """Ranges that no segment holds although there are segments on both sides."""
        gaps = []
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if after.base > before.end_offset:
                file = str(self.location / f"{before.end_offset:020d}")
                length = after.base - before.end_offset
                gaps.append(CorruptRange(file, before.end_offset, length, MISSING, "no segment holds these bytes"))
        return gaps


def segment_files(store: Location) -> list[fs.FileInfo]:
    """The files of `commitlog/` that can hold records, by offset: named by 20 digits, and not empty.

    Raises `StoreNotFoundError` where there is no directory `store`, or none with a commit log, and
    `UnsupportedStoreError` where it is one of another kind.
    """
    return [info for info in check_plain_log(store) if _is_segment(info)]


def _is_segment(info: fs.FileInfo) -> bool:
    return is_segment_name(info) and info.size > 0 and int(info.base_name) + info.size <= _MAX_OFFSET


def is_segment_name(info: fs.FileInfo) -> bool:
    """Whether it is a file that is named as a segment."""
    return info.type == fs.FileType.File and MAPPED_FILE_NAME.fullmatch(info.base_name) is not None


def clip_sizes(files: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """First offset and size of each file, by offset; a file counts only up to where the next one begins."""
    ends = [base for base, _ in files[1:]]
    return [(base, min(size, end - base)) for (base, size), end in zip(files, [*ends, _MAX_OFFSET], strict=False)]


def _segments(location: Location, files: list[tuple[int, int]], last_data_end: int) -> tuple[Segment, ...]:
    segments = []
    for index, (base, size) in enumerate(clip_sizes(files)):
        is_last = index == len(files) - 1
        data_end = last_data_end if is_last else size
        segments.append(Segment(location / f"{base:020d}", base, size, data_end, is_last))
    return tuple(segments)


def find_data_end(file: Location, size: int) -> int:
    """An index behind which the file holds only zeros; 0 for a file of zeros.

    Holes of a sparse local file are skipped; other zeros are read, from the end, block by block.
    """
    end = _end_of_extents(file.path, size) if file.is_local else size
    with file.filesystem.open_input_file(file.path) as stream:
        while end > 0:
            start = max(0, end - len(_ZERO_BLOCK))
            block = stream.read_at(end - start, start)
            if block != _ZERO_BLOCK[: len(block)]:
                return start + len(block.rstrip(b"\0"))
            end = start
    return 0


def _end_of_extents(path: str, size: int) -> int:
    """The end of the last part of a local file that is not a hole."""
    if not hasattr(os, "SEEK_DATA"):
        return size
    with open(path, "rb") as file:
        end = 0
        while end < size:
            try:
                data = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left
                return end
            end = os.lseek(file.fileno(), data, os.SEEK_HOLE)
        return end
