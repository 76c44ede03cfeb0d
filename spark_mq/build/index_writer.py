"""Whole index files out of staged entries: the broker's putKey, entry by entry, in one array for each file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_mq.build.index_blob import IndexBlob
from spark_mq.build.progress import mark_done
from spark_mq.format.index_file import ENTRY_SIZE, IndexLayout, decode_header
from spark_mq.store.filesystem import Location
from spark_mq.store.publish import publish

WRITTEN_SCHEMA = "file STRING, entries BIGINT, end_timestamp BIGINT"
"""One row for each file: the entries in it, and its end timestamp."""


@dataclass(frozen=True)
class IndexPiece:
    """`count` entries of a blob, from its entry `start` on."""

    blob: IndexBlob
    start: int
    count: int


@dataclass(frozen=True)
class IndexFilePlan:
    """A file: its entries, in order, and the entry before them, at whose time and offset it begins."""

    name: str
    pieces: tuple[IndexPiece, ...]
    before: IndexPiece | None


@dataclass(frozen=True)
class IndexWriter:
    """Writes planned files below `folder`. `empty_index_count`: what a file without an entry counts."""

    folder: Location
    layout: IndexLayout
    plans: tuple[IndexFilePlan, ...]
    empty_index_count: int
    done: Location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: numbers of files in, `WRITTEN_SCHEMA` out."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                plan = self.plans[number]
                entries, end_timestamp = self._write(plan)
                yield pa.RecordBatch.from_pydict(
                    {"file": [plan.name], "entries": [entries], "end_timestamp": [end_timestamp]}
                )
                mark_done(self.done, plan.name)

    def _write(self, plan: IndexFilePlan) -> tuple[int, int]:
        from spark_mq.format.index_put import new_index_file, put_keys

        end_timestamp = end_offset = 0
        if plan.before is not None:
            before = plan.before.blob.read(plan.before.start, 1)
            end_timestamp, end_offset = int(before.store_timestamps[0]), int(before.commit_log_offsets[0])
        data = new_index_file(self.layout, end_timestamp, end_offset, self.empty_index_count)
        for piece in plan.pieces:
            entries = piece.blob.read(piece.start, piece.count)
            put_keys(
                data, self.layout, entries.key_hashes, entries.commit_log_offsets, entries.store_timestamps, plan.name
            )
        header = decode_header(data, self.layout, plan.name)
        used = self.layout.entries_at + ENTRY_SIZE * header.next_entry
        publish(self.folder / plan.name, data[:used].data, self.layout.file_size)
        return header.next_entry - 1, header.end_timestamp
