"""Leaving out what was stored outside a time range: whole segments while Spark plans, splits where they are read.

Store times grow along the log, but for a broker whose clock was set back: by `CLOCK_TOLERANCE_MILLIS` at most, is what
is trusted here. So where one record was stored later than a time by more than that, all behind it were stored later;
where one was stored earlier, all before it were.

While Spark plans, one record of each segment is looked at, its first: no body can pretend to be it, for it begins where
the segment does. But its time may be damaged, and nothing is left out on the word of one record. So a segment is early
if the first records of two segments behind it are, and late if its own and that of one before it are. Lest a clock that
was set back for good is missed, all segments on that side of these must be, too.

Of the segments that are kept, those at the edges of the range can hold splits that are outside. Their splits are
marked; `split_reader` looks at more of their records. This module is plain Python: no numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from spark_mq.format.record import HEAD_SIZE, read_store_timestamp
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS
from spark_mq.store.log.commit_log import Segment
from spark_mq.store.log.splits import Split

CLOCK_TOLERANCE_MILLIS = 60_000
"""By how much a broker's clock may be set back without a record being missed."""


def within_time(splits: Sequence[Split], start: int | None, end: int | None) -> list[Split]:
    """The splits that can hold records stored from `start` to `end` (milliseconds, both included; None is open).

    `splits` in the order of the log. At the edges of the range they get a `skip_before` and a `skip_after`; not in the
    last segment, of which each split takes a hop from its start.
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
    with segment.location.filesystem.open_input_file(segment.location.path) as file:
        return read_store_timestamp(file.read_at(min(HEAD_SIZE, segment.size), 0), segment.base)
