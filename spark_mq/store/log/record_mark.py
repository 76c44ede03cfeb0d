"""Marks: which record was at an offset of the log, so that a later reader sees whether it is still there.

A broker that recovers from a crash truncates its log and then continues to write
(`CommitLog.recoverAbnormally`@5.3.3); so does a replica that joins a new master. New records can have the sizes of the
lost ones, and then every later offset looks right. A record itself never changes, and two records have different bytes:
their store times differ, and so does their content.

This module is plain Python: it runs while Spark plans.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import MAX_RECORD_SIZE, MIN_RECORD_SIZE
from spark_mq.store.log.record_lookup import RecordLookup


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
    try:
        record = records.record(commit_log_offset)
    except CorruptLogError:
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
