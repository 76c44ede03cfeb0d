"""Values as text for a person: names and values as `mqadmin` prints them, times in the local zone.

The content of a store is not trusted: control characters are written as escapes, so that they cannot steer a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from unicodedata import category, east_asian_width

ELLIPSIS = "…"
"""Stands for the rest of a text that was cut."""

_JAMO_VOWELS_AND_FINALS = range(0x1160, 0x1200)
"""Parts of a Hangul syllable that are drawn into the character before them."""
NULL_TEXT = "-"


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
    from spark_mq.format.timestamp import micros, of_micros

    value = micros(millis)
    return str(millis) if value is None else local_time(of_micros(value))


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
