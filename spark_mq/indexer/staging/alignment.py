"""Whether the splits of each segment fit together, so that they give the same records as one scan of the segment.

A split's first record must be where the split before it ended. This can fail, because a body can look like a record and
damage can cross the border of two splits. Then the segment is read again as one split. The last segment must also be
monotonic, without a corrupt range and without a store time that steps back: either can be the live end
(`store/log/live_reader`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from spark_mq.indexer.staging.split_rows import SplitRow


def misaligned_segments(rows: Iterable[SplitRow], last_segment: int | None = None) -> list[int]:
    """The base offsets of segments that must be read again.

    Args:
        rows: The splits, in the order of the log.
        last_segment: The base offset of the log's last segment; None if the end of the log is known.
    """
    misaligned = []
    for segment, group in groupby(rows, key=lambda row: row.segment):
        splits = list(group)
        if not _fit_together(splits) or (segment == last_segment and not _is_monotonic(splits)):
            misaligned.append(segment)
    return misaligned


def _fit_together(splits: Sequence[SplitRow]) -> bool:
    expected = splits[0].split_start
    for split in splits:
        if expected >= split.split_stop:
            if split.first_position >= 0:
                return False
        elif split.first_position != expected:
            return False
        else:
            expected = split.end_position
    return True


def _is_monotonic(splits: Sequence[SplitRow]) -> bool:
    newest = None
    for split in splits:
        if split.corrupt or split.time_steps_back:
            return False
        if split.first_store_timestamp is None:
            continue
        if newest is not None and split.first_store_timestamp < newest:
            return False
        newest = split.last_store_timestamp
    return True
