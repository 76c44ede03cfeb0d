"""Times: milliseconds since the epoch in RocketMQ's files, datetimes of users, microseconds in Arrow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS, MIN_TIMESTAMP_MILLIS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_millis(moment: datetime) -> int:
    """Milliseconds from the epoch to an aware datetime, the rest cut off."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def epoch_micros(moment: datetime) -> int:
    """Microseconds from the epoch to an aware datetime."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def of_micros(micros: int) -> datetime:
    """The datetime so many microseconds after the epoch; raises `OverflowError` outside years 1 to 9999."""
    return EPOCH + timedelta(microseconds=micros)


def micros(millis: int) -> int | None:
    """Milliseconds as microseconds; None outside years 1 to 9999."""
    return millis * 1000 if MIN_TIMESTAMP_MILLIS <= millis <= MAX_TIMESTAMP_MILLIS else None


def iso_text(millis: int) -> str:
    """Milliseconds as ISO 8601 in UTC, for a person; as a number outside years 1 to 9999."""
    if micros(millis) is None:
        return str(millis)
    return (EPOCH + timedelta(milliseconds=millis)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
