"""Single records of the commit log, by offset: no hop, no numba.

What is here is a record, whole and consistent, or it is not; whether it is live, `live_end` says.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import (
    BORN_HOST_AT,
    COMMIT_LOG_OFFSET_AT,
    FRAME,
    HEAD_SIZE,
    MAX_RECORD_SIZE,
    MIN_RECORD_SIZE,
    Record,
    decode_record,
    store_timestamp_of,
)
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.log.commit_log import clip_sizes
from spark_mq.store.log.segment_files import list_segment_files

_FIRST_READ = 4 << 10
"""Bytes read for a record of unknown size where a read takes long: most are shorter."""

_ZEROS = bytes(FRAME.size)
_INT64 = struct.Struct(">q")


@dataclass(frozen=True)
class SegmentFile:
    """A file of the commit log; `size` is what counts of it where the next one begins earlier."""

    location: Location
    base: int
    size: int


class RecordLookup:
    """Reads records of one store. `segments` are the files as they were when this was made, by offset.

    `stray` are the files that are named as segments, but are none (`segment_files`).
    """

    def __init__(self, store: Location, files: FileReaders) -> None:
        listed = list_segment_files(store)
        extents = clip_sizes([(int(info.base_name), info.size) for info in listed.segments])
        folder = store / COMMIT_LOG
        self.segments = [SegmentFile(folder / f"{base:020d}", base, size) for base, size in extents]
        self.stray = listed.stray
        self._bases = [base for base, _ in extents]
        self._files = files

    @property
    def min_offset(self) -> int:
        """The first segment's first offset (`CommitLog.getMinOffset`@5.3.3); -1 where there is no segment."""
        return self._bases[0] if self._bases else -1

    @property
    def max_offset(self) -> int:
        """The offset behind the last file, whatever is in it; -1 where there is no segment."""
        return self.segments[-1].base + self.segments[-1].size if self.segments else -1

    @cached_property
    def last_written_base(self) -> int:
        """The first offset of the last segment that does not begin with zeros; `min_offset` if all of them do.

        A broker creates the next one or two files in advance, filled with zeros (`AllocateMappedFileService`@5.3.3).
        Only the segment before those files can have stale records.
        """
        written = (file.base for file in reversed(self.segments) if self.read(file.base, FRAME.size) != _ZEROS)
        return next(written, self.min_offset)

    def segment_of(self, commit_log_offset: int) -> SegmentFile | None:
        """The segment that holds the offset."""
        index = bisect_right(self._bases, commit_log_offset) - 1
        if index < 0 or commit_log_offset >= self._bases[index] + self.segments[index].size:
            return None
        return self.segments[index]

    def read(self, commit_log_offset: int, length: int) -> bytes:
        """Bytes of the segment that holds the offset, up to its end; none where no segment does."""
        segment = self.segment_of(commit_log_offset)
        if segment is None:
            return b""
        position = commit_log_offset - segment.base
        return self._files.read(segment.location, position, min(length, segment.size - position))

    def record(self, commit_log_offset: int, store_size: int | None = None) -> Record:
        """The record that starts at the offset; `store_size`, if known, is read at once.

        Raises `CorruptLogError`, which names the segment and says what is there instead.
        """
        segment = self.segment_of(commit_log_offset)
        if segment is None:
            raise CorruptLogError(f"no segment contains commit log offset {commit_log_offset}")
        if store_size is not None:
            wanted = min(max(store_size, FRAME.size), MAX_RECORD_SIZE)
        else:
            wanted = MIN_RECORD_SIZE if segment.location.is_local else _FIRST_READ
        data = self.read(commit_log_offset, wanted)
        if len(data) >= FRAME.size:
            size = FRAME.unpack_from(data)[0]
            if len(data) < size <= MAX_RECORD_SIZE:
                data += self.read(commit_log_offset + len(data), size - len(data))
        try:
            return decode_record(data, 0, commit_log_offset)
        except CorruptLogError as error:
            reason = str(error).removeprefix("record at 0: ")
            raise CorruptLogError(f"{segment.location}: no record at {commit_log_offset}: {reason}") from error

    def is_at(self, commit_log_offset: int, store_size: int) -> bool:
        """Whether a record of this size that says it lies there starts at the offset; reads its head only."""
        head = self.read(commit_log_offset, BORN_HOST_AT)
        if len(head) < BORN_HOST_AT:
            return False
        said = FRAME.unpack_from(head)[0], _INT64.unpack_from(head, COMMIT_LOG_OFFSET_AT)[0]
        return bool(said == (store_size, commit_log_offset))

    def store_timestamp(self, commit_log_offset: int) -> int:
        """The store time of the record at the offset, milliseconds; -1 where no segment has its bytes.

        As `CommitLog.pickupStoreTimestamp`@5.3.3 it takes on trust that a record starts there.
        """
        found = store_timestamp_of(self.read(commit_log_offset, HEAD_SIZE))
        return -1 if found is None else found
