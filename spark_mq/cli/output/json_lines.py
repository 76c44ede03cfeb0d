"""Rows for programs: one JSON object a line, with the tables' column names.

Timestamps are in ISO 8601, bodies in Base64, maps are objects.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]
"""The values of a row by the names of its columns."""


def print_json(rows: Iterable[Row]) -> None:
    """Print each row as one line: a JSON object."""
    for row in rows:
        print(json.dumps(row, default=_as_json, ensure_ascii=False))


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        timespec = "microseconds" if value.microsecond % 1000 else "milliseconds"
        return value.isoformat(timespec=timespec).replace("+00:00", "Z")
    if isinstance(value, date | Decimal | timedelta):
        return str(value)
    raise TypeError(f"{value!r} has no JSON form")


def csv_text(value: object) -> str:
    """A value as a cell of a CSV file: text unchanged, NULL as an empty cell, any other value as in JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    text = json.dumps(value, default=_as_json, ensure_ascii=False)
    return json.loads(text) if text.startswith('"') else text


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """A table's rows: maps as dictionaries, timestamps as datetimes in UTC."""
    columns = [_plain_values(table.column(name).combine_chunks()) for name in table.column_names]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _plain_values(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_map(column.type):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        # With a zone, to_pylist imports pandas, which is half of a command's time.
        moments = column.view(pa.timestamp(column.type.unit)).to_pylist()
        return [None if moment is None else moment.replace(tzinfo=UTC) for moment in moments]
    values: list[Any] = column.to_pylist()
    return values


def with_times(value: Any) -> Any:
    """The value with fields whose names end in `timestamp`, milliseconds, as times in ISO 8601; 0 and None are NULL."""
    if isinstance(value, list | tuple):
        return [with_times(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    from spark_mq.format.timestamp import iso_text

    return {
        name: (iso_text(item) if item else None) if name.endswith("timestamp") else with_times(item)
        for name, item in value.items()
    }
