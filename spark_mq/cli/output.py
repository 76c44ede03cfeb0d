"""Printing rows: text for a terminal, JSON lines for programs.

JSON: one object a line, with the tables' column names; timestamps in ISO 8601, bodies in Base64, maps as objects.
Text: names and values as `mqadmin` prints them, times in the local zone. The content of a store is not trusted: control
characters are written as escapes, so that they cannot steer a terminal.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import Any

import pyarrow as pa

Row = Mapping[str, Any]

_MAX_BODY_CHARACTERS = 2000
_MAX_CELL_CHARACTERS = 60
_ALIGNED_LINES = 1000
"""Lines that decide the widths of the columns; later lines can be wider."""


def print_json(rows: Sequence[Row]) -> None:
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
    if pa.types.is_map(column.type):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        # With a zone, to_pylist imports pandas, which is half of a command's time.
        moments = column.view(pa.timestamp(column.type.unit)).to_pylist()
        return [None if moment is None else moment.replace(tzinfo=UTC) for moment in moments]
    values: list[Any] = column.to_pylist()
    return values


def print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print the columns `columns` of the rows, aligned, with numbers to the right."""
    print_lines(([row[column] for column in columns] for row in rows), columns)


def print_lines(lines: Iterable[Sequence[object]], columns: Sequence[str]) -> None:
    """Print lines of values under the names of their columns, aligned, with numbers to the right.

    Lines are printed as they arrive, so there can be any number of them. The first 1,000 decide the widths.
    """
    remaining = iter(lines)
    first = list(islice(remaining, _ALIGNED_LINES))
    texts = [[visible(column) for column in columns], *([_cell(value) for value in line] for line in first)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    numeric = [any(isinstance(value, int | float | Decimal) for value in column) for column in zip(*first, strict=True)]
    padded = [str.rjust if is_number else str.ljust for is_number in numeric] or [str.ljust] * len(widths)
    for cells in chain(texts, ([_cell(value) for value in line] for line in remaining)):
        print("  ".join(pad(cell, width) for pad, cell, width in zip(padded, cells, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes):
        text = visible(_body_text(value)[: _MAX_CELL_CHARACTERS + 1], keep="")
    else:
        text = value_text(value)
    return text if len(text) <= _MAX_CELL_CHARACTERS or isinstance(value, int) else text[:_MAX_CELL_CHARACTERS] + "…"


def print_message(row: Row, body_file: str | None = None) -> None:
    """Print one row of table `messages`: the fields of `mqadmin queryMsgById`, one a line."""
    if row["topic"] is None:
        print(f"{'CommitLog Offset:':<20} {row['commit_log_offset']}")
        print(f"{'Corrupt:':<20} {visible(str(row['_corrupt_record']))}")
        return
    fields = {
        "OffsetID": row["offset_message_id"],
        "UniqueKey": row["unique_key"],
        "Topic": row["topic"],
        "Tags": _bracketed(row["tags"]),
        "Keys": _bracketed(None if row["keys"] is None else " ".join(row["keys"])),
        "Queue ID": row["queue_id"],
        "Queue Offset": row["queue_offset"],
        "CommitLog Offset": row["commit_log_offset"],
        "Reconsume Times": row["reconsume_times"],
        "Born Timestamp": row["born_timestamp"],
        "Store Timestamp": row["store_timestamp"],
        "Born Host": row["born_host"],
        "Store Host": row["store_host"],
        "System Flag": row["sys_flag"],
        "Transaction": row["transaction_type"],
        "Properties": row["properties"],
    }
    for name, value in fields.items():
        print(f"{name + ':':<20} {value_text(value)}")
    if body_file is not None:
        print(f"{'Message Body Path:':<20} {body_file}")
    print(f"{'Message Body:':<20} {_shown_body(row)}")


def _bracketed(text: str | None) -> str:
    return f"[{'' if text is None else text}]"


def _shown_body(row: Row) -> str:
    body = row["body"]
    if body is None:
        return visible(f"none: {row['_corrupt_record']}")
    text = _body_text(body)
    shown = visible(text[:_MAX_BODY_CHARACTERS], keep="\n\t")
    rest = "" if len(text) <= _MAX_BODY_CHARACTERS else f"… ({len(body)} bytes; --body-file writes all of them)"
    return shown + rest


def _body_text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return f"{len(body)} bytes: {body[:_MAX_BODY_CHARACTERS].hex(' ')}"


def value_text(value: object) -> str:
    """A value as text for a terminal; NULL is `-`."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return local_time(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{visible(str(key))}={visible(str(item))}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return " ".join(visible(str(item)) for item in value)
    return visible(str(value))


def local_time(moment: datetime) -> str:
    """A time such as `2026-11-20 08:00:00,123 +0800`: as `mqadmin`, plus the zone. Options for times accept it."""
    try:
        local = moment.astimezone()
    except (OverflowError, ValueError, OSError):  # the first and the last day that a datetime can contain
        local = moment
    return f"{local.year:04}-{local:%m-%d %H:%M:%S},{local.microsecond // 1000:03} {local:%z}"


def visible(text: str, keep: str = "") -> str:
    """`text` with every character that is not printable as Python's escape, except the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
