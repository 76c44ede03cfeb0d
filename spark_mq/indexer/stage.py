"""The log staged: each split once, and again the segments whose splits do not give the records of one scan.

A split's first record must be where the split before it ended. This can fail, because a body can look like a record and
damage can cross the border of two splits. Then the segment is read again as one split. The last segment must also be
monotonic, without a corrupt range and without a store time that steps back: either can be the live end
(`store/log/live_reader`).

Segments whose splits do not fit together (`alignment`) are dispatched again, each as one split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from spark_mq.indexer.manifest import Manifest, StagedSegment, segments_now
from spark_mq.indexer.rebuild_plan import DispatchTargets, RebuildPlan
from spark_mq.indexer.report import raise_or_report
from spark_mq.indexer.split_rows import SPLIT_SCHEMA, SplitRow
from spark_mq.indexer.staged_files import StagedUnits
from spark_mq.io.location import Location
from spark_mq.job.task_items import TaskItems
from spark_mq.job.tasks import JobContext
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.log.splits import Split, plan_splits


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


@dataclass(frozen=True)
class StagedLog:
    """The whole log, staged; or only its last part, which follows what existing trees already have.

    Attributes:
        splits: The rows of the splits, in the order of the log. There is at least one.
        segments_staged_before: The number of segments that a killed job had staged.
        bytes_read: Bytes of the log that this job read.
        corrupt: Damage of the log that was skipped.
        follows_trees: Whether the existing trees end where the staged part starts.
    """

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
    def end_of_trees(self) -> int:
        """The commit log offset up to which units of existing queues can lead to messages."""
        return self.start if self.follows_trees else self.end

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


def stage_log(
    context: JobContext, plan: RebuildPlan, log: CommitLog, manifest: Manifest, targets: DispatchTargets
) -> StagedLog:
    """The whole log, staged.

    Args:
        manifest: What is staged already. The manifest in the job's folder is rewritten after each dispatch.
    """
    now = segments_now(plan.store, log)
    manifest = manifest.fitting(now)
    staged_before = manifest.bases
    dispatcher = _Dispatcher(context, targets, {segment.base: segment for segment in now})
    missing = tuple(segment for segment in log.segments if segment.base not in staged_before)
    splits = plan_splits(replace(log, segments=missing), plan.split_size)
    manifest, read = dispatcher.stage("dispatch", splits, manifest, exact=False)
    misaligned = misaligned_segments(_in_order(manifest.splits), log.segments[-1].base)
    read_again: list[SplitRow] = []
    if misaligned:
        whole = [Split(segment, 0, segment.data_end) for segment in log.segments if segment.base in misaligned]
        manifest, read_again = dispatcher.stage("dispatch again", whole, manifest, exact=True)
    rows = _in_order(manifest.splits)
    return StagedLog(
        folder=targets.folder,
        splits=tuple(rows),
        segments_staged_before=len(staged_before),
        bytes_read=sum(row.bytes_read for row in [*read, *read_again]),
        corrupt=raise_or_report((corrupt for row in rows for corrupt in row.corrupt), plan.is_permissive),
    )


def stage_range(context: JobContext, splits: Sequence[Split], targets: DispatchTargets) -> StagedLog:
    """The last part of a log, staged: new records, which follow what existing trees have.

    Nothing of it was staged before, and the manifest does not get it.

    Args:
        splits: The splits of that part, in the order of the log. The first one starts with a record or a blank, and
            the part ends with a record or a blank.
    """
    rows = _in_order(_dispatch(context, targets, "dispatch", splits, exact=False))
    read = sum(row.bytes_read for row in rows)
    misaligned = misaligned_segments(rows)
    if misaligned:
        whole = [_joined([split for split in splits if split.segment.base == base]) for base in misaligned]
        again = _dispatch(context, targets, "dispatch again", whole, exact=True)
        rows = _in_order([*(row for row in rows if row.segment not in misaligned), *again])
        read += sum(row.bytes_read for row in again)
    corrupt = raise_or_report((corrupt for row in rows for corrupt in row.corrupt), is_permissive=False)
    return StagedLog(targets.folder, tuple(rows), 0, read, corrupt, follows_trees=True)


def _joined(splits: Sequence[Split]) -> Split:
    """One split with the bytes of all splits of a segment."""
    return replace(splits[0], stop=splits[-1].stop)


def _dispatch(
    context: JobContext, targets: DispatchTargets, name: str, splits: Sequence[Split], exact: bool
) -> list[SplitRow]:
    """Stage splits as tasks; returns their rows."""
    size = sum(split.stop - split.start for split in splits)
    with context.progress.stage(name, len(splits), "splits", size) as done:
        task = _DispatchTask(TaskItems.of(splits), targets, exact, done)
        rows = context.tasks.rows(task, len(splits), SPLIT_SCHEMA)
    return [SplitRow.of(row) for row in rows.to_pylist()]


@dataclass(frozen=True)
class _DispatchTask:
    """As a task: numbers of splits in, their rows (`SPLIT_SCHEMA`) out."""

    splits: TaskItems[Split]
    targets: DispatchTargets
    exact: bool
    done: Location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # This loads numba, which the driver does not need.
        from spark_mq.indexer.split_dispatch import dispatch_split

        for split in self.splits.each(batches, self.done):
            yield dispatch_split(split, self.targets, self.exact)


@dataclass(frozen=True)
class _Dispatcher:
    """Stages splits of whole segments; `segments` are the segments of the log by their base offset."""

    context: JobContext
    targets: DispatchTargets
    segments: Mapping[int, StagedSegment]

    def stage(
        self, name: str, splits: Sequence[Split], manifest: Manifest, exact: bool
    ) -> tuple[Manifest, list[SplitRow]]:
        """Stage splits; returns the manifest with their segments, and the rows of the splits."""
        read = _dispatch(self.context, self.targets, name, splits, exact)
        segments = [self.segments[base] for base in sorted({split.segment.base for split in splits})]
        manifest = manifest.with_staged(segments, read)
        manifest.save(self.context.committer.folder)
        return manifest, read


def _in_order(rows: Iterable[SplitRow]) -> list[SplitRow]:
    """The rows in the order of the log."""
    return sorted(rows, key=lambda row: (row.segment, row.split_start))
