"""Whether the splits of each segment fitted together, so that together they are one hop over the log.

A split's first record must be where the split before it ended. Bodies can look like records, and damage can lie astride
two splits, so this can fail; then the segment is read again as one split. The last segment must also be plain:
no corrupt range and no store time that steps back, for either can be the live end (`store.live_reader`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from spark_mq.indexer.split_rows import SplitRow


def misaligned_segments(rows: Iterable[SplitRow], last_segment: int) -> list[int]:
    """The offsets of segments whose splits do not fit together; `rows` in the order of the log."""
    again = []
    for segment, group in groupby(rows, key=lambda row: row.segment):
        splits = list(group)
        if not _fit_together(splits) or (segment == last_segment and not _is_plain(splits)):
            again.append(segment)
    return again


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


def _is_plain(splits: Sequence[SplitRow]) -> bool:
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
