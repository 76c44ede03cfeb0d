"""The staged entries that an index lacks: all entries, or those after the end of the existing index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_mq.format.array_types import Int64s
from spark_mq.indexer.staging.split_rows import SplitRow
from spark_mq.indexer.staging.staged_entries import EntryRange
from spark_mq.io.location import Location
from spark_mq.store.index.end import IndexEnd
from spark_mq.store.log.corrupt_range import CorruptRange


@dataclass(frozen=True)
class PendingEntries:
    """The entries that an index lacks, in the order of the log.

    Attributes:
        ranges: A range of staged entries for each split.
        trailing_messages: For each range, the number of messages of its split after the last entry.
        contradictions: Where log and index contradict each other.
    """

    ranges: tuple[EntryRange, ...]
    trailing_messages: Int64s
    contradictions: tuple[CorruptRange, ...] = ()

    @property
    def counts(self) -> Int64s:
        """The number of entries of each range."""
        return np.array([entry_range.count for entry_range in self.ranges], np.int64)


def pending_entries(splits: Sequence[SplitRow], folder: Location, end: IndexEnd | None) -> PendingEntries:
    """The staged entries that come after the end of an index.

    A message before the end is in the index. A kill can have cut the keys of the message at the end: the missing keys
    are pending. If the log starts after the end, all entries are pending.

    Args:
        splits: The splits of the log, or of its last part, in the order of the log.
        end: The end of the existing index; None if there is none.
    """
    ranges = []
    for split in splits:
        staged = split.staged_entries(folder)
        ranges.append(EntryRange(staged, 0, staged.count))
    if end is None or end.commit_log_offset < splits[0].start:
        return _pending(ranges, splits)
    offset = end.commit_log_offset
    number = next((n for n, split in enumerate(splits) if offset < split.segment + split.split_stop), len(splits))
    if number == len(splits):
        return _pending([], [], _contradiction(end, "the log ends before it"))
    staged = ranges[number].staged
    first, stop = staged.count_before(offset), staged.count_before(offset + 1)
    keys = [key for batch in EntryRange(staged, first, stop - first).read() for key in batch.key_hashes.tolist()]
    known = end.keys_in(keys)
    start = first + known if known else stop
    rest = [EntryRange(staged, start, staged.count - start), *ranges[number + 1 :]]
    if end.key_hashes and not known:
        contradiction = _contradiction(end, "the log has no message there with such keys")
        return _pending(rest, splits[number:], contradiction)
    return _pending(rest, splits[number:])


def _pending(ranges: Sequence[EntryRange], splits: Sequence[SplitRow], *contradictions: CorruptRange) -> PendingEntries:
    trailing_messages = np.array([split.trailing_messages for split in splits], np.int64)
    return PendingEntries(tuple(ranges), trailing_messages, contradictions)


def _contradiction(end: IndexEnd, what: str) -> CorruptRange:
    reason = (
        f"the index ends with a message at commit log offset {end.commit_log_offset}, but {what}; --replace rebuilds "
        "the index from the log"
    )
    return CorruptRange(str(end.file.location), end.commit_log_offset, 0, "CONTRADICTED_INDEX", reason)
