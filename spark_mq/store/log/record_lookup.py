"""Single records of the commit log, by offset, without a scan and without numba.

A record that is found here is whole and consistent. `live_end` decides whether it is live.

A broker appends a record with one copy into its mapped file, from the first byte to the last (`DefaultMappedFile`,
`CommitLog.DefaultAppendMessageCallback`@5.3.3). A replica appends as many bytes as have arrived
(`DefaultHAClient`@5.3.3). A reader in between sees the beginning of the record, and zeros. The lengths are stored
before the text of the properties, so the framing of such a record is right too early. All records before it were
finished before the broker began it.

So the record that reaches a segment's `data_end` (after which there were only zeros when the segments were listed) is
read a second time, and counts only if it is finished. A broker's recovery, too, cuts the log before a record whose body
has another CRC (`CommitLog.recoverAbnormally`@5.3.3).

Records do not know the record before them. But a record stores its own size and commit log offset, and nothing except a
blank follows the last record of a segment. So to find that record, the last bytes of the segment are searched for the
beginning of such a one. `split_reader` reads many records, and continues after damage.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from spark_mq.errors import CorruptLogError
from spark_mq.format.dledger import HEAD_SIZE as ENTRY_HEAD_SIZE
from spark_mq.format.dledger import has_body, is_head
from spark_mq.format.record import (
    BLANK_SIZE,
    BORN_HOST_AT,
    COMMIT_LOG_OFFSET_AT,
    FRAME,
    HEAD_SIZE,
    HEADER_SIZE,
    MAGIC_AT,
    MAX_BLANK_SIZE,
    MAX_RECORD_SIZE,
    MIN_RECORD_SIZE,
    Record,
    decode_record,
    has_property_crc,
    is_blank,
    is_body_crc_wrong,
    is_property_crc_wrong,
    store_timestamp_of,
)
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.segment_files import RECORD_MAGIC, SegmentFile, list_segment_files

UNFINISHED = "UNFINISHED"
"""The code of an unfinished record. The log ends before this record, so no reader of a whole log returns it."""

UNFINISHED_REASON = "the last record is not whole: it is being written"
_FIRST_READ = 4 << 10
"""Bytes of the first read of a record of unknown size, if a read takes long: most records are shorter."""

_FIRST_LOOK = 16 << 10
_LOOK_FACTOR = 16
_MAX_LOOK = MAX_RECORD_SIZE + MAX_BLANK_SIZE
_ZEROS = bytes(FRAME.size)
_INT64 = struct.Struct(">q")


def is_finished(record: Record, stored: Callable[[], bytes]) -> bool:
    """Whether the record is written to its end, as far as its bytes show.

    The last byte of its text is not zero, and its CRCs are right. `stored` returns the bytes of the record. It is
    called only if the record has a property CRC.
    """
    text = record.properties or record.topic
    if text.endswith(b"\0") or is_body_crc_wrong(record):
        return False
    return not (has_property_crc(record.properties) and is_property_crc_wrong(stored(), record.properties))


@dataclass(frozen=True)
class NoRecord:
    """The answer of a look-up that finds no live record; `str` gives the reason, as text for a person.

    `is_expired` says that the record was before the first segment.
    """

    reason: str
    is_expired: bool = False

    def __str__(self) -> str:
        return self.reason


class RecordLookup:
    """Reads records of one store. `segments` are the files that existed when this object was created, by offset."""

    def __init__(self, store: Location, files: FileReaders) -> None:
        listed = list_segment_files(store)
        self.segments = listed.files
        self.has_entries = listed.entries is not None
        self.stray = listed.stray
        self._bases = [segment.base for segment in self.segments]
        self.store, self.files = store, files

    @property
    def min_offset(self) -> int:
        """The first segment's first offset (`CommitLog.getMinOffset`@5.3.3); -1 if there is no segment."""
        return self._bases[0] if self._bases else -1

    @property
    def max_offset(self) -> int:
        """The offset after the last file, whatever it contains; -1 if there is no segment."""
        return self.segments[-1].end_offset if self.segments else -1

    @cached_property
    def last_written_base(self) -> int:
        """The first offset of the last segment that does not begin with zeros; `min_offset` if all of them do.

        A broker creates the next one or two files in advance, filled with zeros (`AllocateMappedFileService`@5.3.3).
        Only the segment before those files can have stale records.
        """
        written = (file.base for file in reversed(self.segments) if self.read(file.base, FRAME.size) != _ZEROS)
        return next(written, self.min_offset)

    def is_before_last_written(self, commit_log_offset: int) -> bool:
        """Whether the offset is in a segment before the last written one, and so not after the live end."""
        last_file = self.segments[-1].base if self.segments else self.min_offset
        return commit_log_offset < last_file and commit_log_offset < self.last_written_base

    def segment_of(self, commit_log_offset: int) -> SegmentFile | None:
        """The segment that contains the offset; None if no segment does."""
        index = bisect_right(self._bases, commit_log_offset) - 1
        return self.segments[index] if index >= 0 and commit_log_offset < self.segments[index].end_offset else None

    def read(self, commit_log_offset: int, length: int) -> bytes:
        """`length` bytes from the offset on; fewer if its segment ends before, none if no segment contains it."""
        segment = self.segment_of(commit_log_offset)
        if segment is None:
            return b""
        position = commit_log_offset - segment.base
        return self.files.read(segment.location, position, min(length, segment.size - position))

    def after_heads(self, commit_log_offset: int) -> int:
        """The offset after the heads of DLedger entries that start at the offset; the same offset if none does."""
        while (segment := self.segment_of(commit_log_offset)) is not None and segment.has_entries:
            head = self.read(commit_log_offset, ENTRY_HEAD_SIZE)
            if not is_head(head, commit_log_offset):
                break
            commit_log_offset += ENTRY_HEAD_SIZE
            if has_body(head):
                break
        return commit_log_offset

    def announce(self, commit_log_offsets: Iterable[int]) -> None:
        """Let a disk read the heads of records at these offsets at a time."""
        self.files.announce(self.heads(commit_log_offsets))

    def heads(self, commit_log_offsets: Iterable[int]) -> list[tuple[Location, int, int]]:
        """Where the heads of records at these offsets are: a file, and the positions of the first byte and after it."""
        ranges = []
        for commit_log_offset in commit_log_offsets:
            segment = self.segment_of(commit_log_offset)
            if segment is not None:
                position = commit_log_offset - segment.base
                ranges.append((segment.location, position, position + MIN_RECORD_SIZE))
        return ranges

    def record(self, commit_log_offset: int, store_size: int | None = None) -> Record:
        """The record that starts at the offset. If `store_size` is known, one read is enough."""
        segment = self.segment_of(commit_log_offset)
        if segment is None:
            raise CorruptLogError(f"no segment contains commit log offset {commit_log_offset}")
        if store_size is not None:
            length = min(max(store_size, FRAME.size), MAX_RECORD_SIZE)
        else:
            length = MIN_RECORD_SIZE if segment.location.is_local else _FIRST_READ
        data = self.read(commit_log_offset, length)
        if len(data) >= FRAME.size:
            size = FRAME.unpack_from(data)[0]
            if len(data) < size <= MAX_RECORD_SIZE:
                data += self.read(commit_log_offset + len(data), size - len(data))
        try:
            return decode_record(data, 0, commit_log_offset)
        except CorruptLogError as error:
            reason = str(error).removeprefix("record at 0: ")
            raise CorruptLogError(f"{segment.location}: no record at {commit_log_offset}: {reason}") from error

    def find(self, commit_log_offset: int, store_size: int | None = None) -> Record | None:
        """As `record`; None if no whole record is there."""
        try:
            return self.record(commit_log_offset, store_size)
        except CorruptLogError:
            return None

    def is_at(self, commit_log_offset: int, store_size: int) -> bool:
        """Whether the head of a record with this size and this commit log offset is at the offset."""
        return _is_head(self.read(commit_log_offset, BORN_HOST_AT), commit_log_offset, store_size)

    def store_timestamp_at(self, commit_log_offset: int, store_size: int) -> int | None:
        """The store time of the record with this size at the offset, in milliseconds; None if `is_at` is False.

        -1 if the segment ends before the store time.
        """
        head = self.read(commit_log_offset, HEAD_SIZE)
        if not _is_head(head, commit_log_offset, store_size):
            return None
        store_timestamp = store_timestamp_of(head)
        return -1 if store_timestamp is None else store_timestamp

    def store_timestamp(self, commit_log_offset: int) -> int:
        """The store time of the record at the offset, in milliseconds; -1 if no segment has its bytes.

        As in `CommitLog.pickupStoreTimestamp`@5.3.3, nothing checks that a record starts at the offset.
        """
        store_timestamp = store_timestamp_of(self.read(commit_log_offset, HEAD_SIZE))
        return -1 if store_timestamp is None else store_timestamp

    def iterate(self, log_range: LogRange) -> Iterator[Record]:
        """The records of a range that starts with a record or a blank, in order."""
        offset = log_range.start
        while offset < log_range.stop:
            if (blank_end := self.end_of_blank(offset)) is not None:
                offset = blank_end
                continue
            offset = self.after_heads(offset)
            if offset < log_range.stop:
                record = self.record(offset)
                yield record
                offset += record.size

    def end_of_blank(self, commit_log_offset: int) -> int | None:
        """The end of the blank that starts at the offset, which is its segment's end; None if no blank starts there."""
        commit_log_offset = self.after_heads(commit_log_offset)
        segment = self.segment_of(commit_log_offset)
        if segment is None:
            return None
        head, end = self.read(commit_log_offset, BLANK_SIZE), segment.end_offset
        return end if is_blank(head, end - commit_log_offset) else None

    def next_offset(self, commit_log_offset: int) -> int:
        """The offset of the record after the record that starts at the offset."""
        record_end = commit_log_offset + self.record(commit_log_offset).size
        blank_end = self.end_of_blank(record_end)
        return record_end if blank_end is None else blank_end

    def newest_in(self, segment: SegmentFile, log_end: int) -> Record | None:
        """The last live record of a segment; None if none is found near the segment's end."""
        end = min(segment.end_offset, log_end)
        look, start = _FIRST_LOOK, end
        while start > segment.base and end - start < _MAX_LOOK:
            stop, start = start, max(segment.base, end - look)
            look *= _LOOK_FACTOR
            # A header can be cut by the border between two looks.
            data = self.read(start, min(stop + HEADER_SIZE, end) - start)
            for magic in reversed(list(RECORD_MAGIC.finditer(data, MAGIC_AT))):
                position, offset = magic.start() - MAGIC_AT, start + magic.start() - MAGIC_AT
                if not data.startswith(_INT64.pack(offset), position + COMMIT_LOG_OFFSET_AT):
                    continue
                record = self.find(offset)
                record_end = offset + (0 if record is None else record.size)
                if record is not None and (record_end == end or self.end_of_blank(record_end) == end):
                    return record
        return None


def _is_head(head: bytes, commit_log_offset: int, store_size: int) -> bool:
    """Whether these bytes begin a record with this size and this commit log offset."""
    if len(head) < BORN_HOST_AT:
        return False
    stored = FRAME.unpack_from(head)[0], _INT64.unpack_from(head, COMMIT_LOG_OFFSET_AT)[0]
    return bool(stored == (store_size, commit_log_offset))
