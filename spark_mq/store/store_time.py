"""Leaving out splits whose records were all stored outside a time range, by looking at a few records only.

Store times grow along the log, but for a broker whose clock was set back. So nothing is left out on the word of one
record: a split is early only if all times seen up to the next split are, late only if all from it on are, and by
more than `CLOCK_TOLERANCE_MILLIS`. Of a long log only the segments' first records are looked at, and then the
splits of the segments at both ends of the range.

This module runs while Spark plans: plain Python, no numba.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import COMMIT_LOG_OFFSET_AT, MAGIC_AT, MAGIC_V1, MAGIC_V2, decode_record
from spark_mq.store.splits import Split

CLOCK_TOLERANCE_MILLIS = 60_000
"""By how much a broker's clock may be set back between two looks without a record being missed."""

_PROBE_SIZES = (64 << 10, 1 << 20, (4 << 20) + (128 << 10))
_OFFSET = struct.Struct(">q")
_MAGICS = tuple(struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2))


def within_time(splits: Sequence[Split], start: int | None, end: int | None) -> list[Split]:
    """The splits that can hold records stored from `start` to `end` (milliseconds, both included; None is open)."""
    if start is None and end is None:
        return list(splits)
    segments: dict[int, list[Split]] = {}
    for split in splits:
        segments.setdefault(split.segment.base, []).append(split)
    kept = _leave_out([group[0] for group in segments.values()], start, end)
    bases = [split.segment.base for split in kept]
    outer = bases[:2] + [base for base in bases[-2:] if base not in bases[:2]]
    result: list[Split] = []
    for base in bases:
        result += _leave_out(segments[base], start, end) if base in outer else segments[base]
    return result


def _leave_out(splits: Sequence[Split], start: int | None, end: int | None) -> list[Split]:
    times = [_first_store_time(split) for split in splits]
    newest_before = list(accumulate((time if time is not None else -(1 << 63) for time in times), max))
    oldest_behind = list(accumulate((time if time is not None else (1 << 63) for time in reversed(times)), min))[::-1]
    kept = []
    for index, split in enumerate(splits):
        following = next((i for i in range(index + 1, len(splits)) if times[i] is not None), None)
        is_early = (
            start is not None and following is not None and newest_before[following] < start - CLOCK_TOLERANCE_MILLIS
        )
        is_late = end is not None and oldest_behind[index] > end + CLOCK_TOLERANCE_MILLIS and times[index] is not None
        # A split may begin inside a record: what starts in it is not older than what the split before starts with.
        if not is_early and not is_late:
            kept.append(split)
    return kept


def _first_store_time(split: Split) -> int | None:
    """The store time of the first whole record in the split that can be found quickly; None if there is none."""
    segment = split.segment
    with segment.location.filesystem.open_input_file(segment.location.path) as file:
        for size in _PROBE_SIZES:
            data = file.read_at(min(size, segment.size - split.start), split.start)
            time = _find_store_time(data, segment.base + split.start)
            if time is not None or len(data) < size:
                return time
    return None


def _find_store_time(data: bytes, commit_log_offset: int) -> int | None:
    """The store time of the first record in `data`, whose first byte lies at `commit_log_offset`."""
    places = sorted(place for magic in _MAGICS for place in _occurrences(data, magic))
    for place in places:
        position = place - MAGIC_AT
        own_at = position + COMMIT_LOG_OFFSET_AT
        if position < 0 or own_at + _OFFSET.size > len(data):
            continue
        if _OFFSET.unpack_from(data, own_at)[0] != commit_log_offset + position:
            continue
        try:
            return decode_record(data, position, commit_log_offset + position).store_timestamp
        except CorruptLogError:
            continue
    return None


def _occurrences(data: bytes, piece: bytes) -> list[int]:
    places = []
    place = data.find(piece)
    while place >= 0:
        places.append(place)
        place = data.find(piece, place + 1)
    return places
