"""The data source's options: one frozen dataclass, one pure parser."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from spark_mq.errors import OptionError
from spark_mq.store.splits import DEFAULT_SPLIT_SIZE

MIN_SPLIT_SIZE = 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([bkmg]?)(?:i?b)?", re.IGNORECASE)


class Mode(StrEnum):
    """What becomes of damage, as in Spark's own readers."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


TABLES = ("messages",)


@dataclass(frozen=True)
class ReadOptions:
    """What a read of a store was asked for. Times are milliseconds since the epoch, both ends included."""

    path: str
    table: str = "messages"
    topic: str | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    split_size: int = DEFAULT_SPLIT_SIZE
    mode: Mode = Mode.PERMISSIVE
    check_crc: bool = False


_NAMES = ("path", "table", "topic", "startTimestamp", "endTimestamp", "splitSize", "mode", "checkCrc")


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Read Spark's options; names are not case-sensitive.

    Raises `OptionError` for an unknown name (naming the nearest known one) and for a value that cannot be read.
    """
    known = {name.lower(): name for name in _NAMES}
    given: dict[str, str] = {}
    for key, value in options.items():
        name = known.get(key.lower())
        if name is None:
            raise OptionError(_unknown_option(key))
        given[name] = value
    if not given.get("path"):
        raise OptionError("option path is missing: give the broker's store directory, .load('/data/store')")
    return ReadOptions(
        path=given["path"],
        table=_parse_choice("table", given.get("table", "messages").lower(), TABLES),
        topic=given.get("topic"),
        start_timestamp=_parse_optional_timestamp("startTimestamp", given),
        end_timestamp=_parse_optional_timestamp("endTimestamp", given),
        split_size=_parse_split_size(given.get("splitSize")),
        mode=Mode(_parse_choice("mode", given.get("mode", "PERMISSIVE").upper(), tuple(Mode))),
        check_crc=_parse_choice("checkCrc", given.get("checkCrc", "false").lower(), ("true", "false")) == "true",
    )


def _unknown_option(key: str) -> str:
    lowered = {name.lower(): name for name in _NAMES}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    hint = f"; did you mean {lowered[near[0]]}?" if near else ""
    return f"unknown option {key}{hint} Options: {', '.join(_NAMES)}"


def _parse_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise OptionError(f"option {name}={value!r} is none of {', '.join(choices)}")
    return value


def _parse_optional_timestamp(name: str, given: Mapping[str, str]) -> int | None:
    return parse_timestamp(name, given[name]) if name in given else None


def parse_timestamp(name: str, text: str) -> int:
    """Milliseconds since the epoch, or an ISO 8601 time with its zone: `2026-11-20T08:00:00Z`.

    Raises `OptionError`, which names the option `name`.
    """
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise OptionError(f"option {name}={text!r} is neither epoch milliseconds nor an ISO 8601 time") from error
    if moment.tzinfo is None:
        raise OptionError(f"option {name}={text!r} has no time zone: append Z or an offset such as +08:00")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _parse_split_size(text: str | None) -> int:
    return DEFAULT_SPLIT_SIZE if text is None else parse_size("option splitSize", text, MIN_SPLIT_SIZE)


def parse_size(name: str, text: str, least: int = 1) -> int:
    """Bytes: a number with an optional unit (k, m, g). Raises `OptionError`, which names the option `name`."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else 0
    if size < least:
        raise OptionError(f"{name}={text!r} is no size of at least {least} bytes, such as 64m")
    return size
