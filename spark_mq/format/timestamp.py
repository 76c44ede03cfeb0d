"""Times: milliseconds since the epoch in RocketMQ's files, datetimes of users, microseconds in Arrow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS, MIN_TIMESTAMP_MILLIS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def iso_text(millis: int) -> str:
    """`millis` milliseconds since the epoch as ISO 8601 in UTC; outside years 1 to 9999 the number itself.

    Example:
        >>> iso_text(0)
        '1970-01-01T00:00:00.000Z'
    """
    if micros(millis) is None:
        return str(millis)
    return (EPOCH + timedelta(milliseconds=millis)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
