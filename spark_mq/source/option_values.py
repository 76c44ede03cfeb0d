"""The text of options as values: numbers, sizes, times, one of a few words. Commands have the same."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_mq.errors import OptionError
from spark_mq.format.timestamp import parse_time

_SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([bkmg]?)(?:i?b)?", re.IGNORECASE)


def parse_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """An option that has one of a few values; raises `OptionError`."""
    if value not in choices:
        raise OptionError(f"option {name}={value!r} is none of {', '.join(choices)}")
    return value


def parse_boolean(name: str, given: Mapping[str, str], default: bool = False) -> bool:
    """An option that is true or false; raises `OptionError`."""
    return parse_choice(name, given.get(name, str(default)).lower(), ("true", "false")) == "true"


def parse_optional_integer(name: str, given: Mapping[str, str]) -> int | None:
    """An option that is an integer, None where it is not given; raises `OptionError`."""
    if name not in given:
        return None
    if not re.fullmatch(r"-?\d{1,18}", given[name].strip()):
        raise OptionError(f"option {name}={given[name]!r} is no number")
    return int(given[name])


def parse_optional_timestamp(name: str, given: Mapping[str, str]) -> int | None:
    """An option that is a time, None if it is not given; see `parse_time`."""
    return parse_time(f"option {name}", given[name]) if name in given else None


def parse_size(name: str, text: str, least: int = 1) -> int:
    """Bytes: a number with an optional unit (k, m, g). Raises `OptionError`, which names the option `name`."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else 0
    if size < least:
        raise OptionError(f"{name}={text!r} is no size of at least {least} bytes, such as 64m")
    return size
