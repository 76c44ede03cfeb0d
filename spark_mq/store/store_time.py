"""Leaving out splits whose records were all stored outside a time range, by looking at a few records only.

Store times grow along the log, but for a broker whose clock was set back, and a record that is found inside a segment
can be a fake in somebody's body. So nothing is left out on the word of one record. A split is late if the first records
of it and of all splits behind it are, and one at least `LOOK_BACK` bytes before it is too; it is early if all records
seen up to one `LOOK_BACK` behind it are. Times count as early and late by more than `CLOCK_TOLERANCE_MILLIS`.

Of a long log only the segments' first records are looked at, and then the splits of the segments at both ends of the
range. This module runs while Spark plans: plain Python, no numba.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import COMMIT_LOG_OFFSET_AT, LOOK_BACK, MAGIC_AT, MAGIC_V1, MAGIC_V2, decode_record
from spark_mq.store.splits import Split

CLOCK_TOLERANCE_MILLIS = 60_000
"""By how much a broker's clock may be set back between two looks without a record being missed."""

_OUTER_SEGMENTS = 2
_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1
_PROBE_SIZES = (64 << 10, 1 << 20, LOOK_BACK)
_OWN_OFFSET = struct.Struct(">q")
_MAGICS = tuple(struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2))


def within_time(splits: Sequence[Split], start: int | None, end: int | None) -> list[Split]:
    """The splits that can hold records stored from `start` to `end` (milliseconds, both included; None is open)."""
    if start is None and end is None:
        return list(splits)
    segments: dict[int, list[Split]] = {}
    for split in splits:
        segments.setdefault(split.segment.base, []).append(split)
    kept = _kept([group[0] for group in segments.values()], start, end)
    groups = [segments[first.segment.base] for first in kept]
    if len(groups) <= 2 * _OUTER_SEGMENTS:
        return _kept([split for group in groups for split in group], start, end)
    head, middle, tail = groups[:_OUTER_SEGMENTS], groups[_OUTER_SEGMENTS:-_OUTER_SEGMENTS], groups[-_OUTER_SEGMENTS:]
    # The middle's ends stand for the splits on the other side, and are kept whatever is said of them.
    early = _kept([*_flat(head), middle[0][0]], start, None)
    late = _kept([middle[-1][0], *_flat(tail)], None, end)
    inner = [split for split in (*early, *late) if split not in (middle[0][0], middle[-1][0])]
    return sorted([*inner, *_flat(middle)], key=_offset)


def _flat(groups: Sequence[Sequence[Split]]) -> list[Split]:
    return [split for group in groups for split in group]


def _offset(split: Split) -> int:
    return split.segment.base + split.start


def _kept(splits: Sequence[Split], start: int | None, end: int | None) -> list[Split]:
    """The splits that are neither early nor late, by the first records of all of them."""
    times = [_first_store_time(split) for split in splits]
    newest_up_to = list(accumulate((_EARLIEST if time is None else time for time in times), max))
    oldest_from = list(accumulate((_LATEST if time is None else time for time in reversed(times)), min))[::-1]
    first_early = _EARLIEST if start is None else start - CLOCK_TOLERANCE_MILLIS
    last_late = _LATEST if end is None else end + CLOCK_TOLERANCE_MILLIS
    seen = [index for index, time in enumerate(times) if time is not None]
    kept = []
    for index, split in enumerate(splits):
        stop = split.segment.base + split.stop
        behind = next((i for i in seen if i > index and _offset(splits[i]) >= stop + LOOK_BACK), None)
        before = [i for i in seen if i < index and _offset(splits[i]) <= _offset(split) - LOOK_BACK]
        is_early = behind is not None and newest_up_to[behind] < first_early
        is_late = bool(before) and oldest_from[before[-1]] > last_late
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
        if position < 0 or own_at + _OWN_OFFSET.size > len(data):
            continue
        if _OWN_OFFSET.unpack_from(data, own_at)[0] != commit_log_offset + position:
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
