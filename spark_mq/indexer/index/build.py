"""Index files out of staged entries: which file an entry goes to, and the files' names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo

from spark_mq.format.index_file import IndexLayout
from spark_mq.indexer.index.plan import plan_index_files
from spark_mq.indexer.index.runs import behind, index_runs
from spark_mq.indexer.index.writer import WRITTEN_SCHEMA, IndexFilePlan, IndexWriter
from spark_mq.indexer.run import Job
from spark_mq.indexer.split_rows import SplitRow
from spark_mq.io.location import Location
from spark_mq.store.config.broker_version import BrokerVersion
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.end import index_end
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout
from spark_mq.store.index.names import zone_of_names


class IndexBuild:
    """The index files of one job; `end_timestamp`, once they are written, is that of the last.

    Raises `OptionError` where existing files do not tell their slots and entries, and `CorruptIndexError` where they
    cannot be continued.
    """

    def __init__(self, job: Job, zone: tzinfo | None, broker_version: BrokerVersion, blobs: Location) -> None:
        self._job = job
        self._layout = index_layout(job.store, job.broker_conf)
        existing = index_files(job.committer.output) if INDEX in job.continued else []
        self._end = index_end(existing, self._layout)
        self._zone = zone or _zone_of(existing or index_files(job.store), self._layout) or UTC
        self._empty_index_count = 0 if broker_version == BrokerVersion.V4_9 else 1
        self.end_timestamp = 0 if self._end is None else self._end.header.end_timestamp
        self.bytes_written = 0
        self._untouched = len(existing)
        self.blobs = blobs
        self.blobs.filesystem.create_dir(self.blobs.path, recursive=True)

    def write(self, rows: Sequence[SplitRow], is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Write every index file; `rows` in the order of the log. Nothing, if the job `is_stopped` before."""
        plans = self._plans(rows)
        report, committer = self._job.report, self._job.committer
        committer.keep_only(INDEX, {plan.name for plan in plans}.__contains__)
        report.files_untouched += self._untouched
        if not plans or is_stopped():
            return
        with self._job.progress.stage("write index", len(plans), "files") as done:
            growing = committer.staging_path(INDEX)
            writer = IndexWriter(growing, self._layout, tuple(plans), self._empty_index_count, done)
            numbers = self._job.spark.range(0, len(plans), 1, len(plans))
            written = numbers.mapInArrow(self._job.places.wrap(writer), WRITTEN_SCHEMA).collect()
        completed = {plan.name for plan in plans if plan.continued is not None}
        report.files_completed += len(completed)
        report.files_untouched += sum(not row.is_new for row in written if row.file not in completed) - len(completed)
        report.index_files = len(written)
        report.index_entries = sum(row.entries for row in written)
        self.bytes_written = sum(row.is_new for row in written) * self._layout.file_size
        self.end_timestamp = max(written, key=lambda row: str(row.file)).end_timestamp

    def _plans(self, rows: Sequence[SplitRow]) -> list[IndexFilePlan]:
        runs = index_runs(rows, self.blobs)
        if self._end is not None:
            runs, contradictions = behind(rows, runs, self._end)
            self._job.refuse(contradictions)
        first_timestamp = next((row.first_store_timestamp for row in rows if row.messages), None) or 0
        return plan_index_files(runs, self._layout, self._end, self._zone, first_timestamp)


def _zone_of(existing: Sequence[IndexFileInfo], layout: IndexLayout) -> tzinfo | None:
    sound = [file for file in existing if file.size == layout.file_size]
    return zone_of_names([(file.name, file.header(layout).begin_timestamp) for file in sound])
