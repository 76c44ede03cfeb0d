"""The names of index files: the times at which a broker created them, in its time zone.

A name is `yyyyMMddHHmmssSSS` (`IndexService.getAndCreateLastIndexFile`, `UtilAll.timeMillisToHumanString`@5.3.3), so
the first message of the file was stored before. A rebuilt file is named after the store time of its first message.
Names and headers are only hints: they can be damaged, and a broker that dispatches its log again creates files much
later. So `coverage` checks the files at both ends of a time range before it leaves out the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from spark_mq.errors import OptionError
from spark_mq.format.timestamp import EPOCH
from spark_mq.store.log.commit_log import CLOCK_TOLERANCE_MILLIS

BeginOf = Callable[[int], int | None]
"""The begin time in the header of a file, by the file's index; None if the header cannot be read."""
_FORMAT = "%Y%m%d%H%M%S"
_LATEST = "99991231235959000"
_STEP = timedelta(minutes=15)
"""The offsets of time zones are multiples of a quarter of an hour."""
_FARTHEST = 1 << 40
"""Milliseconds: no zone is so far ahead of another, and `timedelta` can represent the difference."""
_NEAR = timedelta(minutes=2)
"""The longest time between the storing of a file's first message and the creation of the file."""
_NO_TIME = 1 << 63
"""A time later than that of every file."""


def files_in_time(names: Sequence[str], begin_of: BeginOf, begin: int | None, end: int | None) -> tuple[int, int]:
    """The newest file before all messages of a time range, and the oldest file after all of them.

    Args:
        begin_of: Reads the begin time of a file's header, in milliseconds; called for few files.

    Two indexes of `names`. The first is 0 if there is no such file, the second `len(names)`.
    """
    count = len(names)
    if not count or (begin is None and end is None):
        return 0, count
    newest = ((names[index], begin_of(index)) for index in range(count - 1, max(count - 3, -1), -1))
    zone = zone_of_names([(name, time) for name, time in newest if time is not None])

    def created(name: str) -> int:
        time = None if zone is None else time_of_name(name, zone)
        return _NO_TIME if time is None else time

    first, stop = 0, count
    if begin is not None:
        earliest = begin - CLOCK_TOLERANCE_MILLIS
        first = max(_first_begun_from(begin_of, earliest, bisect_left(names, earliest, key=created), count) - 1, 0)
    if end is not None:
        latest = end + CLOCK_TOLERANCE_MILLIS + 1
        stop = _first_begun_from(begin_of, latest, max(bisect_left(names, latest, key=created), first), count)
    return first, stop


def _first_begun_from(begin_of: BeginOf, time: int, start: int, count: int) -> int:
    """The index of the first file from `start` on whose header has a begin time of `time` or later."""

    def is_late(index: int) -> bool:
        found = begin_of(index)
        return found is not None and found >= time

    low = high = start
    step = 1
    while high < count and not is_late(high):  # in steps that double, so that few headers are read
        low, high, step = high + 1, high + step, 2 * step
    return bisect_left(range(count), True, low, min(high, count), key=is_late)


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
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise OptionError(f"--time-zone {name!r} is not a known time zone, such as Asia/Shanghai") from error
