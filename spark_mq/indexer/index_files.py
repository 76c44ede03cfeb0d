"""Whole index files out of staged entries: which entries an index lacks, which go into which file, and the files.

The rules are those of `IndexFile.putKey`@5.3.3, on one array for each file. Entries fill one file after the other,
`index_num` - 1 in each. When a file is full, the next dispatched message creates the next file, even a message without
keys, a rolled-back message, or one that was indexed before. So if the last entry fills a file, it matters whether a
message follows.

A *run* is a range of consecutive messages of the log: those of a split, or a single message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, tzinfo

import numpy as np

from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.broker_version import INDEX_FLUSHED_AT_STOP, BrokerVersions
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, HEADER_SIZE, IndexHeader, IndexLayout, decode_header
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.report import Written, raise_or_report
from spark_mq.indexer.stage import StagedLog
from spark_mq.indexer.staged_files import EntryRange, SplitRow
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import FileInParts, copy_bytes, published
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.broker_conf import NOTHING_TELLS, Sourced
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.file_names import index_file_names, zone_of_names
from spark_mq.store.index.folder import IndexEnd, IndexFileInfo, index_end, index_files, index_layout
from spark_mq.store.log.segment_files import CorruptRange

_BLOCK_ENTRIES = 1 << 16
"""Entries that are put together: 1.3 MB, which stay in a processor's cache until they are written."""


@dataclass(frozen=True)
class IndexPlacement:
    """The files of all entries, as pieces in log order: `count` entries of a run, from entry `start` on, go to a file.

    `run`, `file`, `start` and `count` have one value for each piece, and all count from 0. A file without a piece gets
    no entry: it is the store's last file, or the last file of all, which a message after the last entry created.
    `continues_last` is whether file 0 is the store's last file, which is not full yet.
    """

    run: Int64s
    file: Int64s
    start: Int64s
    count: Int64s
    files: int
    continues_last: bool

    def entry_before(self, file: int) -> tuple[int, int] | None:
        """The last entry before `file`, as its run and its index in that run; None if no run contains that entry.

        The header of `file` begins with the commit log offset and store time of this entry. No run contains it if it
        is the end of the store's last file, or if `file` is the first one.
        """
        piece = int(np.searchsorted(self.file, file)) - 1
        if piece < 0:
            return None
        return int(self.run[piece]), int(self.start[piece] + self.count[piece] - 1)


