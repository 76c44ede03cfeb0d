"""Which index files are written, and which entries go to each; a few entries are read for the names of files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from spark_mq.format.index_file import IndexHeader, IndexLayout
from spark_mq.format.index_placement import IndexPlacement, place_entries
from spark_mq.indexer.index.pending import PendingEntries
from spark_mq.indexer.staging.staged_entries import EntryRange
from spark_mq.io.location import Location
from spark_mq.store.index.end import IndexEnd
from spark_mq.store.index.names import index_file_names


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
