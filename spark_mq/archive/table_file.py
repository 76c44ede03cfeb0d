"""A Parquet file of an archive's table, written by Arrow, with the Bloom filters and statistics of the table's layout.

Spark's own writer gets the rows from Python one by one, and encodes them one by one; Arrow encodes whole columns. The
statistics that Delta's log needs come from the file's metadata, so whoever commits the file needs only its name.
"""

from __future__ import annotations

import inspect
import json
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_mq.archive.tables import Layout

_NOTE = b"spark_mq.note"
_MAX_TEXT = 32
_LAST_CHARACTER = "\U0010ffff"


def new_file_name() -> str:
    """A name that no other file has."""
    return f"part-{uuid.uuid4()}.snappy.parquet"


def writes_bloom_filters() -> bool:
    """Whether the installed pyarrow can write Bloom filters."""
    return "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters


class TableFile:
    """A new file, which exists once a row was added, and is complete once it is closed."""

    def __init__(self, path: str, layout: Layout) -> None:
        """Prepare the file; nothing is written yet."""
        self.rows = 0
        self._path = path
        self._layout = layout
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of the layout. A row group is written when it is large enough."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= (self._layout.row_group_size or 128 << 20):
            self._write_group()

    def close(self, note: str = "") -> None:
        """Complete the file, with a note in it."""
        self._write_group()
        if self._writer is not None:
            self._writer.add_key_value_metadata({_NOTE: note})
            self._writer.close()
            self._writer = None

    def discard(self) -> None:
        """Remove the file, which is not complete."""
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                os.unlink(self._path)

    def _write_group(self) -> None:
        if not self._waiting:
            return
        group = pa.Table.from_batches(self._waiting)
        self._waiting, self._bytes = [], 0
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                group.schema,
                store_schema=False,
                write_page_index=True,
                # A Bloom filter is of use only beside values without a dictionary, which would tell the same.
                use_dictionary=[path for path in _parquet_paths(group.schema) if path not in self._layout.blooms],
                write_statistics=[field.name for field in group.schema if not pa.types.is_binary(field.type)],
                bloom_filter_options={name: {"ndv": group.num_rows, "fpp": 0.01} for name in self._layout.blooms},
            )
        self._writer.write_table(group, row_group_size=group.num_rows)


def _parquet_paths(schema: pa.Schema) -> list[str]:
    """The paths of all columns in Parquet, also those within lists and maps."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    return _paths(pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema)


def _paths(schema: pq.ParquetSchema) -> list[str]:
    return [schema.column(index).path for index in range(len(schema.names))]


@dataclass(frozen=True)
class WrittenFile:
    """A complete file.

    Attributes:
        statistics: The statistics, as Delta's log has them.
    """

    path: str
    rows: int
    statistics: str
    note: str


def read_written_file(path: str, layout: Layout) -> WrittenFile | None:
    """The file at `path`; None if it is not there, or another program wrote it."""
    try:
        metadata = pq.read_metadata(path)
    except FileNotFoundError:
        return None
    note = (metadata.metadata or {}).get(_NOTE)
    if note is None:
        return None
    return WrittenFile(path, metadata.num_rows, _delta_statistics(metadata, layout), note.decode())


def _delta_statistics(metadata: pq.FileMetaData, layout: Layout) -> str:
    """The statistics of a file in Delta's JSON: without the bounds of a column that Parquet has not for all values."""
    paths = _paths(metadata.schema)
    least, greatest, nulls = {}, {}, {}
    for name in layout.statistics:
        index = paths.index(name)
        groups = [metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)]
        nulls[name] = sum(group.null_count for group in groups)
        known = [group for group in groups if group.has_min_max]
        if known and all(group.has_min_max or not group.num_values for group in groups):
            least[name] = _bound(min(group.min for group in known), "")
            greatest[name] = _bound(max(group.max for group in known), _LAST_CHARACTER)
    return json.dumps({"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def _bound(value: Any, more: str) -> Any:
    """A bound in Delta's JSON: of a long text only the start, which `more` makes the upper bound."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return value[:_MAX_TEXT] + more
    return value
