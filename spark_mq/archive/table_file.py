"""A Parquet file of an archive's table, written by Arrow, with the Bloom filters and statistics of the table's layout.

Spark's own writer gets the rows from Python one by one, and encodes them one by one; Arrow encodes whole columns. The
statistics that Delta's log needs are in the file's metadata, so whoever commits the file needs only its name.
"""

from __future__ import annotations

import inspect
import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_mq.archive.tables import Layout

_STATISTICS = b"spark_mq.statistics"
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
        self._ranges: dict[str, _Range] = dict.fromkeys(layout.statistics, _Range())

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
            self._writer.add_key_value_metadata({_STATISTICS: self._statistics(), _NOTE: note})
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
        for name in self._layout.statistics:
            self._ranges[name] = self._ranges[name].extended(group[name])
        self._writer.write_table(group, row_group_size=group.num_rows)

    def _statistics(self) -> str:
        known = {name: values for name, values in self._ranges.items() if values.least is not None}
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _bound(values.least, "") for name, values in known.items()},
                "maxValues": {name: _bound(values.greatest, _LAST_CHARACTER) for name, values in known.items()},
                "nullCount": {name: values.nulls for name, values in self._ranges.items()},
            }
        )


@dataclass(frozen=True)
class _Range:
    """The least and the greatest value of a column, and the number of its NULLs."""

    least: Any = None
    greatest: Any = None
    nulls: int = 0

    def extended(self, column: pa.ChunkedArray) -> _Range:
        """The range with the values of a further row group."""
        found: Mapping[str, Any] = pc.min_max(column).as_py()
        nulls = self.nulls + column.null_count
        if found["min"] is None:
            return _Range(self.least, self.greatest, nulls)
        if self.least is None:
            return _Range(found["min"], found["max"], nulls)
        return _Range(min(self.least, found["min"]), max(self.greatest, found["max"]), nulls)


def _parquet_paths(schema: pa.Schema) -> list[str]:
    """The paths of all columns in Parquet, also those within lists and maps."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [columns.column(index).path for index in range(len(columns.names))]


def _bound(value: Any, more: str) -> Any:
    """A bound in Delta's JSON: of a long text only the start, which `more` makes the upper bound."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return value[:_MAX_TEXT] + more
    return value


@dataclass(frozen=True)
class WrittenFile:
    """A complete file.

    Attributes:
        path: Its path.
        rows: The number of rows.
        statistics: The statistics, as Delta's log has them.
        note: The note in it.

    """

    path: str
    rows: int
    statistics: str
    note: str


def read_written_file(path: str) -> WrittenFile | None:
    """The file at `path`; None if it is not there, or another program wrote it."""
    try:
        metadata = pq.read_metadata(path)
    except FileNotFoundError:
        return None
    values = metadata.metadata or {}
    if _STATISTICS not in values:
        return None
    return WrittenFile(path, metadata.num_rows, values[_STATISTICS].decode(), values.get(_NOTE, b"").decode())
