"""Parts of the commit log that start at a record, and their records one by one, without numba.

This module is for a few records. `split_reader` reads many, and continues after damage.

Records do not know the record before them. But a record stores its own size and commit log offset, and nothing except a
blank follows the last record of a segment. So the last bytes of the segment are searched for the beginning of such a
record.

A broker that recovers from a crash truncates its log and then continues to write
(`CommitLog.recoverAbnormally`@5.3.3); so does a replica that joins a new master. New records can have the sizes of the
lost ones, and then every later offset looks right. A record itself never changes, and two records have different bytes:
their store times differ, and so does their content.

This module is plain Python: it runs while Spark plans.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spark_mq.format.record import (
    BLANK_SIZE,
    COMMIT_LOG_OFFSET_AT,
    HEADER_SIZE,
    MAGIC_AT,
    MAX_BLANK_SIZE,
    MAX_RECORD_SIZE,
    MIN_RECORD_SIZE,
    Record,
    is_blank,
)
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.segment_files import MAGICS, CorruptRange, SegmentFile

_FIRST_LOOK = 16 << 10
_LOOK_FACTOR = 16
_MAX_LOOK = MAX_RECORD_SIZE + MAX_BLANK_SIZE
UNDISPATCHED = 256 << 10
"""Bytes at the end of a log in which messages may have no units yet. A broker dispatches a message in milliseconds."""


@dataclass(frozen=True)
class RecordMark:
    """One record: its offset and size in bytes, its store time in milliseconds, and the CRC-32 of its bytes."""

    commit_log_offset: int
    store_size: int
    store_timestamp: int
    crc: int

    @property
    def end_offset(self) -> int:
        """The commit log offset after the record."""
        return self.commit_log_offset + self.store_size

    def is_valid(self) -> bool:
        """Whether a record can have these values: they may come from a file."""
        return self.commit_log_offset >= 0 and MIN_RECORD_SIZE <= self.store_size <= MAX_RECORD_SIZE


def mark_of(records: RecordLookup, commit_log_offset: int) -> RecordMark | None:
    """The mark of the record at the offset; None if there is none."""
    record = records.find(commit_log_offset)
    if record is None:
        return None
    content = records.read(commit_log_offset, record.size)
    return RecordMark(commit_log_offset, record.size, record.store_timestamp, zlib.crc32(content))


def is_lost(records: RecordLookup, mark: RecordMark, live_end: int) -> bool:
    """Whether the log, which ends at `live_end`, no longer has the marked record at its offset.

    False if no segment contains the offset: the record expired, and nothing shows that it was lost.
    """
    if mark.end_offset > live_end:
        return True  # its bytes can still be there: a broker that truncates its log does not clear them
    if records.segment_of(mark.commit_log_offset) is None:
        return False
    return zlib.crc32(records.read(mark.commit_log_offset, mark.store_size)) != mark.crc


def thin_out(marks: Sequence[RecordMark], end: int) -> tuple[RecordMark, ...]:
    """A few of the marks (the newest first) of a log that was read up to `end`, denser towards the end.

    The newest mark is kept. Of the other marks, the oldest in each block of the log is kept. The size of a block is a
    power of four bytes, and larger than its distance from `end`. So a log of any length has about 30 blocks, and a
    kept mark stays the oldest of its block while the log grows, until an older mark falls into the same block.
    """
    oldest: dict[tuple[int, int], RecordMark] = {}
    for mark in marks[1:]:
        bits = (end - mark.commit_log_offset).bit_length() // 2 * 2 + 2
        oldest[bits, mark.commit_log_offset >> bits] = mark
    return (*marks[:1], *oldest.values())


def newest_record(records: RecordLookup, segment: SegmentFile, log_end: int) -> Record | None:
    """The last live record of a segment; None if none is found near the segment's end."""
    end = min(segment.end_offset, log_end)
    look, start = _FIRST_LOOK, end
    while start > segment.base and end - start < _MAX_LOOK:
        stop, start = start, max(segment.base, end - look)
        look *= _LOOK_FACTOR
        # A header can be cut by the border between two looks.
        data = records.read(start, min(stop + HEADER_SIZE, end) - start)
        for position in _headers(data, start):
            record = _last_record_at(records, start + position, end)
            if record is not None:
                return record
    return None


def _headers(data: bytes, commit_log_offset: int) -> Iterator[int]:
    """The positions of headers of records that store their own commit log offset, the last one first."""
    stop = len(data)
    while (at := max(data.rfind(magic, MAGIC_AT, stop) for magic in MAGICS)) >= 0:
        position = at - MAGIC_AT
        own = data[position + COMMIT_LOG_OFFSET_AT : position + COMMIT_LOG_OFFSET_AT + 8]
        if own == (commit_log_offset + position).to_bytes(8, "big"):
            yield position
        stop = at + len(MAGICS[0]) - 1


