"""Times: milliseconds since the epoch in RocketMQ's files, datetimes of users, microseconds in Arrow."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from spark_mq.errors import OptionError
from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS, MIN_TIMESTAMP_MILLIS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LEAST_PLAUSIBLE_MILLIS = 10**11
"""March 1973. No message is older, and epoch seconds reach this number in the year 5138 only."""

_MEANT_MILLIS = range(1_325_376_000_000, 4_102_444_800_000)
"""From the year 2012, of the first RocketMQ, to 2100. A number that is such a time in another unit means that one.

The end of the year 9999 in milliseconds is not one of them.
"""

EARLIEST_MILLIS, LATEST_MILLIS = -(1 << 63), (1 << 63) - 1
"""The first and the last time in 64 bits: the bounds of a time range that is open."""

NANOS_PER_MICRO, NANOS_PER_MILLI = 1000, 1_000_000

_INT64 = range(-(1 << 63), 1 << 63)
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_SPACE_BEFORE_ZONE = re.compile(r"\s+(?=(?:[Zz]|[+-][0-9]{2}:?[0-9]{2}(?::?[0-9]{2})?)\Z)")


def parse_time(name: str, text: str) -> int:
    """Milliseconds since the epoch of a time as a user writes it.

    Args:
        name: What the time is given for (`--begin`, `option startTimestamp`); errors name it.
        text: Epoch milliseconds, or a date, a time and a zone: ISO 8601 (`2026-11-20T08:00:00Z`), or as the commands
            print a time (`2026-11-20 08:00:00,123 +0800`).

    Raises:
        OptionError: The text is not a time, has no zone, or is a number that `check_epoch_millis` refuses.
    """
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return check_epoch_millis(name, int(text))
    try:
        moment = datetime.fromisoformat(_SPACE_BEFORE_ZONE.sub("", text))
    except ValueError as error:
        raise OptionError(
            f"{name}={text!r} is not a time: give epoch milliseconds, or a date, a time and a zone, such as "
            "2026-11-20T08:00:00Z or '2026-11-20 08:00:00,123 +0800'"
        ) from error
    if moment.tzinfo is None:
        given = moment.isoformat()
        raise OptionError(f"{name}={text!r} has no time zone: give {given}Z, or {given}+08:00 with your offset")
    return epoch_millis(moment)


def check_epoch_millis(name: str, millis: int) -> int:
    """The number itself, if it can be meant as epoch milliseconds.

    0 and negative numbers are times before every message, and so valid bounds.

    Raises:
        OptionError: The number is positive but rather epoch seconds, microseconds or nanoseconds, or the digits of a
            date and a time such as 20261120080000; or it has more than 64 bits.
    """
    if 0 < millis < LEAST_PLAUSIBLE_MILLIS:
        seconds = f"for epoch seconds give {millis * 1000}, " if millis * 1000 >= LEAST_PLAUSIBLE_MILLIS else ""
        raise OptionError(
            f"{name}={millis} is too small for epoch milliseconds, it would be {iso_text(millis)}: {seconds}"
            "for no bound leave it out or give 0"
        )
    if millis not in _INT64:
        raise OptionError(f"{name}={millis} is not a time: epoch milliseconds have at most 64 bits")
    moment = _moment_of_digits(str(millis))
    if moment is not None:
        raise OptionError(f"{name}={millis} is not in epoch milliseconds: for this date and time give {moment}Z")
    for unit, count in (("microseconds", NANOS_PER_MICRO), ("nanoseconds", NANOS_PER_MILLI)):
        meant = millis // count
        if meant in _MEANT_MILLIS:
            raise OptionError(f"{name}={millis} is too large for epoch milliseconds: for epoch {unit} give {meant}")
    return millis


def millis_of(name: str, time: int | datetime) -> int:
    """A time in milliseconds since the epoch. Raises `OptionError` as `check_epoch_millis`, or without a time zone."""
    if isinstance(time, int):
        return check_epoch_millis(name, time)
    if time.tzinfo is None:
        raise OptionError(f"{name}={time} has no time zone: give an aware datetime, or milliseconds since the epoch")
    return epoch_millis(time)


def _moment_of_digits(digits: str) -> str | None:
    """The date and time that 14 or 17 digits spell (`20261120080000`, the name of an index file), in ISO 8601."""
    if len(digits) not in (14, 17) or not digits.startswith(("19", "20")):
        return None
    try:
        moment = datetime.strptime(digits[:14], "%Y%m%d%H%M%S")
    except ValueError:
        return None
    return moment.isoformat() + (f".{digits[14:]}" if digits[14:] else "")


def epoch_millis(moment: datetime) -> int:
    """The milliseconds from the epoch to `moment`, a datetime with a time zone, rounded down."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def epoch_micros(moment: datetime) -> int:
    """The microseconds from the epoch to `moment`, a datetime with a time zone."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def of_micros(micros: int) -> datetime:
    """The datetime that is `micros` microseconds after the epoch. Raises `OverflowError` outside years 1 to 9999."""
    return EPOCH + timedelta(microseconds=micros)


def micros(millis: int) -> int | None:
    """`millis` milliseconds since the epoch in microseconds; None outside years 1 to 9999."""
    return millis * 1000 if MIN_TIMESTAMP_MILLIS <= millis <= MAX_TIMESTAMP_MILLIS else None


def moment_of_millis(millis: int | None) -> datetime | None:
    """The datetime that is `millis` milliseconds after the epoch; None for None, and outside years 1 to 9999."""
    value = None if millis is None else micros(millis)
    return None if value is None else of_micros(value)


def iso_text(millis: int) -> str:
    """`millis` milliseconds since the epoch as ISO 8601 in UTC; outside years 1 to 9999 the number itself.

    Examples:
        >>> iso_text(0)
        '1970-01-01T00:00:00.000Z'
    """
    if micros(millis) is None:
        return str(millis)
    return (EPOCH + timedelta(milliseconds=millis)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
