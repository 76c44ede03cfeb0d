"""Which messages have an entry for their tags: brokers put one since 5.4.0 (rule `INDEX_TAGS`), older ones do not.

A store can have been opened by both, so the versions that its files show do not say it. The index does, message by
message: all keys of a message have entries, and either its tags have one, too, or they have not. An index only grows at
its end, so the messages with such entries are ranges of the log, and each range begins with a start of a broker.

A few messages without the entry, after others that have it, can show damage: entries are missing. It is certain if the
messages before them or after them were stored so shortly before or after that no broker was started between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, pairwise
from typing import NamedTuple

import numpy as np

from spark_mq.format.array_types import Bytes, is_in
from spark_mq.format.broker_version import INDEX_TAGS, BrokerVersions
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, IndexLayout
from spark_mq.format.kernels.index_put import drop_tags, same_entries
from spark_mq.indexer.stage import StagedLog
from spark_mq.indexer.staged_files import BATCH_ENTRIES, STAGED_ENTRY_SIZE, EntryBatch, SplitRow, StagedEntriesWriter
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.job.tasks import TaskRunner
from spark_mq.store.index.folder import IndexFileInfo

MANY = 4
"""So many messages without an entry for their tags are certainly no damage; fewer, after others with one, can be."""
_START_MILLIS = 200
"""No broker stops, and another one starts and stores a message, in less time."""
_MAX_OFFSET = (1 << 63) - 1


class TagRun(NamedTuple):
    """Messages that follow each other, and whose tags all have entries, or all have none.

    `first` and `last` are commit log offsets, the times are in milliseconds.
    """

    has_entry: bool
    first: int
    last: int
    messages: int
    first_time: int
    last_time: int


class TaggedRange(NamedTuple):
    """A range of commit log offsets, in which tags have entries; `stop` is not in it."""

    start: int
    stop: int


@dataclass(frozen=True)
class TaggedRanges:
    """The parts of a log in which tags have index entries, in its order, and why.

    Of `doubtful` messages it is not certain whether a broker put no entries, or they are lost.
    """

    ranges: tuple[TaggedRange, ...]
    source: str
    doubtful: tuple[TagRun, ...] = ()

    @property
    def has_end(self) -> bool:
        """Whether messages after all that the index has belong to such a part."""
        return bool(self.ranges) and self.ranges[-1].stop == _MAX_OFFSET

    def __str__(self) -> str:
        """The parts as text."""
        if not self.ranges:
            return "no entries for tags"
        if self.ranges == _EVERYWHERE:
            return "entries for tags"
        parts = (
            f"from commit log offset {part.start} on"
            if part.stop == _MAX_OFFSET
            else f"from commit log offset {part.start} to {part.stop}"
            for part in self.ranges
        )
        return f"entries for tags {', '.join(parts)}"


_EVERYWHERE = (TaggedRange(0, _MAX_OFFSET),)


def tags_of_version(versions: BrokerVersions) -> TaggedRanges:
    """Whether tags have entries, by the versions of the broker; without entries if some versions put none."""
    has_tags = versions.decide(INDEX_TAGS)
    source = f"a broker of version {versions}: {versions.evidence}"
    if has_tags is None:
        source += f"; brokers from {INDEX_TAGS.since} on put them: give the broker's version"
    return TaggedRanges(_EVERYWHERE if has_tags else (), source)


def tagged_ranges(runs: Iterable[TagRun], versions: BrokerVersions) -> TaggedRanges:
    """The parts of a log in which tags have entries; the versions decide if the index shows nothing."""
    merged = list(_merged(runs))
    few = [n for n, run in enumerate(merged) if n and not run.has_entry and run.messages < MANY]
    lost = {number for number in few if _is_lost(merged[number - 1 : number + 2])}
    ranges, first = [], True
    for run in _merged(run for number, run in enumerate(merged) if number not in lost):
        if run.has_entry:
            ranges.append(TaggedRange(0 if first else run.first, _MAX_OFFSET))
        elif ranges:
            ranges[-1] = TaggedRange(ranges[-1].start, run.first)
        first = False
    if first:
        return tags_of_version(versions)
    doubtful = tuple(merged[number] for number in few if number not in lost)
    return TaggedRanges(tuple(ranges), "the index shows it", doubtful)


def _is_lost(runs: Sequence[TagRun]) -> bool:
    """Whether no broker was started between two runs that follow each other, so that one broker wrote both."""
    return any(0 <= later.first_time - earlier.last_time < _START_MILLIS for earlier, later in pairwise(runs))


def _merged(runs: Iterable[TagRun]) -> Iterator[TagRun]:
    """The runs, of which no two that follow each other are of one kind."""
    for _, group in groupby(runs, lambda run: run.has_entry):
        same = list(group)
        messages, last = sum(run.messages for run in same), same[-1]
        yield same[0]._replace(last=last.last, messages=messages, last_time=last.last_time)


def decide_tags(
    staged: StagedLog, files: Sequence[IndexFileInfo], layout: IndexLayout, versions: BrokerVersions, runner: TaskRunner
) -> tuple[StagedLog, TaggedRanges]:
    """The staged log with those entries for tags that belong into the index; and where that is.

    The files of the index are in the order of their entries, and have the size of the layout.
    """
    work = partial(_runs_of_split, folder=staged.folder, files=tuple(files), layout=layout)
    found = runner.each("compare tags", "splits", staged.splits, work)
    tagged = tagged_ranges(chain.from_iterable(found), versions)
    return keep_tags(staged, tagged, runner), tagged


def keep_tags(staged: StagedLog, tagged: TaggedRanges, runner: TaskRunner) -> StagedLog:
    """The staged log, whose entries for tags are marked, with those in some parts of it."""
    if tagged.ranges == _EVERYWHERE:
        return staged
    work = partial(_keep_tagged, folder=staged.folder, tagged=tagged)
    return replace(staged, splits=tuple(runner.each("stage tags", "splits", staged.splits, work)))


def _runs_of_split(
    split: SplitRow, folder: Location, files: Sequence[IndexFileInfo], layout: IndexLayout
) -> list[TagRun]:
    runs: list[TagRun] = []
    for batch in split.staged_entries(folder).all().read(keep_marks=True):
        if (batch.key_hashes < 0).any():
            runs += find_runs(batch, files, layout)
    return list(_merged(runs))


def _keep_tagged(split: SplitRow, folder: Location, tagged: TaggedRanges) -> SplitRow:
    """The split, with new staged entries: without those of tags that have none."""
    last_staged = last_kept = -1
    edges = np.array(tagged.ranges, np.int64).reshape(-1)
    with StagedEntriesWriter(folder) as writer:
        for part in split.staged_entries(folder).all().read_staged(BATCH_ENTRIES):
            memory = np.empty(part.size, np.uint8)
            kept_part = memory[: drop_tags(part, edges, memory)]
            last_staged = _last_offset(part)
            if kept_part.size:
                last_kept = _last_offset(kept_part)
                writer.add(kept_part)
    kept = writer.staged
    # Only whether messages follow the last entry matters, not how many.
    trailing = split.trailing_messages + int(last_kept != last_staged)
    name = kept.location.name if kept.count else None
    return replace(split, entries_file=name, index_entries=kept.count, trailing_messages=trailing)


def _last_offset(entries: Bytes) -> int:
    return EntryBatch.of(entries[-STAGED_ENTRY_SIZE:]).commit_log_offsets.item()


def find_runs(expected: EntryBatch, files: Sequence[IndexFileInfo], layout: IndexLayout) -> list[TagRun]:
    """What an index shows about messages: whether their tags, which are marked in `expected`, have entries."""
    first, last = int(expected.commit_log_offsets[0]), int(expected.commit_log_offsets[-1])
    hashes, offsets = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    for info in files:
        header = info.stored_header()
        stop = min(header.next_entry, layout.index_num)
        if stop <= 1 or header.begin_commit_log_offset > last or header.end_commit_log_offset < first:
            continue
        with FileReader(info.location) as file:
            start = _first_entry(file, layout, stop, first)
            end = _first_entry(file, layout, stop, last + 1)
            data = file.read(layout.entries_at + ENTRY_SIZE * start, ENTRY_SIZE * max(end - start, 0))
        entries = np.frombuffer(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE], ENTRY_DTYPE)
        hashes.append(entries["key_hash"].astype(np.int32))
        offsets.append(entries["commit_log_offset"].astype(np.int64))
    found = np.concatenate(offsets)
    return compare_tags(expected, EntryBatch(np.concatenate(hashes), found, found))


def _first_entry(file: FileReader, layout: IndexLayout, stop: int, offset: int) -> int:
    """The number of the first entry of a message at an offset or after it; `stop` if there is none."""

    def is_at_or_after(number: int) -> bool:
        data = file.read(layout.entries_at + ENTRY_SIZE * number, ENTRY_SIZE)
        return len(data) < ENTRY_SIZE or bool(np.frombuffer(data, ENTRY_DTYPE)["commit_log_offset"][0] >= offset)

    return 1 + bisect_left(range(1, stop), True, key=is_at_or_after)


def compare_tags(expected: EntryBatch, found: EntryBatch) -> list[TagRun]:
    """What the entries of an index show about messages: whether their tags have entries.

    A message shows nothing if one of its keys has no entry, or if it has an entry that is of none of its keys. The
    expected entries are in the order of the log, those of tags marked; the found ones are of the same part of the log.
    """
    # Of the first and of the last message, some entries can be in another batch. All between are compared at once.
    first, last = expected.commit_log_offsets[[0, -1]].tolist()
    before, between, after = _parted(expected, first, last)
    found_before, there, found_after = _parted(found, first, last)
    is_ordered = (found_before.commit_log_offsets <= first).all() and (found_after.commit_log_offsets >= last).all()
    has_entry, shown, places = there.key_hashes.size == between.key_hashes.size, -1, [0, 0]
    if is_ordered and between.key_hashes.size:
        of_found = there.key_hashes, there.commit_log_offsets
        shown, *places = same_entries(between.key_hashes, between.commit_log_offsets, int(has_entry), *of_found)
    if shown < 0:
        return _compare(expected, found)
    from_to, times = between.commit_log_offsets[places].tolist(), between.store_timestamps[places].tolist()
    runs = [TagRun(has_entry, from_to[0], from_to[1], shown, times[0], times[1])] if shown else []
    return list(_merged([*_compare(before, found_before), *runs, *_compare(after, found_after)]))


def _parted(entries: EntryBatch, first: int, last: int) -> tuple[EntryBatch, EntryBatch, EntryBatch]:
    """The entries up to those of the message at `first`, those between, and those from the message at `last` on."""
    start = int(np.searchsorted(entries.commit_log_offsets, first, "right"))
    stop = max(int(np.searchsorted(entries.commit_log_offsets, last)), start)
    return entries.take(slice(start)), entries.take(slice(start, stop)), entries.take(slice(stop, None))


def _compare(expected: EntryBatch, found: EntryBatch) -> list[TagRun]:
    """What `compare_tags` finds, message by message."""
    messages, first_entries, message_of = np.unique(expected.commit_log_offsets, return_index=True, return_inverse=True)
    times = expected.store_timestamps[first_entries]
    is_tag = expected.key_hashes < 0
    hashes = expected.key_hashes ^ (expected.key_hashes >> 31)
    have = message_of.astype(np.int64) << 32 | hashes
    place = np.minimum(np.searchsorted(messages, found.commit_log_offsets), messages.size - 1)
    is_known = messages[place] == found.commit_log_offsets
    place = place[is_known]
    want = place.astype(np.int64) << 32 | (found.key_hashes[is_known].astype(np.int64) & 0xFFFFFFFF)
    is_there = is_in(have, want)
    is_strange = np.zeros(messages.size, np.bool_)
    is_strange[place[~is_in(want, have)]] = True
    is_strange[message_of[~is_tag & ~is_there]] = True
    # The hash of tags can be that of a key, too.
    is_strange[message_of[is_tag][is_in(have[is_tag], have[~is_tag])]] = True
    with_keys = np.zeros(messages.size, np.bool_)
    with_keys[message_of[~is_tag]] = True
    tagged = message_of[is_tag]
    has_entry = is_there[is_tag]
    shown = ~is_strange[tagged] & (has_entry | with_keys[tagged])
    tagged, has_entry = tagged[shown], has_entry[shown]
    if not tagged.size:
        return []
    starts = np.flatnonzero(np.diff(has_entry, prepend=~has_entry[0]))
    stops: Sequence[int] = np.append(starts[1:], tagged.size).tolist()
    runs = []
    for start, stop in zip(starts.tolist(), stops, strict=True):
        ends = tagged[[start, stop - 1]]
        (first, last), (first_time, last_time) = messages[ends].tolist(), times[ends].tolist()
        runs.append(TagRun(bool(has_entry[start]), first, last, stop - start, first_time, last_time))
    return runs
