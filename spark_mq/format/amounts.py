"""Numbers as text for a person, and the text of a person as a number: what is counted, bytes, and durations."""

from __future__ import annotations

import re
from itertools import pairwise

from spark_mq.errors import OptionError

_SIZES = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([bkmg]?)(?:i?b)?", re.IGNORECASE)
_DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number of things as text: `1 message`, `2,000 messages`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def size_text(size: int) -> str:
    """A number of bytes with a unit."""
    if abs(size) < 1024:
        return f"{size} B"
    scaled = float(size)
    for unit in _SIZES:
        scaled /= 1024
        if abs(scaled) < 1023.95 or unit == _SIZES[-1]:
            break
    return f"{scaled:.1f} {unit}"


def parse_size(name: str, text: str, least: int = 1) -> int:
    """The bytes of a size: a number with an optional unit (k, m, g; powers of 1024). Raises `OptionError`."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[match[2].lower()] if match else 0
    if size < least:
        raise OptionError(f"{name}={text!r} is not a size of at least {least} bytes, such as 64m")
    return size


def duration_text(millis: int) -> str:
    """A duration in its two largest units."""
    if millis < 0:
        return f"-{duration_text(-millis)}"
    for (name, size), (smaller, smaller_size) in pairwise(_DURATIONS):
        if millis >= size:
            rest = millis % size // smaller_size
            return f"{millis // size} {name} {rest} {smaller}" if rest else f"{millis // size} {name}"
    if millis < 1000:
        return f"{millis} ms"
    return f"{millis // 1000} s" if millis % 1000 == 0 else f"{millis / 1000:.3f}".rstrip("0") + " s"
