"""The commit log of a store: its segments, where its data end, and ranges of bytes of a segment.

`commitlog/` contains segments (the broker's "mapped files") of one size, 1 GiB by default. The name of a segment is the
commit log offset of its first byte, with 20 digits. Sizes are those of the files. Zeros follow the last record: a
broker creates a segment in its full size, and the next one or two in advance (`AllocateMappedFileService`@5.3.3).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Bytes
from spark_mq.io.file_reader import OpenFile
from spark_mq.io.location import Location
from spark_mq.io.remote_file import READ_SIZE
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.log.segment_files import MISSING, CorruptRange, SegmentFile, find_data_end, list_segment_files


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
        data = self._memory[:length]
        done = 0
        while done < length:
            count = os.preadv(self._local, [data[done:].data], position + done)
            if count == 0:
                break
            done += count
        return data[:done]

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
        return cls(file.location, file.base, file.size, file.size, is_last=False)


@dataclass(frozen=True)
class CommitLog:
    """The segments that contain records, by offset; files of zeros at the end are left out.

    `stray` are the files that have the name of a segment, but are not one (`segment_files`).
    """

    location: Location
    segments: tuple[Segment, ...]
    stray: tuple[CorruptRange, ...] = ()

    @classmethod
    def open(cls, store: Location) -> Self:
        """The commit log of the store directory `store`."""
        location = store / COMMIT_LOG
        listed = list_segment_files(store)
        segments = list(map(Segment.whole, listed.within(location)))
        while segments:
            last = segments.pop()
            data_end = find_data_end(last.location, last.size)
            if data_end > 0:
                segments.append(replace(last, data_end=data_end, is_last=True))
                break
        return cls(location, tuple(segments), listed.stray)

    def ending_at(self, live_end: int) -> CommitLog:
        """The log up to its live end: of its last segment, too, each split can then be read by itself."""
        kept = [segment for segment in self.segments if segment.base < live_end]
        if kept:
            last = kept[-1]
            kept[-1] = replace(last, data_end=min(last.data_end, live_end - last.base), is_last=False)
        return replace(self, segments=tuple(kept))

    @property
    def gaps(self) -> list[CorruptRange]:
        """The ranges between two segments that no segment contains."""
        gaps = []
        for before, after in pairwise(self.segments):
            if after.base > before.end_offset:
                file = str(self.location / f"{before.end_offset:020d}")
                length = after.base - before.end_offset
                gaps.append(CorruptRange(file, before.end_offset, length, MISSING, "no segment contains these bytes"))
        return gaps
