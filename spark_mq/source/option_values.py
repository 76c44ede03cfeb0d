"""The values of options, from their text: numbers, sizes, times, choices. Arguments of commands have the same text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_mq.errors import OptionError
from spark_mq.format.timestamp import parse_time

_SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([bkmg]?)(?:i?b)?", re.IGNORECASE)


def parse_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """The value itself, if `choices` contains it. Raises `OptionError` if not."""
    if value not in choices:
        raise OptionError(f"option {name}={value!r} is not one of {', '.join(choices)}")
    return value


def parse_boolean(name: str, given: Mapping[str, str], default: bool = False) -> bool:
    """The value of an option that is true or false. Raises `OptionError` for another text."""
    return parse_choice(name, given.get(name, str(default)).lower(), ("true", "false")) == "true"


def parse_optional_integer(name: str, given: Mapping[str, str]) -> int | None:
    """The value of an option that is an integer; None if it is not given. Raises `OptionError` for another text."""
    if name not in given:
        return None
    if not re.fullmatch(r"-?\d{1,18}", given[name].strip()):
        raise OptionError(f"option {name}={given[name]!r} is not an integer of at most 18 digits")
    return int(given[name])


def parse_optional_timestamp(name: str, given: Mapping[str, str]) -> int | None:
    """The value of an option that is a time, epoch milliseconds; None if it is not given. See `parse_time`."""
    return parse_time(f"option {name}", given[name]) if name in given else None


def parse_size(name: str, text: str, least: int = 1) -> int:
    """The bytes of a size: a number with an optional unit (k, m, g; powers of 1024).

    Args:
        name: The name of the option or argument, for errors.
        least: The smallest valid size, bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else 0
    if size < least:
        raise OptionError(f"{name}={text!r} is not a size of at least {least} bytes, such as 64m")
    return size
