"""Index files out of staged entries: which file an entry goes to, and the files' names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo
from itertools import repeat

import numpy as np

from spark_mq.build.dispatch_rows import SplitRow
from spark_mq.build.index_blob import IndexBlob
from spark_mq.build.index_writer import WRITTEN_SCHEMA, IndexFilePlan, IndexPiece, IndexWriter
from spark_mq.build.job import Job
from spark_mq.format.index_file import IndexLayout
from spark_mq.format.index_placement import IndexPlacement, place_entries
from spark_mq.store.broker_version import BrokerVersion
from spark_mq.store.index_folder import INDEX, IndexFileInfo, index_files, index_layout
from spark_mq.store.index_names import index_file_names, zone_of_names


class IndexBuild:
    """The index files of one job; `end_timestamp`, once they are written, is that of the last.

    Raises `OptionError` where existing files do not tell their slots and entries.
    """

    def __init__(self, job: Job, zone: tzinfo | None, broker_version: BrokerVersion) -> None:
        self._job = job
        self._layout = index_layout(job.store, job.broker_conf)
        self._zone = zone or _zone_of(index_files(job.store), self._layout) or UTC
        self._empty_index_count = 0 if broker_version == BrokerVersion.V4_9 else 1
        self.end_timestamp = 0
        self.bytes_written = 0
        self.blobs = job.workplace.folder / "index-entries"
        self.blobs.filesystem.create_dir(self.blobs.path, recursive=True)

    def write(self, rows: Sequence[SplitRow]) -> None:
        """Write every index file; `rows` in the order of the log."""
        plans = self._plans(rows)
        report, growing = self._job.report, self._job.workplace.growing(INDEX)
        if not plans:
            return
        with self._job.progress.stage("write index", len(plans), "files") as done:
            writer = IndexWriter(growing, self._layout, tuple(plans), self._empty_index_count, done)
            numbers = self._job.spark.range(0, len(plans), 1, len(plans))
            written = numbers.mapInArrow(self._job.places.guard(writer), WRITTEN_SCHEMA).collect()
        report.index_files = len(written)
        report.index_entries = sum(row.entries for row in written)
        self.bytes_written = len(written) * self._layout.file_size
        self.end_timestamp = max(written, key=lambda row: str(row.file)).end_timestamp

    def _plans(self, rows: Sequence[SplitRow]) -> list[IndexFilePlan]:
        blobs = [IndexBlob(self.blobs / (row.index_blob or ""), row.index_entries) for row in rows]
        placed = place_entries(
            np.array([row.index_entries for row in rows], np.int64),
            np.array([row.trailing_messages for row in rows], np.int64),
            self._layout,
        )
        pieces: list[list[IndexPiece]] = [[] for _ in range(placed.files)]
        for run, file, start, count in zip(
            placed.run.tolist(), placed.file.tolist(), placed.start.tolist(), placed.count.tolist(), strict=True
        ):
            pieces[file].append(IndexPiece(blobs[run], start, count))
        first = next((row.first_store_timestamp for row in rows if row.messages), None) or 0
        befores = [_before(placed, file, blobs) for file in range(placed.files)]
        names = index_file_names(map(_first_timestamp, pieces, befores, repeat(first)), self._zone)
        return [
            IndexFilePlan(name, tuple(of_file), before)
            for name, of_file, before in zip(names, pieces, befores, strict=True)
        ]


def _zone_of(existing: Sequence[IndexFileInfo], layout: IndexLayout) -> tzinfo | None:
    sound = [file for file in existing if file.size == layout.file_size]
    return zone_of_names([(file.name, file.header(layout).begin_timestamp) for file in sound])


def _before(placed: IndexPlacement, file: int, blobs: Sequence[IndexBlob]) -> IndexPiece | None:
    place = placed.entry_before(file)
    return None if place is None else IndexPiece(blobs[place[0]], place[1], 1)


def _first_timestamp(pieces: Sequence[IndexPiece], before: IndexPiece | None, first: int) -> int:
    """The store time of a file's first entry; where it has none, of the entry before it, or else the log's `first`."""
    piece = pieces[0] if pieces else before
    return first if piece is None else int(piece.blob.read(piece.start, 1).store_timestamps[0])
