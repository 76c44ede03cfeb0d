"""The log as staged rows: each segment is dispatched once, by this job or by a killed one before it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.indexer.alignment import misaligned_segments
from spark_mq.indexer.manifest import ROUND, Manifest, Round, segments_now
from spark_mq.indexer.run import Job
from spark_mq.indexer.split_rows import SplitRow
from spark_mq.indexer.staged_files import entry_files, parquet_files
from spark_mq.indexer.staged_rows import SPLIT, STAGED_SCHEMA
from spark_mq.io.location import Location
from spark_mq.job.progress import mark_done
from spark_mq.job.session import spark_path
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.splits import Split, plan_splits


@dataclass(frozen=True)
class _DispatchTask:
    """For `mapInArrow`: numbers of splits in, staged rows out."""

    splits: tuple[Split, ...]
    queue_file_size: int
    index_blobs: Location | None
    delay_levels: str
    exact: bool
    done: Location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_mq.format.kernels.dispatch import parse_delay_levels
        from spark_mq.indexer.split_dispatch import DispatchTargets, dispatch_split

        targets = DispatchTargets(self.queue_file_size, self.index_blobs, parse_delay_levels(self.delay_levels))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from dispatch_split(self.splits[number], targets, self.exact)
                mark_done(self.done, str(number))


class StagedLog:
    """Dispatches what `manifest` does not have yet. `index_blobs`: where index entries go, None for none."""

    def __init__(self, job: Job, manifest: Manifest, index_blobs: Location | None) -> None:
        self._job = job
        self._manifest = manifest
        self._index_blobs = index_blobs

    def dispatch(self, log: CommitLog, split_size: int) -> tuple[DataFrame, list[SplitRow]]:
        """Stage the whole log; returns what is staged, and its rows of splits in the order of the log."""
        report = self._job.report
        self._now = {segment.base: segment for segment in segments_now(self._job.store, log)}
        self._manifest = self._manifest.fitting(list(self._now.values()))
        staged_before = self._manifest.bases
        report.segments_staged_before = len(staged_before)
        missing = tuple(segment for segment in log.segments if segment.base not in staged_before)
        before = self._rows(self._manifest.rounds)
        read = self._stage("dispatch", plan_splits(replace(log, segments=missing), split_size), exact=False)
        report.bytes_read += sum(row.bytes_read for row in read)
        rows = _in_order([*before, *read])
        again = misaligned_segments(rows, log.segments[-1].base)
        if again:
            whole = [Split(segment, 0, segment.data_end) for segment in log.segments if segment.base in again]
            read = self._stage("dispatch again", whole, exact=True)
            report.bytes_read += sum(row.bytes_read for row in read)
            rows = _in_order([*(row for row in rows if row.segment not in again), *read])
        report.messages = sum(row.messages for row in rows)
        self._job.refuse([corrupt for row in rows for corrupt in row.corrupt])
        return self._staged(self._manifest.rounds), rows

    def _stage(self, name: str, splits: Sequence[Split], exact: bool) -> list[SplitRow]:
        """Dispatch splits of whole segments, note them in the manifest, and return their rows."""
        folder = self._job.committer.folder
        settings = self._manifest.settings
        round_name = f"{ROUND}{uuid.uuid4().hex}"
        with self._job.progress.stage(name, len(splits), "splits") as done:
            task = _DispatchTask(
                tuple(splits), settings.queue_file_size, self._index_blobs, settings.delay_levels, exact, done
            )
            numbers = self._job.spark.range(0, len(splits), 1, len(splits))
            rows = numbers.mapInArrow(self._job.places.wrap(task), from_arrow_schema(STAGED_SCHEMA))
            writer = rows.write.option("compression", "none").option("parquet.enable.dictionary", "false")
            writer.parquet(spark_path(folder / round_name))
        segments = [self._now[base] for base in sorted({split.segment.base for split in splits})]
        read = self._rows([Round(round_name, tuple(segments))])
        files = [*parquet_files(folder, round_name), *entry_files(read)]
        self._manifest = self._manifest.with_round(round_name, segments, files)
        self._manifest.save(folder)
        return read

    def _staged(self, rounds: Iterable[Round]) -> DataFrame:
        frames = []
        for one in rounds:
            path = spark_path(self._job.committer.folder / one.name)
            frame = self._job.spark.read.schema(from_arrow_schema(STAGED_SCHEMA)).parquet(path)
            frames.append(frame.where(~F.col("segment").isin(list(one.left_out))) if one.left_out else frame)
        return reduce(lambda before, frame: before.unionByName(frame), frames)

    def _rows(self, rounds: Sequence[Round]) -> list[SplitRow]:
        if not rounds:
            return []
        names = list(SplitRow.__dataclass_fields__)
        rows = self._staged(rounds).where(F.col("kind") == SPLIT).select(names).collect()
        return [SplitRow.of(row) for row in rows]


def _in_order(rows: Iterable[SplitRow]) -> list[SplitRow]:
    """The rows in the order of the log."""
    return sorted(rows, key=lambda row: (row.segment, row.split_start))
