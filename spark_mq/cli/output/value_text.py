"""Values as text: for a person as `mqadmin` prints them, for programs as lines of JSON with the tables' column names.

The content of a store is not trusted: control characters are written as escapes, so that they cannot steer a terminal.
In JSON, timestamps are in ISO 8601, bodies in Base64, maps are objects.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unicodedata import category, east_asian_width

if TYPE_CHECKING:
    import pyarrow as pa


ELLIPSIS = "…"
"""Stands for the rest of a text that was cut."""

_JAMO_VOWELS_AND_FINALS = range(0x1160, 0x1200)
"""Parts of a Hangul syllable that are drawn into the character before them."""
NULL_TEXT = "-"
Row = Mapping[str, Any]
"""The values of a row by the names of its columns."""


def print_fields(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print the columns of each row, one a line, and an empty line between two rows. Values are whole."""
    width = max(map(len, columns), default=0) + 1
    for number, row in enumerate(rows):
        if number:
            print()
        for column in columns:
            print(f"{column + ':':<{width}} {value_text(row[column])}".rstrip())


def display_width(text: str) -> int:
    """The number of terminal columns that a text without control characters takes."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def cut(text: str, width: int, keeps_end: bool = False) -> str:
    """The text, or if it is wider than `width` columns, its beginning, or end, and an ellipsis in that many columns."""
    if len(text) <= width // 2 or display_width(text) <= width:
        return text
    if keeps_end:
        return cut(text[::-1], width)[::-1]
    taken, kept = 0, []
    for character in text:
        taken += _character_width(character)
        if taken > width - 1:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def pad(text: str, width: int, to_the_right: bool = False) -> str:
    """The text with spaces up to `width` columns: after it, or before it if the text goes to the right."""
    spaces = " " * (width - display_width(text))
    return spaces + text if to_the_right else text + spaces


def _character_width(character: str) -> int:
    if character.isascii():
        return 1
    if east_asian_width(character) in ("W", "F"):
        return 2
    if category(character) in ("Mn", "Me") or ord(character) in _JAMO_VOWELS_AND_FINALS:
        return 0
    return 1


def value_text(value: object) -> str:
    """A value as text for a person; NULL is `-`."""
    if value is None:
        return NULL_TEXT
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return local_time(value)
    if isinstance(value, bytes):
        return visible(bytes_text(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{visible(str(key))}={visible(str(item))}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return " ".join(visible(str(item)) for item in value)
    return visible(str(value))


def bytes_text(value: bytes) -> str:
    """The bytes as UTF-8 text; else their number, and the bytes in hexadecimal digits."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return f"{len(value)} bytes: {value.hex(' ')}"


def local_time(moment: datetime) -> str:
    """A time such as `2026-11-20 08:00:00,123 +0800`: as `mqadmin`, plus the zone. Options for times accept it."""
    try:
        local = moment.astimezone()
    except (OverflowError, ValueError, OSError):  # the first and the last day that a datetime can contain
        local = moment
    return f"{local.year:04}-{local:%m-%d %H:%M:%S},{local.microsecond // 1000:03} {local:%z}"


def local_time_of(millis: int) -> str:
    """The time of `millis` milliseconds since the epoch as `local_time`; outside years 1 to 9999 the number itself."""
    from spark_mq.format.timestamp import moment_of_millis

    moment = moment_of_millis(millis)
    return str(millis) if moment is None else local_time(moment)


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
