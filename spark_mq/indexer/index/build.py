"""Index files out of staged entries: find what exists, plan the files, write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

from spark_mq.format.broker_version import INDEX_FLUSHED_AT_STOP
from spark_mq.format.index_file import IndexLayout
from spark_mq.indexer.damage import raise_or_report
from spark_mq.indexer.index.pending import pending_entries
from spark_mq.indexer.index.plan import plan_index_files
from spark_mq.indexer.index.writer import WRITTEN_SCHEMA, IndexWriter, WrittenFile
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.staging.stage import StagedLog
from spark_mq.io.location import Location
from spark_mq.job.context import JobContext
from spark_mq.job.task_items import TaskItems
from spark_mq.store.config.sourced import NOTHING_TELLS, Sourced
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.end import IndexEnd, index_end
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout
from spark_mq.store.index.names import zone_of_names
from spark_mq.store.log.corrupt_range import CorruptRange


@dataclass(frozen=True)
class ExistingIndex:
    """What exists of the index before the job.

    Attributes:
        layout: Slots and entries of an index file.
        file_count: The number of existing files that are continued.
        end: The end of the existing index that is continued; None if nothing is continued.
    """

    layout: IndexLayout
    file_count: int
    end: IndexEnd | None
    zone: tzinfo

    @property
    def end_timestamp(self) -> int:
        """The end timestamp of the last existing file in milliseconds; 0 without a file."""
        return 0 if self.end is None else self.end.header.end_timestamp


@dataclass(frozen=True)
class IndexResult:
    """What was written of the index. The fields are named as in `RebuildReport`.

    Attributes:
        end_timestamp: The latest end timestamp of a written file, or of the last existing one, in milliseconds.
    """

    index_files: int = 0
    index_entries: int = 0
    bytes_written: int = 0
    files_untouched: int = 0
    files_completed: int = 0
    end_timestamp: int = 0
    corrupt: tuple[CorruptRange, ...] = ()


def find_existing_index(plan: RebuildPlan, output: Location) -> ExistingIndex:
    """The index that is continued in `output`, and the layout and time zone of the store's index files."""
    layout = index_layout(plan.store, plan.broker_conf)
    existing = index_files(output) if INDEX in plan.continued else []
    end = index_end(existing, layout)
    zone = plan.time_zone or find_time_zone(existing or index_files(plan.store), layout).value
    return ExistingIndex(layout, len(existing), end, zone)


def write_index(
    context: JobContext,
    plan: RebuildPlan,
    existing: ExistingIndex,
    staged: StagedLog,
    is_stopped: Callable[[], bool] = lambda: False,
) -> IndexResult:
    """Write every index file.

    Args:
        is_stopped: Whether the job has ended; no file is written then.
    """
    pending = pending_entries(staged.splits, staged.folder, existing.end)
    corrupt = raise_or_report(pending.contradictions, plan.is_permissive)
    plans = plan_index_files(pending, existing.layout, existing.end, existing.zone, staged.first_store_timestamp)
    context.committer.keep_only(INDEX, {file.name for file in plans}.__contains__)
    if not plans or is_stopped():
        return IndexResult(files_untouched=existing.file_count, end_timestamp=existing.end_timestamp, corrupt=corrupt)
    with context.progress.stage("write index", len(plans), "files") as done:
        folder = context.committer.staging_path(INDEX)
        empty_index_count = 0 if plan.broker_versions.decide(INDEX_FLUSHED_AT_STOP) is False else 1
        writer = IndexWriter(folder, existing.layout, TaskItems.of(plans), empty_index_count, done)
        rows = context.tasks.rows(writer, len(plans), WRITTEN_SCHEMA)
    written = [WrittenFile(**row) for row in rows.to_pylist()]
    completed = {file.name for file in plans if file.continued is not None}
    staged_before = sum(not row.is_new for row in written if row.file not in completed)
    return IndexResult(
        index_files=len(written),
        index_entries=sum(row.entries for row in written),
        bytes_written=sum(row.is_new for row in written) * existing.layout.file_size,
        files_untouched=existing.file_count + staged_before - len(completed),
        files_completed=len(completed),
        end_timestamp=max(existing.end_timestamp, *(row.end_timestamp for row in written)),
        corrupt=corrupt,
    )


def find_time_zone(existing: Sequence[IndexFileInfo], layout: IndexLayout) -> Sourced[tzinfo]:
    """The time zone that the names of existing files show; UTC if they do not show one."""
    valid = [file for file in existing if file.size == layout.file_size]
    zone = zone_of_names([(file.name, file.header(layout).begin_timestamp) for file in valid])
    return Sourced(UTC, NOTHING_TELLS) if zone is None else Sourced(zone, "the names of the index files")
