"""Stage and judge: the log as staged rows. Each segment is dispatched once, by this job or by a killed one before it.

Segments whose splits do not fit together (`alignment`) are dispatched again, each as one split.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.indexer.alignment import misaligned_segments
from spark_mq.indexer.damage import raise_or_report
from spark_mq.indexer.manifest import ROUND, Manifest, Round, StagedSegment, segments_now
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.settings import DispatchTargets
from spark_mq.indexer.split_rows import SplitRow
from spark_mq.indexer.staged_files import entry_files, parquet_files
from spark_mq.indexer.staged_rows import SPLIT, STAGED_SCHEMA, UNITS
from spark_mq.io.location import Location
from spark_mq.job.context import JobContext
from spark_mq.job.progress import mark_done
from spark_mq.job.session import spark_path
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.splits import Split, plan_splits


@dataclass(frozen=True)
class StagedLog:
    """The whole log, staged.

    Attributes:
        rows: The staged rows (`STAGED_SCHEMA`).
        splits: The rows of the splits, in the order of the log. There is at least one.
        segments_staged_before: The number of segments that a killed job had staged.
        bytes_read: Bytes of the log that this job read.
        corrupt: Damage of the log that was skipped.

    """

    rows: DataFrame
    splits: tuple[SplitRow, ...]
    segments_staged_before: int
    bytes_read: int
    corrupt: tuple[CorruptRange, ...]

    @property
    def units(self) -> DataFrame:
        """The staged runs of units."""
        return self.rows.where(F.col("kind") == UNITS)

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
        """The commit log offset at which the log starts."""
        return self.splits[0].segment

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
    def last_store_timestamp(self) -> int:
        """The latest time at which a split ends, in milliseconds; 0 without a message."""
        ends = (split.last_store_timestamp for split in self.splits)
        return max((end for end in ends if end is not None), default=0)


def stage_log(
    context: JobContext, plan: RebuildPlan, log: CommitLog, manifest: Manifest, targets: DispatchTargets
) -> StagedLog:
    """The whole log as staged rows.

    Args:
        context: The job's context.
        plan: The plan of the rebuild.
        log: The log, with at least one segment.
        manifest: What is staged already. The manifest in the job's folder is rewritten after each round.
        targets: What records are dispatched to.

    Raises:
        CorruptLogError: The log is damaged and the mode is not permissive.

    """
    now = segments_now(plan.store, log)
    manifest = manifest.fitting(now)
    staged_before = manifest.bases
    before = _split_rows(context, manifest.rounds)
    dispatcher = _Dispatcher(context, targets, {segment.base: segment for segment in now})
    missing = tuple(segment for segment in log.segments if segment.base not in staged_before)
    splits = plan_splits(replace(log, segments=missing), plan.split_size)
    manifest, read = dispatcher.stage("dispatch", splits, manifest, exact=False)
    rows = _in_order([*before, *read])
    misaligned = misaligned_segments(rows, log.segments[-1].base)
    read_again: list[SplitRow] = []
    if misaligned:
        whole = [Split(segment, 0, segment.data_end) for segment in log.segments if segment.base in misaligned]
        manifest, read_again = dispatcher.stage("dispatch again", whole, manifest, exact=True)
        rows = _in_order([*(row for row in rows if row.segment not in misaligned), *read_again])
    return StagedLog(
        rows=_staged_rows(context, manifest.rounds),
        splits=tuple(rows),
        segments_staged_before=len(staged_before),
        bytes_read=sum(row.bytes_read for row in [*read, *read_again]),
        corrupt=raise_or_report((corrupt for row in rows for corrupt in row.corrupt), plan.is_permissive),
    )


@dataclass(frozen=True)
class _DispatchTask:
    """For `mapInArrow`: numbers of splits in, staged rows out."""

    splits: tuple[Split, ...]
    targets: DispatchTargets
    exact: bool
    done: Location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_mq.indexer.split_dispatch import dispatch_split  # loads numba, which the driver does not need

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from dispatch_split(self.splits[number], self.targets, self.exact)
                mark_done(self.done, str(number))


@dataclass(frozen=True)
class _Dispatcher:
    """Stages splits of whole segments; `segments` are the segments of the log by their base offset."""

    context: JobContext
    targets: DispatchTargets
    segments: Mapping[int, StagedSegment]

    def stage(
        self, name: str, splits: Sequence[Split], manifest: Manifest, exact: bool
    ) -> tuple[Manifest, list[SplitRow]]:
        """Stage a round; returns the manifest with the round, and the rows of the splits."""
        folder = self.context.committer.folder
        round_name = f"{ROUND}{uuid.uuid4().hex}"
        size = sum(split.stop - split.start for split in splits)
        with self.context.progress.stage(name, len(splits), "splits", size) as done:
            task = _DispatchTask(tuple(splits), self.targets, exact, done)
            rows = self.context.numbers(len(splits)).mapInArrow(
                self.context.shared_storage.wrap(task), from_arrow_schema(STAGED_SCHEMA)
            )
            writer = rows.write.option("compression", "none").option("parquet.enable.dictionary", "false")
            writer.parquet(spark_path(folder / round_name))
        segments = [self.segments[base] for base in sorted({split.segment.base for split in splits})]
        read = _split_rows(self.context, [Round(round_name, tuple(segments))])
        files = [*parquet_files(folder, round_name), *entry_files(read)]
        manifest = manifest.with_round(round_name, segments, files)
        manifest.save(folder)
        return manifest, read


def _staged_rows(context: JobContext, rounds: Iterable[Round]) -> DataFrame:
    """The staged rows of the segments that count."""
    frames = []
    for staged_round in rounds:
        path = spark_path(context.committer.folder / staged_round.name)
        frame = context.spark.read.schema(from_arrow_schema(STAGED_SCHEMA)).parquet(path)
        left_out = list(staged_round.left_out)
        frames.append(frame.where(~F.col("segment").isin(left_out)) if left_out else frame)
    return reduce(lambda before, frame: before.unionByName(frame), frames)


def _split_rows(context: JobContext, rounds: Sequence[Round]) -> list[SplitRow]:
    if not rounds:
        return []
    columns = list(SplitRow.__dataclass_fields__)
    rows = _staged_rows(context, rounds).where(F.col("kind") == SPLIT).select(columns).collect()
    return [SplitRow.of(row) for row in rows]


def _in_order(rows: Iterable[SplitRow]) -> list[SplitRow]:
    """The rows in the order of the log."""
    return sorted(rows, key=lambda row: (row.segment, row.split_start))
