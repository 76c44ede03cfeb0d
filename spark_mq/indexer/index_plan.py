"""The staged entries that an index lacks, and which of them go into which file: here the index rolls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np

from spark_mq.format.array_types import Int64s
from spark_mq.format.index_file import IndexHeader, IndexLayout, IndexPlacement, place_entries
from spark_mq.indexer.split_rows import SplitRow
from spark_mq.indexer.staged_files import EntryRange
from spark_mq.io.location import Location
from spark_mq.store.index.folder import IndexEnd, index_file_names
from spark_mq.store.log.segment_files import CorruptRange


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


@dataclass(frozen=True)
class IndexFilePlan:
    """A file, and the entries that are put into it.

    Attributes:
        ranges: The entries, in the order of the log.
        end_before: Store time (ms) and commit log offset with which the file before it ends: a new file starts there.
        continued: The existing file that is completed; None for a new file.
        entries_before: The number of entries in the existing file.
    """

    name: str
    ranges: tuple[EntryRange, ...]
    end_before: tuple[int, int]
    continued: Location | None = None
    entries_before: int = 0

    @property
    def entries(self) -> int:
        """The number of entries in the file when it is complete."""
        return self.entries_before + sum(entry_range.count for entry_range in self.ranges)


def plan_index_files(
    pending: PendingEntries, layout: IndexLayout, end: IndexEnd | None, zone: tzinfo, first_timestamp: int
) -> list[IndexFilePlan]:
    """The files that the pending entries fill, in order.

    A new file is named after the store time of its first entry. A file without an entry is named after the entry
    before it, or else after the first message of the log. The last existing file is not planned if it gets no entry.

    Args:
        pending: The entries that the index lacks.
        layout: Slots and entries of an index file.
        end: The end of the existing index; None if there is none.
        first_timestamp: The store time of the log's first message, in milliseconds.
    """
    last = None if end is None else end.header
    placed = place_entries(pending.counts, pending.trailing_messages, layout, last)
    of_files: list[list[EntryRange]] = [[] for _ in range(placed.files)]
    for run, file, start, count in zip(
        placed.run.tolist(), placed.file.tolist(), placed.start.tolist(), placed.count.tolist(), strict=True
    ):
        of_files[file].append(pending.ranges[run].part(start, count))
    plans = []
    if end is not None and placed.continues_last:
        continued = of_files.pop(0)
        if continued:
            before = (end.header.end_timestamp, end.header.end_commit_log_offset)
            plans.append(
                IndexFilePlan(end.file.name, tuple(continued), before, end.file.location, end.header.next_entry - 1)
            )
    first_new = placed.files - len(of_files)
    befores = [_end_before(placed, file, pending, last or IndexHeader()) for file in range(first_new, placed.files)]
    timestamps = [
        ranges[0].entry(0)[2] if ranges else before[0] or first_timestamp
        for ranges, before in zip(of_files, befores, strict=True)
    ]
    names = index_file_names(timestamps, zone, "" if end is None else end.file.name)
    plans += [IndexFilePlan(*planned) for planned in zip(names, map(tuple, of_files), befores, strict=True)]
    return plans


def _end_before(placed: IndexPlacement, file: int, pending: PendingEntries, last: IndexHeader) -> tuple[int, int]:
    """Time and offset with which the file before a new one ends: of a pending entry, or of the existing file."""
    position = placed.entry_before(file)
    if position is None:
        return last.end_timestamp, last.end_commit_log_offset
    run, number = position
    _, offset, timestamp = pending.ranges[run].entry(number)
    return timestamp, offset
