"""The log staged: each split once, and again the segments whose splits do not give the records of one scan.

A split's first record must be where the split before it ended. This can fail, because a body can look like a record and
damage can cross the border of two splits. Then the segment is read again as one split. The last segment must also be
monotonic, without a corrupt range and without a store time that steps back: either can be the live end
(`store/log/live_reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from spark_mq.indexer.manifest import STAGED, Manifest, segments_now
from spark_mq.indexer.rebuild_plan import DispatchTargets, RebuildPlan
from spark_mq.indexer.report import raise_or_report
from spark_mq.indexer.staged_files import SplitRow, StagedUnits
from spark_mq.io.location import Location
from spark_mq.job.tasks import JobContext
from spark_mq.store.log.commit_log import CommitLog, OffsetRange, Segment, Split, plan_splits
from spark_mq.store.log.segment_files import CorruptRange


def misaligned_segments(rows: Iterable[SplitRow], last_segment: int | None = None) -> list[int]:
    """The base offsets of segments that must be read again; without a `last_segment` the end of the log is known."""
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


@dataclass(frozen=True)
class StagedLog:
    """The whole log, staged in at least one split; or only its last part, if it `follows_trees` that are there."""

    folder: Location
    splits: tuple[SplitRow, ...]
    segments_staged_before: int
    bytes_read: int
    corrupt: tuple[CorruptRange, ...]
    follows_trees: bool = False

    @property
    def units(self) -> list[StagedUnits]:
        """The staged units of each split that has units."""
        return [units for split in self.splits if (units := split.staged_units(self.folder)) is not None]

    @property
    def messages(self) -> int:
        """The number of messages in the log."""
        return sum(split.messages for split in self.splits)

    @property
    def inner_batches(self) -> int:
        """The number of messages that are inner batches, which no plain consume queue contains."""
        return sum(split.inner_batches for split in self.splits)

    @property
    def start(self) -> int:
        """The commit log offset at which the staged log starts."""
        return self.splits[0].start

    @property
    def end(self) -> int:
        """The commit log offset at which the log ends."""
        last = self.splits[-1].segment
        return last + max(split.end_position for split in self.splits if split.segment == last)

    @property
    def first_store_timestamp(self) -> int:
        """The store time of the first message in milliseconds; 0 without a message."""
        return next((split.first_store_timestamp for split in self.splits if split.messages), None) or 0

    @property
    def last_unit_offset(self) -> int:
        """The commit log offset of the last message with a unit; 0 without one, or if no units are staged."""
        return max((split.last_unit_offset or 0 for split in self.splits), default=0)

    @property
    def last_store_timestamp(self) -> int:
        """The store time of the last message in the log, in milliseconds; 0 without a message."""
        ends = (split.last_store_timestamp for split in reversed(self.splits))
        return next((end for end in ends if end is not None), 0)

    @property
    def newest_store_timestamp(self) -> int:
        """The latest store time of a message, in milliseconds; 0 without a message."""
        times = (split.newest_store_timestamp for split in self.splits)
        return max((time for time in times if time is not None), default=0)


def stage_log(context: JobContext, plan: RebuildPlan, log: CommitLog, manifest: Manifest) -> StagedLog:
    """The whole log, staged. The manifest, in the job's folder, is rewritten after each dispatch."""
    now = segments_now(plan.store, log)
    manifest = manifest.fitting(now)
    staged_before = manifest.bases
    missing = tuple(segment for segment in log.segments if segment.base not in staged_before)
    splits = plan_splits(replace(log, segments=missing), plan.split_size)

    def save(read: Sequence[SplitRow]) -> None:
        nonlocal manifest
        bases = {row.segment for row in read}
        manifest = manifest.with_staged([segment for segment in now if segment.base in bases], read)
        manifest.save(context.committer.folder)

    targets = _targets(context, plan)
    rows, read = _stage(context, targets, splits, log.segments, manifest.splits, save, log.segments[-1].base)
    corrupt = raise_or_report((corrupt for row in rows for corrupt in row.corrupt), plan.is_permissive)
    return StagedLog(targets.folder, tuple(rows), len(staged_before), read, corrupt)


def stage_range(context: JobContext, plan: RebuildPlan, part: OffsetRange) -> StagedLog:
    """The last part of a log, staged: new records, which follow what existing trees have.

    Nothing of it was staged before, and no manifest gets it. It starts with a record or a blank, and ends with one.
    """
    targets = _targets(context, plan)
    rows, read = _stage(context, targets, part.splits(plan.split_size), part.segments)
    corrupt = raise_or_report((corrupt for row in rows for corrupt in row.corrupt), is_permissive=False)
    return StagedLog(targets.folder, tuple(rows), 0, read, corrupt, follows_trees=True)


def _targets(context: JobContext, plan: RebuildPlan) -> DispatchTargets:
    """Where splits are staged: in a folder of the job's folder, which is made here."""
    folder = context.committer.folder / STAGED
    folder.make_folder()
    chosen = plan.selection
    return DispatchTargets(folder, plan.settings, chosen.has_queues, chosen.has_index, chosen.has_index_database)


def _stage(
    context: JobContext,
    targets: DispatchTargets,
    splits: Sequence[Split],
    segments: Iterable[Segment],
    before: Sequence[SplitRow] = (),
    save: Callable[[Sequence[SplitRow]], None] = lambda read: None,
    last_segment: int | None = None,
) -> tuple[list[SplitRow], int]:
    """The rows of all that is staged, in order, and the bytes that were read.

    `before` are the rows of segments that were staged before; `save` gets new rows as soon as they are there.
    """
    read = _dispatch(context, targets, "dispatch", splits, exact=False)
    save(read)
    rows = _in_order([*before, *read])
    misaligned = misaligned_segments(rows, last_segment)
    whole = []
    for segment in segments:
        if segment.base in misaligned:
            parts = [row for row in rows if row.segment == segment.base]
            whole.append(Split(segment, parts[0].split_start, parts[-1].split_stop))
    if whole:
        again = _dispatch(context, targets, "dispatch again", whole, exact=True)
        save(again)
        whole_bases = {split.segment.base for split in whole}
        rows = _in_order([*(row for row in rows if row.segment not in whole_bases), *again])
        read += again
    return rows, sum(row.bytes_read for row in read)


def _dispatch(
    context: JobContext, targets: DispatchTargets, name: str, splits: Sequence[Split], exact: bool
) -> list[SplitRow]:
    work = partial(_dispatch_split, targets=targets, exact=exact)
    return context.each(name, "splits", splits, work, sum(split.stop - split.start for split in splits))


def _dispatch_split(split: Split, targets: DispatchTargets, exact: bool) -> SplitRow:
    # This loads numba, which the driver does not need.
    from spark_mq.indexer.split_dispatch import dispatch_split

    return dispatch_split(split, targets, exact)


def _in_order(rows: Iterable[SplitRow]) -> list[SplitRow]:
    return sorted(rows, key=lambda row: (row.segment, row.split_start))
