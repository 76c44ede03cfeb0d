"""Splits: byte ranges of the commit log that tasks read independently, and that together are the log.

A split owns the records and corrupt ranges that start in it. `split_reader` reads one split. This module is plain
Python: it runs while Spark plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_mq.store.log.commit_log import CommitLog, Segment

DEFAULT_SPLIT_SIZE = 128 << 20


@dataclass(frozen=True)
class Split:
    """The records of `segment` that start at position `start` or later, and before `stop`.

    Attributes:
        start: The first position in the segment.
        stop: The position after the last one.
        skip_before: A reader may skip the split if a sample shows that all its records were stored before this time
            (milliseconds). None disables the check.
        skip_after: The same for records that were stored after this time.
        is_start_known: Whether `start` was a boundary when the split was planned: a record, a blank or a corrupt range
            started there. The broker can have truncated and rewritten its log since.
        is_stop_known: Whether `stop` was a boundary when the split was planned.
    """

    segment: Segment
    start: int
    stop: int
    skip_before: int | None = None
    skip_after: int | None = None
    is_start_known: bool = False
    is_stop_known: bool = False


def plan_splits(log: CommitLog, split_size: int) -> list[Split]:
    """The splits of the whole log, in its order, of at most `split_size` bytes.

    The last segment of a store that is not local is one split. Each split of a last segment is scanned from the
    segment's start, which would cost more over a network than the parallel reading saves.
    """
    splits = []
    for segment in log.segments:
        step = split_size if segment.location.is_local or not segment.is_last else segment.data_end
        for start in range(0, segment.data_end, step):
            splits.append(Split(segment, start, min(start + step, segment.data_end)))
    return splits


def within_offsets(splits: Sequence[Split], start: int, stop: int) -> list[Split]:
    """The parts of `splits` from the commit log offset `start` on, and before `stop`."""
    kept = []
    for split in splits:
        base = split.segment.base
        kept_start, kept_stop = max(split.start, start - base), min(split.stop, stop - base)
        if kept_start < kept_stop:
            kept.append(replace(split, start=kept_start, stop=kept_stop))
    return kept
