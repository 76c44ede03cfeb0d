"""Parts of the commit log, from one record to another, and their records one by one: no numba.

For a few records; `split_reader` reads many, and over damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spark_mq.format.record import BLANK_SIZE, Record, is_blank
from spark_mq.store.log.record_lookup import RecordLookup


@dataclass(frozen=True)
class LogRange:
    """The records that start at commit log offset `start` or behind it, and before `stop`."""

    start: int
    stop: int

    def __contains__(self, commit_log_offset: int) -> bool:
        return self.start <= commit_log_offset < self.stop

    @property
    def size(self) -> int:
        """Bytes, blanks and gaps between segments among them."""
        return self.stop - self.start


def iterate_records(records: RecordLookup, log_range: LogRange) -> Iterator[Record]:
    """The records of a range that begins with one, or with a blank.

    Raises `CorruptLogError` where anything else lies.
    """
    offset = log_range.start
    while offset < log_range.stop:
        if (behind := end_of_blank(records, offset)) is not None:
            offset = behind
            continue
        record = records.record(offset)
        yield record
        offset += record.size


def end_of_blank(records: RecordLookup, commit_log_offset: int) -> int | None:
    """The offset behind the blank that starts at the offset, which is its segment's end; None where there is none."""
    segment = records.segment_of(commit_log_offset)
    if segment is None:
        return None
    head = records.read(commit_log_offset, BLANK_SIZE)
    end = segment.base + segment.size
    return end if is_blank(head, end - commit_log_offset) else None


def next_record(records: RecordLookup, commit_log_offset: int) -> int:
    """The offset of the record behind the one that starts at the offset.

    Raises `CorruptLogError` where none starts there.
    """
    behind = commit_log_offset + records.record(commit_log_offset).size
    filler_end = end_of_blank(records, behind)
    return behind if filler_end is None else filler_end


def between(parts: Iterable[tuple[int, int]], start: int, stop: int) -> list[LogRange]:
    """What lies from `start` to `stop` beside `parts` (start and stop of each, in their order)."""
    ranges = []
    for part_start, part_stop in parts:
        if start < min(part_start, stop):
            ranges.append(LogRange(start, min(part_start, stop)))
        start = max(start, part_stop)
    if start < stop:
        ranges.append(LogRange(start, stop))
    return ranges
