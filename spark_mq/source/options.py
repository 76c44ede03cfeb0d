"""The data source's options: one frozen dataclass, one pure parser."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from spark_mq.errors import OptionError
from spark_mq.format.timestamp import epoch_millis
from spark_mq.store.broker_version import parse_broker_version
from spark_mq.store.splits import DEFAULT_SPLIT_SIZE

MIN_SPLIT_SIZE = 1024
EARLIEST, LATEST = "earliest", "latest"
_SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([bkmg]?)(?:i?b)?", re.IGNORECASE)


class Mode(StrEnum):
    """What becomes of damage, as in Spark's own readers."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


class Table(StrEnum):
    """The tables of a store."""

    MESSAGES = "messages"
    CONSUME_QUEUE = "consume_queue"
    SEGMENTS = "segments"
    QUEUES = "queues"
    TOPICS = "topics"
    CONSUMER_OFFSETS = "consumer_offsets"
    INDEX_FILES = "index_files"
    INDEX_ENTRIES = "index_entries"


@dataclass(frozen=True)
class ReadOptions:
    """What a read of a store was asked for. Times are milliseconds since the epoch, both ends included."""

    path: str
    table: Table = Table.MESSAGES
    topic: str | None = None
    queue_id: int | None = None
    consumer_group: str | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    split_size: int = DEFAULT_SPLIT_SIZE
    mode: Mode = Mode.PERMISSIVE
    check_crc: bool = False
    broker_version: str | None = None
    broker_conf: str | None = None


@dataclass(frozen=True)
class StreamOptions:
    """What a stream over a store was asked for; `read` is how it reads a range. Exactly one start is not None."""

    read: ReadOptions
    starting_offsets: int | str | None = EARLIEST
    """EARLIEST, LATEST, or a commit log offset."""
    starting_timestamp: int | None = None
    max_bytes: int | None = None
    max_messages: int | None = None
    fail_on_data_loss: bool = True


_EVERYWHERE = ("path", "table")
_BROKER_VERSION = "brokerVersion"
_NAMES = {
    Table.MESSAGES: ("topic", "startTimestamp", "endTimestamp", "splitSize", "mode", "checkCrc"),
    Table.CONSUME_QUEUE: ("topic", "queueId"),
    Table.SEGMENTS: (),
    Table.QUEUES: ("topic", _BROKER_VERSION),
    Table.TOPICS: (_BROKER_VERSION,),
    Table.CONSUMER_OFFSETS: ("topic", "consumerGroup", _BROKER_VERSION),
    Table.INDEX_FILES: ("brokerConf",),
    Table.INDEX_ENTRIES: ("brokerConf",),
}
STREAM_ONLY = ("startingOffsets", "startingTimestamp", "maxBytesPerTrigger", "maxMessagesPerTrigger", "failOnDataLoss")
STREAM_NAMES = ("topic", "splitSize", "mode", "checkCrc", *STREAM_ONLY)
_ALL_NAMES = tuple(dict.fromkeys((*_EVERYWHERE, *(name for names in _NAMES.values() for name in names), *STREAM_ONLY)))


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Read Spark's options of a batch; names are not case-sensitive.

    Raises `OptionError` for an unknown name (naming the nearest known one), for one that has no effect on the table,
    and for a value that cannot be read.
    """
    given = _given(options)
    table = _parse_table(given)
    for name in given:
        if name in STREAM_ONLY:
            raise OptionError(f"option {name} is for streams only, spark.readStream")
        if name not in (*_EVERYWHERE, *_NAMES[table]):
            has = f"it has {', '.join(_NAMES[table])}" if _NAMES[table] else "it has none"
            raise OptionError(f"option {name} has no effect on table {table}; {has}")
    return _read_options(given, table)


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Read Spark's options of a stream, as `parse_options`.

    Raises `OptionError` also for a table that cannot be streamed, and for two starts.
    """
    given = _given(options)
    table = _parse_table(given)
    if table != Table.MESSAGES:
        raise OptionError(f"table {table} cannot be streamed, only {Table.MESSAGES}: read it with spark.read")
    for name in given:
        if name not in (*_EVERYWHERE, *STREAM_NAMES):
            raise OptionError(f"option {name} has no effect on a stream; it has {', '.join(STREAM_NAMES)}")
    starting_timestamp = _parse_optional_timestamp("startingTimestamp", given)
    if starting_timestamp is not None and "startingOffsets" in given:
        raise OptionError("options startingOffsets and startingTimestamp each say where the stream begins: give one")
    return StreamOptions(
        _read_options(given, table),
        _parse_starting_offsets(given) if starting_timestamp is None else None,
        starting_timestamp,
        parse_size("option maxBytesPerTrigger", given["maxBytesPerTrigger"]) if "maxBytesPerTrigger" in given else None,
        _parse_max_messages(given),
        _parse_choice("failOnDataLoss", given.get("failOnDataLoss", "true").lower(), ("true", "false")) == "true",
    )