def place_entries(
    entry_counts: Int64s, trailing_messages: Int64s, layout: IndexLayout, last: IndexHeader | None = None
) -> IndexPlacement:
    """The placement of the entries of all runs, which are in log order, by the number of entries of each run.

    `trailing_messages` are the messages of each run after the message with its last entry, or all of them if the run
    has no entry. `last` is the header of the store's last index file; None if the store has no index file.
    """
    continues_last = last is not None and not last.is_full(layout)
    used = last.next_entry - 1 if last is not None and continues_last else 0
    capacity = layout.index_num - 1
    ends = used + np.cumsum(entry_counts, dtype=np.int64)
    total = int(ends[-1]) if ends.size else used

    file_ends = np.arange(capacity, total, capacity, dtype=np.int64)
    stops = np.union1d(ends, file_ends)
    stops = stops[stops > used]
    starts = np.concatenate((np.array([used], np.int64), stops[:-1]))[: stops.size]
    run = np.searchsorted(ends, starts, side="right").astype(np.int64)

    files = -(-total // capacity)
    # A message that is dispatched after the one with the last entry makes one more file.
    with_entries = np.flatnonzero(entry_counts)
    if total % capacity == 0 and trailing_messages[with_entries[-1] if with_entries.size else 0 :].any():
        files += 1
    return IndexPlacement(
        run=run,
        file=starts // capacity,
        start=starts - (ends - entry_counts)[run],
        count=stops - starts,
        files=max(files, int(continues_last)),
        continues_last=continues_last,
    )


@dataclass(frozen=True)
class PendingEntries:
    """The entries that an index lacks, in the order of the log: a range of staged entries for each split.

    `trailing_messages` has the number of messages of each split after its last entry.
    """

    ranges: tuple[EntryRange, ...]
    trailing_messages: Int64s
    contradictions: tuple[CorruptRange, ...] = ()

    def by_file(
        self, layout: IndexLayout, last: IndexHeader | None = None
    ) -> tuple[IndexPlacement, list[list[EntryRange]]]:
        """Where the entries go after the last existing file, and those of each file: here the index rolls."""
        counts = np.array([entry_range.count for entry_range in self.ranges], np.int64)
        placed = place_entries(counts, self.trailing_messages, layout, last)
        of_files: list[list[EntryRange]] = [[] for _ in range(placed.files)]
        pieces = (column.tolist() for column in (placed.run, placed.file, placed.start, placed.count))
        for run, file, start, count in zip(*pieces, strict=True):
            of_files[file].append(self.ranges[run].part(start, count))
        return placed, of_files


def pending_entries(splits: Sequence[SplitRow], folder: Location, end: IndexEnd | None) -> PendingEntries:
    """The staged entries that come after the end of an index; all of them if there is no index.

    A message before the end is in the index. A kill can have cut the keys of the message at the end: the missing keys
    are pending. If the log starts after the end, all entries are pending.
    """
    ranges = [split.staged_entries(folder).all() for split in splits]
    contradictions: list[CorruptRange] = []
    if end is not None and end.commit_log_offset >= splits[0].start:
        offset = end.commit_log_offset
        number = next((n for n, split in enumerate(splits) if offset < split.segment + split.split_stop), len(splits))
        splits, ranges = splits[number:], ranges[number:]
        if not splits:
            contradictions.append(_contradiction(end, "the log ends before it"))
        else:
            staged = ranges[0].staged
            first, stop = staged.count_before(offset), staged.count_before(offset + 1)
            batches = EntryRange(staged, first, stop - first).read()
            known = end.keys_in([key for batch in batches for key in batch.key_hashes.tolist()])
            start = first + known if known else stop
            ranges[0] = EntryRange(staged, start, staged.count - start)
            if end.key_hashes and not known:
                contradictions.append(_contradiction(end, "the log has no message there with such keys"))
    trailing_messages = np.array([split.trailing_messages for split in splits], np.int64)
    return PendingEntries(tuple(ranges), trailing_messages, tuple(contradictions))


def _contradiction(end: IndexEnd, what: str) -> CorruptRange:
    reason = (
        f"the index ends with a message at commit log offset {end.commit_log_offset}, but {what}; --replace rebuilds "
        "the index from the log"
    )
    return CorruptRange(str(end.file.location), end.commit_log_offset, 0, "CONTRADICTED_INDEX", reason)


@dataclass(frozen=True)
class IndexFilePlan:
    """A file, and the entries that are put into it, in the order of the log.

    A new file starts at `end_before`: store time (ms) and commit log offset with which the file before it ends.
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
    """
    last = None if end is None else end.header
    placed, of_files = pending.by_file(layout, last)
    plans = []
    if end is not None and placed.continues_last:
        continued = of_files.pop(0)
        if continued:
            before = (end.header.end_timestamp, end.header.end_commit_log_offset)
            plans.append(
                IndexFilePlan(end.file.name, tuple(continued), before, end.file.location, end.header.next_entry - 1)
            )
    first_new = placed.files - len(of_files)
    befores = [end_before(placed, file, pending, last or IndexHeader()) for file in range(first_new, placed.files)]
    timestamps = [
        ranges[0].entry(0)[2] if ranges else before[0] or first_timestamp
        for ranges, before in zip(of_files, befores, strict=True)
    ]
    names = index_file_names(timestamps, zone, "" if end is None else end.file.name)
    plans += [IndexFilePlan(*planned) for planned in zip(names, map(tuple, of_files), befores, strict=True)]
    return plans


def end_before(placed: IndexPlacement, file: int, pending: PendingEntries, last: IndexHeader) -> tuple[int, int]:
    """Time and offset with which the file before a new one ends: of a pending entry, or of the existing file."""
    position = placed.entry_before(file)
    if position is None:
        return last.end_timestamp, last.end_commit_log_offset
    run, number = position
    _, offset, timestamp = pending.ranges[run].entry(number)
    return timestamp, offset


@dataclass(frozen=True)
class WrittenIndexFile:
    """An index file that a task has finished, and its end in milliseconds; `is_new` if the task wrote it."""

    file: str
    entries: int
    end_timestamp: int
    is_new: bool


@dataclass(frozen=True)
class IndexWriter:
    """Writes planned files into `folder`, as brokers of some versions do."""

    folder: Location
    layout: IndexLayout
    versions: BrokerVersions

    def finish(self, plan: IndexFilePlan) -> WrittenIndexFile:
        """Write a file unless it is there."""
        written = self._written(plan)
        header = written or self.write(plan)
        return WrittenIndexFile(plan.name, header.next_entry - 1, header.end_timestamp, written is None)

    def _written(self, plan: IndexFilePlan) -> IndexHeader | None:
        """The header of a planned file that exists with the planned entries; None if the file has to be written."""
        location = self.folder / plan.name
        if not plan.ranges or location.info().size != self.layout.file_size:
            return None
        with FileReader(location) as file:
            header = decode_header(file.read(0, HEADER_SIZE), self.layout, plan.name)
            if header.next_entry - 1 != plan.entries:
                return None
            number = plan.entries_before + 1
            for part in (part for entry_range in plan.ranges for part in entry_range.read()):
                count = part.key_hashes.size
                data = file.read(self.layout.entries_at + ENTRY_SIZE * number, ENTRY_SIZE * count)
                entries = np.frombuffer(data, ENTRY_DTYPE)
                is_same = entries["key_hash"] == part.key_hashes
                is_same &= entries["commit_log_offset"] == part.commit_log_offsets
                if not is_same.all():
                    return None
                number += count
        return header

    def write(self, plan: IndexFilePlan) -> IndexHeader:
        """Write a file; a second thread reads the next entries and writes the last ones meanwhile."""
        from spark_mq.format.kernels.index_put import put_keys

        entries_at = self.layout.entries_at
        with published(self.folder / plan.name, self.layout.file_size) as file, ThreadPoolExecutor(1) as disk:
            head = self._begin(plan, file)
            parts = (part for entry_range in plan.ranges for part in entry_range.read_staged(_BLOCK_ENTRIES))
            pending, at = disk.submit(next, parts, None), entries_at + ENTRY_SIZE * (plan.entries_before + 1)
            writes = []
            while (part := pending.result()) is not None:
                pending = disk.submit(next, parts, None)
                count = put_keys(head, self.layout, part, plan.name)
                writes.append(disk.submit(file.write, at, part[: ENTRY_SIZE * count].data))
                at += ENTRY_SIZE * count
            for write in writes:
                write.result()
            file.write(0, head.data)
        return decode_header(head, self.layout, plan.name)

    def _begin(self, plan: IndexFilePlan, file: FileInParts) -> Bytes:
        """Header and slots of the file before the first entry is put; what it has of entries is written."""
        from spark_mq.format.kernels.index_put import drop_uncounted, new_index_head

        if plan.continued is None:
            empty_index_count = 0 if self.versions.decide(INDEX_FLUSHED_AT_STOP) is False else 1
            return new_index_head(self.layout, *plan.end_before, empty_index_count)
        with FileReader(plan.continued) as existing:
            head = np.frombuffer(bytearray(existing.read(0, self.layout.entries_at)), np.uint8)
            stop = self.layout.entries_at + ENTRY_SIZE * (plan.entries_before + 1)
            copy_bytes(existing, file, self.layout.entries_at, stop)
            drop_uncounted(head, existing.read(stop, ENTRY_SIZE), self.layout, str(plan.continued))
        return head


@dataclass(frozen=True)
class ExistingIndex:
    """What exists of the index before the job: files that are continued, and their end; None if none is continued."""

    layout: IndexLayout
    file_count: int
    end: IndexEnd | None
    zone: tzinfo


def find_existing_index(plan: RebuildPlan, output: Location) -> ExistingIndex:
    """The index that is continued in `output`, and the layout and time zone of the store's index files."""
    layout = index_layout(plan.store, plan.broker_conf)
    existing = index_files(output) if INDEX in plan.continued else []
    zone = plan.time_zone or find_time_zone(existing or index_files(plan.store), layout).value
    return ExistingIndex(layout, len(existing), index_end(existing, layout), zone)


def write_index(
    context: JobContext, plan: RebuildPlan, existing: ExistingIndex, staged: StagedLog, is_stopped: Callable[[], bool]
) -> Written:
    """Write every index file; none if the job has ended (`is_stopped`)."""
    layout = existing.layout
    pending = pending_entries(staged.splits, staged.folder, existing.end)
    corrupt = raise_or_report(pending.contradictions, plan.is_permissive)
    plans = plan_index_files(pending, layout, existing.end, existing.zone, staged.first_store_timestamp)
    context.committer.keep_only(INDEX, {file.name for file in plans}.__contains__)
    written: list[WrittenIndexFile] = []
    if plans and not is_stopped():
        writer = IndexWriter(context.committer.staging_path(INDEX), layout, plan.broker_versions)
        written = context.each("write index", "files", plans, writer.finish)
    completed = {file.name for file in plans if file.continued is not None} if written else set()
    staged_before = sum(not row.is_new for row in written if row.file not in completed)
    last_end = 0 if existing.end is None else existing.end.header.end_timestamp
    return Written(
        index_files=len(written),
        index_entries=sum(row.entries for row in written),
        bytes_written=sum(row.is_new for row in written) * layout.file_size,
        files_untouched=existing.file_count + staged_before - len(completed),
        files_completed=len(completed),
        end_timestamp=max([last_end, *(row.end_timestamp for row in written)]),
        corrupt=corrupt,
    )


def find_time_zone(existing: Sequence[IndexFileInfo], layout: IndexLayout) -> Sourced[tzinfo]:
    """The time zone that the names of existing files show; UTC if they do not show one."""
    valid = [file for file in existing if file.size == layout.file_size]
    zone = zone_of_names([(file.name, file.header(layout).begin_timestamp) for file in valid])
    return Sourced(UTC, NOTHING_TELLS) if zone is None else Sourced(zone, "the names of the index files")
