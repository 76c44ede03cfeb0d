"""Index files that are made again: those between two sound files, from the entries that neither of the two has.

Sound files keep their bytes and their names, also if a recovery put some keys twice, so that their entries do not begin
where a new index would begin a file. What is between them is planned as a broker fills files (`place_entries`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

import numpy as np

from spark_mq.errors import CorruptIndexError
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, HEADER, HEADER_SIZE, IndexHeader, IndexLayout
from spark_mq.indexer.index_files import IndexFilePlan, PendingEntries, end_before, pending_entries
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.file_reader import FileReader
from spark_mq.store.index.file_names import index_file_names
from spark_mq.store.index.folder import IndexFileInfo, index_end

_MOST = 64 << 10
"""Entries of one message that are read: a message has at most 16,384 keys, and a recovery puts them twice."""


@dataclass(frozen=True)
class IndexGap:
    """Damaged or missing files between two sound ones, if there are any."""

    before: IndexFileInfo | None
    after: IndexFileInfo | None
    damaged: tuple[IndexFileInfo, ...]


def find_gaps(
    files: Sequence[IndexFileInfo], damaged: frozenset[str], after_loss: frozenset[str], lacks_end: bool
) -> Iterator[IndexGap]:
    """The gaps that have to be filled: also those before sound files `after_loss`, and that at the end."""
    before: IndexFileInfo | None = None
    between: list[IndexFileInfo] = []
    for file in files:
        if file.name in damaged:
            between.append(file)
            continue
        if between or file.name in after_loss:
            yield IndexGap(before, file, tuple(between))
        before, between = file, []
    if between or lacks_end:
        yield IndexGap(before, None, tuple(between))


def plan_gap(gap: IndexGap, staged: StagedLog, layout: IndexLayout, zone: tzinfo) -> list[IndexFilePlan]:
    """The files that fill a gap."""
    end = None if gap.before is None else index_end([gap.before], layout)
    pending = pending_entries(staged.splits, staged.folder, end)
    if gap.after is not None:
        pending = _up_to(pending, gap.after, layout)
    placed, of_files = pending.by_file(layout)
    header = IndexHeader() if end is None else end.header
    plans = [
        IndexFilePlan("", tuple(ranges), end_before(placed, number, pending, header))
        for number, ranges in enumerate(of_files)
    ]
    names = _names(gap, plans, staged, zone, layout)
    return [replace(plan, name=name) for plan, name in zip(plans, names, strict=True)]


def _up_to(pending: PendingEntries, after: IndexFileInfo, layout: IndexLayout) -> PendingEntries:
    """The entries before those of the file `after`, which can begin with the rest of a message's keys."""
    count = min(after.header(layout).next_entry - 1, _MOST)
    with FileReader(after.location) as reader:
        data = reader.read(layout.entries_at + ENTRY_SIZE, ENTRY_SIZE * count)
    offsets = np.frombuffer(data, ENTRY_DTYPE)["commit_log_offset"].astype(np.int64)
    if not offsets.size:
        return pending
    offset = int(offsets[0])
    others = np.flatnonzero(offsets != offset)
    own = int(others[0]) if others.size else offsets.size
    ranges = []
    for part in pending.ranges:
        first, stop = part.staged.count_before(offset), part.staged.count_before(offset + 1)
        end = first + max(stop - first - own, 0)
        ranges.append(replace(part, count=min(max(end - part.start, 0), part.count)))
    return PendingEntries(tuple(ranges), np.zeros(len(ranges), np.int64))


def _names(
    gap: IndexGap, plans: Sequence[IndexFilePlan], staged: StagedLog, zone: tzinfo, layout: IndexLayout
) -> list[str]:
    """A name for each planned file: that of the damaged file with the same first entry, or of its first message."""
    if len(plans) == len(gap.damaged):
        return [file.name for file in gap.damaged]
    kept = {offset: file.name for file in gap.damaged for offset in _begin_offsets(file, layout)}
    chosen = [kept.get(plan.ranges[0].entry(0)[1]) if plan.ranges else None for plan in plans]
    given = [name for name in chosen if name is not None]
    if sorted(set(given)) != given:
        chosen = [None] * len(plans)
    names: list[str] = []
    above = "" if gap.before is None else gap.before.name
    for plan, name in zip(plans, chosen, strict=True):
        if name is None:
            time = plan.ranges[0].entry(0)[2] if plan.ranges else plan.end_before[0] or staged.first_store_timestamp
            (name,) = index_file_names([time], zone, above)
        names.append(name)
        above = name
    if not names:
        return names  # the sound files have all entries: the damaged ones had those of expired messages
    limits = [*names[1:], "~" if gap.after is None else gap.after.name]
    if any(name >= limit for name, limit in zip(names, limits, strict=True)):
        raise CorruptIndexError(
            f"{gap.damaged[0].location if gap.damaged else 'index'}: there is no free name for an index file between "
            f"{above} and the file after it; `spark-mq rebuild STORE --only index --replace` makes all index files"
        )
    return names


def _begin_offsets(file: IndexFileInfo, layout: IndexLayout) -> set[int]:
    """The commit log offset with which a damaged file begins, by its header and by its first entry."""
    with FileReader(file.location) as reader:
        head, first = reader.read(0, HEADER_SIZE), reader.read(layout.entries_at + ENTRY_SIZE, ENTRY_SIZE)
    found = set()
    if len(head) == HEADER_SIZE:
        found.add(IndexHeader(*HEADER.unpack(head)).begin_commit_log_offset)
    if len(first) == ENTRY_SIZE:
        found.add(int(np.frombuffer(first, ENTRY_DTYPE)["commit_log_offset"][0]))
    return found
