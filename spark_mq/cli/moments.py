"""Times as a person types them: besides those of `parse_time`, times that are relative to now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from spark_mq.errors import OptionError

_AGO = re.compile(r"-([0-9]{1,9})\s?([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS_AGO = {"today": 0, "yesterday": 1}
_OPTIONS = ("--begin", "--end", "--at", "--from-where")
_DESCENDING = re.compile(r"-[a-z]\w+")


def parse_moment(name: str, text: str, now: datetime) -> int:
    """Milliseconds since the epoch of a time as a person types it.

    Args:
        name: What the time is given for; errors name it.
        text: `-90s`, `-15m`, `-1h`, `-2d` or `-1w`: so long before now; `now`; `today` or `yesterday`: the beginning of
            the day, in the time zone of `now`; or what `parse_time` accepts.
        now: The present time, with a time zone.
    """
    from spark_mq.format.timestamp import epoch_millis, parse_time

    word = text.strip().lower()
    ago = _AGO.fullmatch(word)
    try:
        if ago is not None:
            return epoch_millis(now - timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
    except OverflowError as error:
        raise OptionError(f"{name}={text!r} is before the year 1") from error
    if word == "now":
        return epoch_millis(now)
    if word in _DAYS_AGO:
        day = (now - timedelta(days=_DAYS_AGO[word])).date()
        return epoch_millis(datetime(day.year, day.month, day.day, tzinfo=now.tzinfo))
    return parse_time(name, text)


def join_relative_times(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--begin -1h` as `--begin=-1h`: `argparse` takes a word with a hyphen for an option.

    The same is done for `--sort -lag`.
    """
    joined: list[str] = []
    for argument in arguments:
        before = joined[-1] if joined else ""
        is_time = before in _OPTIONS and _AGO.fullmatch(argument)
        if is_time or (before == "--sort" and _DESCENDING.fullmatch(argument)):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined
