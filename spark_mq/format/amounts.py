"""Numbers as text for a person: things that are counted, bytes, and durations."""

from __future__ import annotations

from itertools import pairwise

_SIZES = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
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
