"""The units that a queue file must have: the inverse of its check (`spark_mq.verifier.queue_file`).

| queue offset | unit |
| --- | --- |
| before the first message of the log | that of the file if its message expired and it is in order, else pre-blank |
| of a message | the unit of the message |
| between two messages, without one | that of the file if it is one: the log is damaged there; else pre-blank |
| after the last message | zeros |
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Units, is_live, pre_blank
from spark_mq.verifier.log_bounds import LogBounds, Which
from spark_mq.verifier.queue_file import ExpectedFile


def sound_units(expected: ExpectedFile, existing: Units, bounds: LogBounds, tags_codes: Int64s | None = None) -> Units:
    """The units of a sound file, all of them.

    Args:
        expected: The units that the log has for the file.
        existing: The units of the damaged file; none if there is no file.
        bounds: Start and end of the log.
        tags_codes: The tags codes of the existing units, or those to which their addresses in `consumequeue_ext` lead.
            A unit whose tags code is right stays as it is; one whose address is wrong gets the tags code itself.

    """
    have = _of_size(existing, expected.capacity)
    result = _of_size(expected.units, expected.capacity).copy()
    for queue_offsets, units in expected.doubled:
        # A queue that was deleted and created again has the later one of two messages.
        at = queue_offsets - expected.start
        is_later = _bytes_of(units) == _bytes_of(have[at])
        result[at[is_later]] = units[is_later]
    has_message = result["store_size"] != 0
    if tags_codes is not None:
        codes = np.zeros(have.size, np.int64)
        codes[: tags_codes.size] = tags_codes[: have.size]
        is_same = (result["commit_log_offset"] == have["commit_log_offset"]) & has_message
        is_same &= (result["store_size"] == have["store_size"]) & (result["tags_code"] == codes)
        result[is_same] = have[is_same]
    live = is_live(have)
    offsets = have["commit_log_offset"].astype(np.int64)
    is_expired = _in_order(offsets, live & (offsets < bounds.start) & ~has_message)
    numbers = expected.start + np.arange(have.size)
    if expected.queue_min is None or expected.queue_max is None:
        good = is_expired | _is_pre_blank(have)
        stop = int(np.flatnonzero(good)[-1]) + 1 if good.any() else 0
        before = np.arange(have.size) < stop
        inner: Which = np.zeros(have.size, np.bool_)
    else:
        before = ~has_message & (numbers < expected.queue_min)
        inner = ~has_message & (numbers >= expected.queue_min) & (numbers < expected.queue_max)
    result[before | inner] = pre_blank(1)
    kept = (before & (is_expired | (live & bounds.is_lost(offsets)))) | (inner & live)
    result[kept] = have[kept]
    return result


def _in_order(offsets: np.ndarray[tuple[int], np.dtype[np.int64]], which: Which) -> Which:
    """Those of `which` whose offsets ascend: without the ones that are too large, or without those too small."""
    at = np.flatnonzero(which)
    chosen = offsets[at]
    largest_before = np.concatenate(([-1], np.maximum.accumulate(chosen)[:-1]))
    smallest_after = np.concatenate((np.minimum.accumulate(chosen[::-1])[::-1][1:], [np.iinfo(np.int64).max]))
    choices = [chosen > largest_before, chosen < smallest_after]
    best = max(choices, key=np.count_nonzero)
    result: Which = np.zeros(which.size, np.bool_)
    result[at[best]] = True
    return result


def _is_pre_blank(units: Units) -> Which:
    which: Which = _bytes_of(units) == _bytes_of(pre_blank(1))
    return which


def _bytes_of(units: Units) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.ascontiguousarray(units).view((np.void, UNIT_SIZE))


def _of_size(units: Units, size: int) -> Units:
    if units.size >= size:
        return units[:size]
    padded = np.zeros(size, UNIT_DTYPE)
    padded[: units.size] = units
    return padded
