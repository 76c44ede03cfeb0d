"""Values as text for a person: names and values as `mqadmin` prints them, times in the local zone.

The content of a store is not trusted: control characters are written as escapes, so that they cannot steer a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

NULL_TEXT = "-"
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


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


def size_text(size: int) -> str:
    """A number of bytes with a unit, for a person."""
    if abs(size) < 1024:
        return f"{size} B"
    scaled = float(size)
    for unit in _UNITS:
        scaled /= 1024
        if abs(scaled) < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{scaled:.1f} {unit}"


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
