"""Which record a byte range of a segment begins with, decided from the bytes just before it.

A split owns the records that start in it, but where it begins is in the middle of some record. Bodies can carry
anything, whole records with the right own offset too, so the first thing that looks like a record need not be one.
From one maximum record before the split on, every plausible record is taken as a beginning, and its hops are
followed to the split. If all arrive at the same place, that is the split's first record. If not, the bytes do not
decide, and the caller has to hop from the segment's start.

Two things can still deceive it: a record longer than `LOOK_BACK` whose body is full of fakes, and a fake that reaches
from a body over a damaged record into the split. A job that must not be deceived compares where splits end and begin.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format._kernel import kernel
from spark_mq.format.big_endian import Bytes, Int64s
from spark_mq.format.record import MIN_RECORD_SIZE
from spark_mq.format.scan import BLANK, FRAME_DTYPE, MORE, RECORD, STOP, Frames, find_frame, read_frame

UNDECIDED = -1


def first_record(buffer: Bytes, split_start: int, base: int, end: int) -> int:
    """The index of the first record (or filler) at or behind index `split_start`, or `UNDECIDED`.

    `buffer` begins `LOOK_BACK` before the split and reaches behind its start by as much, where the segment does.
    """
    scratch = np.recarray(1, FRAME_DTYPE)
    most = split_start // MIN_RECORD_SIZE + 2
    starts, nexts = np.empty(most, np.int64), np.empty(most, np.int64)
    count = _plausible_records(buffer, split_start, base, end, starts, nexts, scratch)
    if count <= 0:
        return UNDECIDED
    return _common_arrival(buffer, split_start, base, end, starts[:count], nexts[:count], scratch)


@kernel
def _plausible_records(
    buffer: Bytes, stop: int, base: int, end: int, starts: Int64s, nexts: Int64s, scratch: Frames
) -> int:
    count = 0
    position = 0
    while count < starts.size:
        position, found = find_frame(buffer, position, stop, base, end, scratch)
        if found == STOP:
            return count
        if found == MORE:
            return UNDECIDED
        starts[count] = position
        nexts[count] = end if found == BLANK else position + scratch[0].store_size
        count += 1
        position += 1
    return UNDECIDED


@kernel
def _common_arrival(
    buffer: Bytes, split_start: int, base: int, end: int, starts: Int64s, nexts: Int64s, scratch: Frames
) -> int:
    arrivals = np.empty(starts.size, np.int64)
    for index in range(starts.size - 1, -1, -1):
        after = nexts[index]
        if after < split_start:
            following = np.searchsorted(starts, after)
            if following < starts.size:
                arrivals[index] = arrivals[following]
                continue
        arrivals[index] = _arrival_behind(buffer, max(after, split_start), after, base, end, scratch)
    for index in range(arrivals.size):
        if arrivals[index] == UNDECIDED or arrivals[index] != arrivals[0]:
            return UNDECIDED
    return int(arrivals[0])


@kernel
def _arrival_behind(buffer: Bytes, position: int, after: int, base: int, end: int, scratch: Frames) -> int:
    if after >= end:
        return end
    if position == after:
        found = read_frame(buffer, after, base, end, scratch[0])
        return UNDECIDED if found == MORE else after  # damage that begins here is the split's
    position, found = find_frame(buffer, position, min(end, buffer.size), base, end, scratch)
    return position if found in (RECORD, BLANK) else UNDECIDED
