"""Times and durations in the texts of this package."""

from __future__ import annotations

from spark_mq.format.timestamp import iso_text

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000))
_SECOND = 1000


def duration_text(millis: int) -> str:
    """A duration for a person, in its two largest units.

    Args:
        millis: Milliseconds; a negative number gets a sign.
    """
    if millis < 0:
        return f"-{duration_text(-millis)}"
    for index, (name, size) in enumerate(_UNITS):
        if millis >= size:
            smaller, smaller_size = (*_UNITS, ("s", _SECOND))[index + 1]
            rest = millis % size // smaller_size
            return f"{millis // size} {name} {rest} {smaller}" if rest else f"{millis // size} {name}"
    if millis < _SECOND:
        return f"{millis} ms"
    return f"{millis // _SECOND} s" if millis % _SECOND == 0 else f"{millis / _SECOND:.3f}".rstrip("0") + " s"


def time_text(millis: int) -> str:
    """A time as ISO 8601 in UTC, without milliseconds if they are 0.

    Args:
        millis: Milliseconds since the epoch.
    """
    return iso_text(millis).replace(".000Z", "Z")
