"""The newest record of a segment, found from the segment's end without a scan.

Records do not know the record before them. But a record stores its own size and commit log offset, and nothing except a
blank follows the last record of a segment. So the last bytes of the segment are searched for the beginning of such a
record.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import (
    COMMIT_LOG_OFFSET_AT,
    HEADER_SIZE,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MAX_BLANK_SIZE,
    MAX_RECORD_SIZE,
    Record,
)
from spark_mq.store.log.log_range import end_of_blank
from spark_mq.store.log.record_lookup import RecordLookup, SegmentFile

_FIRST_LOOK = 16 << 10
_LOOK_FACTOR = 16
_MAX_LOOK = MAX_RECORD_SIZE + MAX_BLANK_SIZE
_MAGICS = tuple(magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2))


def newest_record(records: RecordLookup, segment: SegmentFile, log_end: int) -> Record | None:
    """The last live record of a segment; None if none is found near the segment's end.

    Args:
        segment: A segment that begins before `log_end`.
    """
    end = min(segment.base + segment.size, log_end)
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
    while (at := max(data.rfind(magic, MAGIC_AT, stop) for magic in _MAGICS)) >= 0:
        position = at - MAGIC_AT
        own = data[position + COMMIT_LOG_OFFSET_AT : position + COMMIT_LOG_OFFSET_AT + 8]
        if own == (commit_log_offset + position).to_bytes(8, "big"):
            yield position
        stop = at + len(_MAGICS[0]) - 1


def _last_record_at(records: RecordLookup, commit_log_offset: int, end: int) -> Record | None:
    """The record at the offset, if it ends at `end`, or if only a blank follows it."""
    try:
        record = records.record(commit_log_offset)
    except CorruptLogError:
        return None
    record_end = commit_log_offset + record.size
    return record if record_end == end or end_of_blank(records, record_end) == end else None
