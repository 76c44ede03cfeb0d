"""Names of index files: the time at which the broker created the file, `yyyyMMddHHmmssSSS` in its time zone.

(`IndexService.getAndCreateLastIndexFile`, `UtilAll.timeMillisToHumanString`@5.3.3.) The order of the names is the order
of the files. A rebuilt file is named after the store time of its first message: a broker would have created the file at
that time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from spark_mq.errors import OptionError
from spark_mq.format.timestamp import EPOCH

_FORMAT = "%Y%m%d%H%M%S"
_LATEST = "99991231235959000"
_STEP = timedelta(minutes=15)
"""The offsets of time zones are multiples of a quarter of an hour."""
_FARTHEST = 1 << 40
"""Milliseconds: no zone is so far ahead of another, and `timedelta` can represent the difference."""
_NEAR = timedelta(minutes=2)
"""The longest time between the storing of a file's first message and the creation of the file."""


def index_file_names(timestamps: Iterable[int], zone: tzinfo, above: str = "") -> list[str]:
    """Ascending names for files whose first messages were stored at `timestamps` (milliseconds).

    `above` is the newest existing name; all new names are above it.
    """
    names = []
    for timestamp in timestamps:
        name = _name(timestamp, zone)
        if name <= above:
            name = f"{int(above) + 1:017d}"
        names.append(name)
        above = name
    return names


def _name(timestamp: int, zone: tzinfo) -> str:
    try:
        moment = (EPOCH + timedelta(milliseconds=timestamp)).astimezone(zone)
        return f"{moment.year:04d}{moment:%m%d%H%M%S}{moment.microsecond // 1000:03d}"
    except (OverflowError, ValueError):
        return "0" * 17 if timestamp < 0 else _LATEST


def zone_of_names(files: Iterable[tuple[str, int]]) -> tzinfo | None:
    """The zone in which a broker named its files, from (name, begin timestamp in milliseconds); None if unknown."""
    for name, begin_timestamp in sorted(files, reverse=True):
        local = time_of_name(name, UTC)
        if local is None or not abs(local - begin_timestamp) < _FARTHEST:
            continue
        ahead = timedelta(milliseconds=local - begin_timestamp)
        whole = round(ahead / _STEP) * _STEP
        if begin_timestamp > 0 and abs(ahead - whole) < _NEAR and abs(whole) < timedelta(hours=24):
            return timezone(whole)
    return None


def time_of_name(name: str, zone: tzinfo) -> int | None:
    """The time that a name stands for in a zone, milliseconds since the epoch; None if it stands for none."""
    try:
        moment = datetime.strptime(name[:14], _FORMAT).replace(tzinfo=zone) + timedelta(milliseconds=int(name[14:]))
        return (moment - EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


def parse_time_zone(name: str) -> tzinfo:
    """The time zone with a name such as `Asia/Shanghai` or `UTC`. Raises `OptionError` for an unknown name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise OptionError(f"--time-zone {name!r} is not a known time zone, such as Asia/Shanghai") from error
