"""Whole index files out of staged entries: the rules of `IndexFile.putKey`@5.3.3, on one array for each file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, tzinfo

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Bytes
from spark_mq.format.broker_version import INDEX_FLUSHED_AT_STOP
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, HEADER_SIZE, IndexHeader, IndexLayout, decode_header
from spark_mq.indexer.index_plan import IndexFilePlan, pending_entries, plan_index_files
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.report import raise_or_report
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import published
from spark_mq.job.task_items import TaskItems
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.broker_conf import NOTHING_TELLS, Sourced
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.folder import IndexEnd, IndexFileInfo, index_end, index_files, index_layout, zone_of_names
from spark_mq.store.log.segment_files import CorruptRange

WRITTEN_SCHEMA = pa.schema(
    [("file", pa.string()), ("entries", pa.int64()), ("end_timestamp", pa.int64()), ("is_new", pa.bool_())]
)
"""The columns of `WrittenFile`, one row for each file."""

_BLOCK = 16 << 20


@dataclass(frozen=True)
class WrittenFile:
    """An index file that a task has finished.

    Attributes:
        end_timestamp: The time at which it ends, in milliseconds.
        is_new: Whether the task wrote it; else it existed.
    """

    file: str
    entries: int
    end_timestamp: int
    is_new: bool


@dataclass(frozen=True)
class IndexWriter:
    """The task that writes planned files, except files that a killed job has already written.

    Attributes:
        folder: The `index` folder in which files are written.
        layout: Slots and entries of an index file.
        empty_index_count: The index count in the header of a file without an entry.
        done: The folder in which the task marks each file as done.
    """

    folder: Location
    layout: IndexLayout
    plans: TaskItems[IndexFilePlan]
    empty_index_count: int
    done: Location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As a task: numbers of planned files in, rows of `WRITTEN_SCHEMA` out."""
        for plan in self.plans.each(batches, self.done):
            header = self._written(plan)
            is_new = header is None
            header = header or self.write(plan)
            written = WrittenFile(plan.name, header.next_entry - 1, header.end_timestamp, is_new)
            yield pa.RecordBatch.from_pylist([vars(written)], schema=WRITTEN_SCHEMA)

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
            for entry_range in plan.ranges:
                for part in entry_range.read():
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

        data, entries_at = self._begin(plan), self.layout.entries_at
        head = entries_at + ENTRY_SIZE * (plan.entries_before + 1)
        with published(self.folder / plan.name, self.layout.file_size) as file, ThreadPoolExecutor(1) as disk:
            parts = (part for entry_range in plan.ranges for part in entry_range.read())
            pending, at = disk.submit(next, parts, None), head
            writes = []
            while (part := pending.result()) is not None:
                pending = disk.submit(next, parts, None)
                count = put_keys(
                    data, self.layout, part.key_hashes, part.commit_log_offsets, part.store_timestamps, plan.name
                )
                writes.append(disk.submit(file.write, at, data[at : at + ENTRY_SIZE * count].data))
                at += ENTRY_SIZE * count
            writes.append(disk.submit(file.write, 0, data[:head].data))  # the slots are complete only now
            for write in writes:
                write.result()
        return decode_header(data, self.layout, plan.name)

    def _begin(self, plan: IndexFilePlan) -> Bytes:
        """The file before the first planned entry."""
        from spark_mq.format.kernels.index_put import drop_uncounted, new_index_file

        if plan.continued is None:
            return new_index_file(self.layout, *plan.end_before, self.empty_index_count)
        data = np.zeros(self.layout.file_size, np.uint8)
        used = self.layout.entries_at + ENTRY_SIZE * (plan.entries_before + 2)  # entry 0, and an unfinished entry
        with FileReader(plan.continued) as file:
            for start in range(0, min(used, data.size), _BLOCK):
                block = file.read(start, min(_BLOCK, used - start))
                data[start : start + len(block)] = np.frombuffer(block, np.uint8)
        drop_uncounted(data, self.layout, str(plan.continued))
        return data


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
