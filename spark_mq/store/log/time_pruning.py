"""Which splits a time range needs: whole segments are left out while Spark plans, splits when they are read.

Store times grow along the log, unless a broker's clock was set back. This module assumes that a clock is set back by at
most `CLOCK_TOLERANCE_MILLIS`. So if a record was stored later than a time by more than this tolerance, all records
after it were stored later than that time. If a record was stored earlier by more than this, all records before it were.

While Spark plans, one record of each segment is read, the first. A body cannot pretend to be this record, because the
record starts at the segment's start. But its time can be damaged, so one record alone never decides. A segment is early
if the first records of two segments after it are early. A segment is late if its own first record and that of a
segment before it are late. All segments further on that side must agree, so that a clock that was set back for good is
noticed.

The segments at the edges of the time range can contain splits that are outside it. Such splits are marked, and
`split_reader` checks more of their records. This module is plain Python: no numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from spark_mq.format.record import HEAD_SIZE, read_store_timestamp
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS
from spark_mq.io.file_reader import FileReader
from spark_mq.store.log.commit_log import Segment
from spark_mq.store.log.splits import Split

CLOCK_TOLERANCE_MILLIS = 60_000
"""Milliseconds by which a broker's clock may be set back without a record being missed."""


def within_time(splits: Sequence[Split], start: int | None, end: int | None) -> list[Split]:
    """The splits that can contain records stored from `start` to `end` (milliseconds, both included; None is open).

    `splits` must be in the order of the log. Splits at the edges of the time range get a `skip_before` and a
    `skip_after`, except in the last segment, whose splits are scanned from the segment's start anyway.
    """
    if start is None and end is None:
        return list(splits)
    skip_before = EARLIEST_MILLIS if start is None else start - CLOCK_TOLERANCE_MILLIS
    skip_after = LATEST_MILLIS if end is None else end + CLOCK_TOLERANCE_MILLIS
    segments = {split.segment.base: split.segment for split in splits}
    times = [(base, time) for base, segment in segments.items() if (time := _first_store_time(segment)) is not None]
    early = [base for base, _ in takewhile(lambda look: look[1] < skip_before, times)]
    late = [base for base, _ in takewhile(lambda look: look[1] > skip_after, reversed(times))]
    kept = []
    for split in splits:
        segment = split.segment
        is_early = len(early) >= 2 and early[-2] >= segment.end_offset
        is_late = len(late) >= 2 and late[-2] <= segment.base
        if is_early or is_late:
            continue
        begins_early = not segment.is_last and bool(early) and early[-1] >= segment.base
        ends_late = not segment.is_last and bool(late) and late[-1] <= segment.end_offset
        kept.append(
            replace(
                split,
                skip_before=skip_before if begins_early else None,
                skip_after=skip_after if ends_late else None,
            )
        )
    return kept


def _first_store_time(segment: Segment) -> int | None:
    """The store time of the record at the segment's start; None if there is none."""
    with FileReader(segment.location) as file:
        return read_store_timestamp(file.read(0, min(HEAD_SIZE, segment.size)), segment.base)
