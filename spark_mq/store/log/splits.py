"""Byte ranges of the commit log that tasks read on their own, and exactly: their union is the log.

A split owns the records (and corrupt ranges) that start in it. `split_reader` reads one. This module is plain Python:
it runs while Spark plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_mq.store.log.commit_log import CommitLog, Segment

DEFAULT_SPLIT_SIZE = 128 << 20


@dataclass(frozen=True)
class Split:
    """The records of `segment` that start at index `start` or behind it, and before `stop`.

    `skip_before` and `skip_after` (milliseconds): the split is to be skipped if all its records were stored before the
    one, or after the other, as far as a look at a part of the log can tell. None: no look is worth while.

    `is_start_known`, `is_stop_known`: something starts (a record, a blank, a corrupt range) or has ended just there,
    unless the log was cut and written anew since.
    """

    segment: Segment
    start: int
    stop: int
    skip_before: int | None = None
    skip_after: int | None = None
    is_start_known: bool = False
    is_stop_known: bool = False


def plan_splits(log: CommitLog, split_size: int) -> list[Split]:
    """The splits of the whole log, in its order.

    The last segment of a store that is not local is one split: each split of it hops from the segment's start, and
    over a network that would cost more than it saves.
    """
    splits = []
    for segment in log.segments:
        step = split_size if segment.location.is_local or not segment.is_last else segment.data_end
        for start in range(0, segment.data_end, step):
            splits.append(Split(segment, start, min(start + step, segment.data_end)))
    return splits


def within_offsets(splits: Sequence[Split], start: int, stop: int) -> list[Split]:
    """The parts of splits that own what starts at the commit log offset `start` or behind it, and before `stop`."""
    kept = []
    for split in splits:
        base = split.segment.base
        first, last = max(split.start, start - base), min(split.stop, stop - base)
        if first < last:
            kept.append(replace(split, start=first, stop=last))
    return kept