def _last_record_at(records: RecordLookup, commit_log_offset: int, end: int) -> Record | None:
    """The record at the offset, if it ends at `end`, or if only a blank follows it."""
    record = records.find(commit_log_offset)
    record_end = commit_log_offset + (0 if record is None else record.size)
    return record if record_end == end or end_of_blank(records, record_end) == end else None


@dataclass(frozen=True)
class LogRange:
    """The records that start at commit log offset `start` or later, and before `stop`."""

    start: int
    stop: int

    def __contains__(self, commit_log_offset: int) -> bool:
        return self.start <= commit_log_offset < self.stop

    @property
    def size(self) -> int:
        """Bytes of the range, including blanks and gaps between segments."""
        return self.stop - self.start


@dataclass(frozen=True)
class LiveEnd:
    """Where a log ends.

    Attributes:
        offset: The commit log offset after the last live record (`CommitLog.getMaxOffset`@5.3.3); -1 for an empty log.
        last_record: The offset at which that record starts; None if the search did not read it.
        uncertain_from: The offset of the first record that counts as live only because nothing proves that it is stale:
            the record before it is newer. It and all later ones can be stale. None if there is no such record.
        is_dispatched: Whether all messages have their units, because the broker stopped cleanly.
    """

    offset: int
    last_record: int | None = None
    uncertain_from: int | None = None
    is_dispatched: bool = True

    @property
    def certain(self) -> int:
        """The commit log offset up to which no record can be stale."""
        return self.offset if self.uncertain_from is None else min(self.uncertain_from, self.offset)

    @property
    def dispatched(self) -> int:
        """The commit log offset before which units of queues are not stale.

        A unit stays stale until its message is dispatched. By chance, it can lead to its message before.
        """
        return self.certain if self.is_dispatched else self.certain - UNDISPATCHED


def range_of(corrupt: CorruptRange) -> LogRange:
    """The part of the log that is corrupt."""
    return LogRange(corrupt.commit_log_offset, corrupt.commit_log_offset + corrupt.length)


def iterate_records(records: RecordLookup, log_range: LogRange) -> Iterator[Record]:
    """The records of a range that starts with a record or a blank, in order."""
    offset = log_range.start
    while offset < log_range.stop:
        if (blank_end := end_of_blank(records, offset)) is not None:
            offset = blank_end
            continue
        offset = records.after_heads(offset)
        if offset < log_range.stop:
            record = records.record(offset)
            yield record
            offset += record.size


def end_of_blank(records: RecordLookup, commit_log_offset: int) -> int | None:
    """The end of the blank that starts at the offset, which is its segment's end; None if no blank starts there."""
    commit_log_offset = records.after_heads(commit_log_offset)
    segment = records.segment_of(commit_log_offset)
    if segment is None:
        return None
    head, end = records.read(commit_log_offset, BLANK_SIZE), segment.end_offset
    return end if is_blank(head, end - commit_log_offset) else None


def next_record(records: RecordLookup, commit_log_offset: int) -> int:
    """The offset of the record after the record that starts at the offset."""
    record_end = commit_log_offset + records.record(commit_log_offset).size
    blank_end = end_of_blank(records, record_end)
    return record_end if blank_end is None else blank_end


def between(parts: Iterable[tuple[int, int]], start: int, stop: int) -> list[LogRange]:
    """The ranges from `start` to `stop` that are not in `parts`: the start and stop of each part, in order."""
    ranges = []
    for part_start, part_stop in parts:
        if start < min(part_start, stop):
            ranges.append(LogRange(start, min(part_start, stop)))
        start = max(start, part_stop)
    if start < stop:
        ranges.append(LogRange(start, stop))
    return ranges


def rest(whole: LogRange, parts: Iterable[LogRange]) -> list[LogRange]:
    """What `parts`, which are in order, leave of `whole`."""
    return between(((part.start, part.stop) for part in parts), whole.start, whole.stop)


def cut(parts: Iterable[LogRange], within: LogRange) -> list[LogRange]:
    """The parts of `parts` that are in `within`."""
    inside = (LogRange(max(part.start, within.start), min(part.stop, within.stop)) for part in parts)
    return [part for part in inside if part.size > 0]


def merged(parts: Sequence[LogRange], distance: int) -> list[LogRange]:
    """The ranges, which are ordered by their starts; ranges with less than `distance` bytes between them become one."""
    result: list[LogRange] = []
    for part in parts:
        if result and part.start - result[-1].stop < distance:
            result[-1] = LogRange(result[-1].start, max(result[-1].stop, part.stop))
        else:
            result.append(part)
    return result


def joined(parts: Iterable[LogRange], most: int | None = None) -> list[LogRange]:
    """The same bytes of the log as ranges in order, none of which touches another one.

    With `most`, they are at most so many: the last one is all that is left, with what is between.
    """
    result = merged(sorted(parts, key=lambda part: part.start), 1)
    if most is not None and len(result) > most:
        result[most - 1 :] = [LogRange(result[most - 1].start, result[-1].stop)]
    return result