def parse_table(options: Mapping[str, str]) -> Table:
    """The table that is read, in a batch or as a stream. Raises `OptionError` as the parser of the one it must be."""
    names = {name.lower() for name in STREAM_ONLY}
    if any(key.lower() in names for key in options):
        return parse_stream_options(options).read.table
    return parse_options(options).table


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """The options under their own names."""
    known = {name.lower(): name for name in _ALL_NAMES}
    given: dict[str, str] = {}
    for key, value in options.items():
        name = known.get(key.lower())
        if name is None:
            raise OptionError(_unknown_option(key))
        given[name] = value
    if not given.get("path"):
        raise OptionError("option path is missing: give the broker's store directory, .load('/data/store')")
    return given


def _parse_table(given: Mapping[str, str]) -> Table:
    return Table(_parse_choice("table", given.get("table", Table.MESSAGES).lower(), tuple(Table)))


def _read_options(given: Mapping[str, str], table: Table) -> ReadOptions:
    return ReadOptions(
        path=given["path"],
        table=table,
        topic=given.get("topic"),
        queue_id=_parse_optional_integer("queueId", given),
        consumer_group=given.get("consumerGroup"),
        start_timestamp=_parse_optional_timestamp("startTimestamp", given),
        end_timestamp=_parse_optional_timestamp("endTimestamp", given),
        split_size=_parse_split_size(given.get("splitSize")),
        mode=Mode(_parse_choice("mode", given.get("mode", "PERMISSIVE").upper(), tuple(Mode))),
        check_crc=_parse_choice("checkCrc", given.get("checkCrc", "false").lower(), ("true", "false")) == "true",
        broker_version=_parse_optional_broker_version(given),
        broker_conf=given.get("brokerConf"),
    )


def _parse_starting_offsets(given: Mapping[str, str]) -> int | str:
    text = given.get("startingOffsets", EARLIEST).strip().lower()
    if text in (EARLIEST, LATEST):
        return text
    if not re.fullmatch(r"\d{1,19}", text) or int(text) >= 1 << 63:
        raise OptionError(f"option startingOffsets={text!r} is none of {EARLIEST}, {LATEST}, or a commit log offset")
    return int(text)


def _parse_max_messages(given: Mapping[str, str]) -> int | None:
    text = given.get("maxMessagesPerTrigger")
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,18}", text.strip()) or int(text) < 1:
        raise OptionError(f"option maxMessagesPerTrigger={text!r} is no number of at least 1")
    return int(text)


def _parse_optional_integer(name: str, given: Mapping[str, str]) -> int | None:
    if name not in given:
        return None
    if not re.fullmatch(r"-?\d{1,10}", given[name].strip()):
        raise OptionError(f"option {name}={given[name]!r} is no number")
    return int(given[name])


def _parse_optional_broker_version(given: Mapping[str, str]) -> str | None:
    text = given.get(_BROKER_VERSION)
    return None if text is None else parse_broker_version(text)


def _unknown_option(key: str) -> str:
    lowered = {name.lower(): name for name in _ALL_NAMES}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    hint = f"; did you mean {lowered[near[0]]}?" if near else ""
    return f"unknown option {key}{hint} Options: {', '.join(_ALL_NAMES)}"


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
    return epoch_millis(moment)


def _parse_split_size(text: str | None) -> int:
    return DEFAULT_SPLIT_SIZE if text is None else parse_size("option splitSize", text, MIN_SPLIT_SIZE)


def parse_size(name: str, text: str, least: int = 1) -> int:
    """Bytes: a number with an optional unit (k, m, g). Raises `OptionError`, which names the option `name`."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else 0
    if size < least:
        raise OptionError(f"{name}={text!r} is no size of at least {least} bytes, such as 64m")
    return size
