"""The options of the data source, and their parsers: of reads, streams and writes of a store."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from spark_mq.errors import OptionError, similar
from spark_mq.filters.expression import Expression
from spark_mq.filters.parser import parse_sql92, parse_tags
from spark_mq.format.amounts import parse_size
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.message_id import normalize_offset_message_id
from spark_mq.format.timestamp import parse_time
from spark_mq.io.s3 import OPTIONS as S3_OPTIONS
from spark_mq.io.s3 import redacted, with_settings
from spark_mq.source.predicate import IN_INDEX, IN_QUEUES, IntegerSet, Predicate, decode_conditions
from spark_mq.store.config.named_stores import is_pattern
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, MIN_SPLIT_SIZE
from spark_mq.tables.all_tables import TABLES
from spark_mq.tables.messages import MESSAGES, READ_OPTIONS_OF_STREAMS, STREAM_OPTIONS, WRITE_OPTIONS
from spark_mq.tables.table import is_cluster

_T = TypeVar("_T")

EARLIEST, LATEST = "earliest", "latest"


def parse_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """The value itself, if `choices` contains it. Raises `OptionError` if not."""
    if value not in choices:
        raise OptionError(f"option {name}={value!r} is not one of {', '.join(choices)}")
    return value


def parse_boolean(name: str, given: Mapping[str, str], default: bool = False) -> bool:
    """The value of an option that is true or false. Raises `OptionError` for another text."""
    return parse_choice(name, given.get(name, str(default)).lower(), ("true", "false")) == "true"


def _parse_optional(
    name: str, given: Mapping[str, str], pattern: str, what: str, convert: Callable[[str], _T]
) -> _T | None:
    """The value of an option whose text matches; None if it is not given. `what` it is not if it does not match."""
    if name not in given:
        return None
    if not re.fullmatch(pattern, given[name].strip()):
        raise OptionError(f"option {name}={given[name]!r} is not {what}")
    return convert(given[name])


def parse_optional_integer(name: str, given: Mapping[str, str], least: int | None = None) -> int | None:
    """The value of an option that is an integer, and not below `least`; None if it is not given."""
    number = _parse_optional(name, given, r"-?\d{1,18}", "an integer of at most 18 digits", int)
    if number is not None and least is not None and number < least:
        raise OptionError(f"option {name}={number} is not a number of at least {least}")
    return number


def parse_optional_timestamp(name: str, given: Mapping[str, str]) -> int | None:
    """The value of an option that is a time, epoch milliseconds; None if it is not given. See `parse_time`."""
    return parse_time(f"option {name}", given[name]) if name in given else None


def parse_optional_size(name: str, given: Mapping[str, str], least: int = 1) -> int | None:
    """The value of an option that is a number of bytes; None if it is not given. See `parse_size`."""
    return parse_size(f"option {name}", given[name], least) if name in given else None


class Mode(StrEnum):
    """How damage is handled, with the modes of Spark's own readers."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


@dataclass(frozen=True)
class ReadOptions:
    """The options of a batch read.

    `path` contains the settings and secrets of its object store, so every process can open it; `shown` leaves them out.
    `predicate` contains the conditions of the tables of messages. The others are options of other tables; `at` is in
    milliseconds since the epoch.
    """

    path: str = field(repr=False)
    table: str = MESSAGES.name
    topic: str | None = None
    queue_id: int | None = None
    consumer_group: str | None = None
    predicate: Predicate = field(default_factory=Predicate)
    split_size: int = DEFAULT_SPLIT_SIZE
    split_by_queue: bool = False
    mode: Mode = Mode.PERMISSIVE
    check_crc: bool = False
    unwrap_batches: bool = False
    broker_version: str | None = None
    broker_conf: str | None = None
    reserved_hours: float | None = None
    at: int | None = None
    most_keys: int | None = None
    from_where: str | int | None = None
    tiered_storage: str | None = None


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream; `read` has those of its batches. Exactly one of the two starts is not None."""

    read: ReadOptions
    starting_offsets: int | str | None = EARLIEST
    """EARLIEST, LATEST, or a commit log offset."""
    starting_timestamp: int | None = None
    max_bytes: int | None = None
    max_messages: int | None = None
    fail_on_data_loss: bool = True
    fail_on_log_cut: bool = True


_EVERYWHERE = ("path", "table", *S3_OPTIONS)
SELECTION = ("paths", "stores", "skipUnreadable")
"""The options that select several stores (`store_choice`). Spark makes `paths` of `load` with several paths."""
STREAM_ONLY = tuple(option.name for option in STREAM_OPTIONS)
STREAM_NAMES = (*READ_OPTIONS_OF_STREAMS, *STREAM_ONLY)
_OF_TABLES = [option.name for table in TABLES.values() for option in table.options]
OPTION_NAMES = tuple(dict.fromkeys((*_EVERYWHERE, *SELECTION, *_OF_TABLES, *STREAM_ONLY)))
"""All options of all tables, of batches and streams."""


_OF_CATALOG = {"provider", "owner"}
"""What Spark adds to the options when CREATE TABLE asks for the columns."""
_NO_CATALOG = (
    "a store cannot be a table of the catalog (CREATE TABLE), because Spark does not give its options to a Python data "
    "source: use CREATE TEMPORARY VIEW name USING rocketmq OPTIONS (path '/data/store')"
)
NO_PATH = f"option path is missing: give the broker's store directory, .load('/data/store'); {_NO_CATALOG}"
"""The error of a read without a path. A SELECT from a table that CREATE TABLE made with columns is such a read."""


def names_of(table: str) -> tuple[str, ...]:
    """The options of a batch read of the table."""
    return (*_EVERYWHERE, *(option.name for option in TABLES[table].options))


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read, as Spark passes them; names are not case-sensitive."""
    given = _given(options)
    table = _parse_table(given)
    for name in given:
        if name in STREAM_ONLY:
            raise OptionError(f"option {name} is for streams only, spark.readStream")
        if name not in names_of(table):
            names = ", ".join(option.name for option in TABLES[table].options)
            has = f"it has {names}" if names else "it has none"
            raise OptionError(f"option {name} has no effect on table {table}; {has}")
    return _read_options(given, table)


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """The options of a stream; see `parse_options`."""
    given = _given(options)
    table = _parse_table(given)
    if table != MESSAGES.name:
        raise OptionError(f"table {table} cannot be streamed, only {MESSAGES.name}: read it with spark.read")
    for name in given:
        if name not in (*_EVERYWHERE, *STREAM_NAMES):
            raise OptionError(f"option {name} has no effect on a stream; it has {', '.join(STREAM_NAMES)}")
    if "startingTimestamp" in given and "startingOffsets" in given:
        raise OptionError("options startingOffsets and startingTimestamp both give a start of the stream: give one")
    starting_timestamp = parse_optional_timestamp("startingTimestamp", given)
    fail_on_data_loss = parse_boolean("failOnDataLoss", given, default=True)
    return StreamOptions(
        _read_options(given, table),
        _parse_starting_offsets(given) if starting_timestamp is None else None,
        starting_timestamp,
        parse_optional_size("maxBytesPerTrigger", given),
        _parse_optional("maxMessagesPerTrigger", given, r"(?=\d{1,18}$)0*[1-9]\d*", "a number of at least 1", int),
        fail_on_data_loss,
        parse_boolean("failOnLogCut", given, default=fail_on_data_loss),
    )


def parse_table(options: Mapping[str, str]) -> str:
    """The table of a batch read, or of a stream if an option is given that only streams have."""
    stream_names = {name.lower() for name in STREAM_ONLY}
    if any(key.lower() in stream_names for key in options):
        return parse_stream_options(options).read.table
    return parse_options(options).table


def names_cluster(options: Mapping[str, str]) -> bool:
    """Whether the options of a read name a live cluster."""
    return any(key.lower() == "path" and is_cluster(value) for key, value in options.items())


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their names as in `OPTION_NAMES`."""
    if {key.lower() for key in options} >= _OF_CATALOG:
        raise OptionError(_NO_CATALOG)
    given = named_options(options, OPTION_NAMES, _unknown)
    for name in SELECTION:
        if name in given:
            raise OptionError(f"option {name} is for several stores, and this read has one: give a path")
    if not given.get("path"):
        raise OptionError(NO_PATH)
    if is_pattern(given["path"]):
        raise OptionError(
            f"option path={redacted(given['path'])!r} is a pattern of several stores, and this has one: give its path"
        )
    return given


def named_options(options: Mapping[str, str], names: Iterable[str], refused: Callable[[str], str]) -> dict[str, str]:
    """The options by `names`, which are not case-sensitive; `refused` is the error of a key that is none of them."""
    known = {name.lower(): name for name in names}
    for key in options:
        if key.lower() not in known:
            raise OptionError(refused(key))
    return {known[key.lower()]: value for key, value in options.items()}


_OF_KAFKA = ("subscribe", "subscribepattern", "assign", "topics", "topicpattern")
"""What users of Spark's Kafka source write for the topics."""


def _unknown(key: str) -> str:
    known = {name.lower(): name for name in OPTION_NAMES}
    near = difflib.get_close_matches(key.lower(), known, n=1)
    hint = f"; did you mean {known[near[0]]}?" if near else "."
    if key.lower() in _OF_KAFKA:
        hint = "; a read of a store has option topic, for one topic: of several, read all, and filter column topic."
    return f"unknown option {key}{hint} Options: {', '.join(OPTION_NAMES)}"


def _parse_table(given: Mapping[str, str]) -> str:
    return parse_choice("table", given.get("table", MESSAGES.name).lower(), tuple(TABLES))


def _read_options(given: Mapping[str, str], table: str) -> ReadOptions:
    predicate = _parse_predicate(given)
    if "brokerVersion" in given:
        BrokerVersions.parse(given["brokerVersion"], "option brokerVersion")
    unwraps = parse_boolean("unwrapBatches", given)
    for other in ("splitBy", "tieredStorage"):
        if unwraps and other in given:
            raise OptionError(f"option unwrapBatches does not work with option {other}: leave one of them out")
    word = given.get("fromWhere", "").strip().lower()
    return ReadOptions(
        path=with_settings(given["path"], {name: given[name] for name in S3_OPTIONS if name in given}),
        table=table,
        topic=given.get("topic"),
        queue_id=parse_optional_integer("queueId", given),
        consumer_group=given.get("consumerGroup"),
        predicate=predicate,
        split_size=parse_optional_size("splitSize", given, MIN_SPLIT_SIZE) or DEFAULT_SPLIT_SIZE,
        split_by_queue=_parse_split_by(given, predicate),
        mode=Mode(parse_choice("mode", given.get("mode", "PERMISSIVE").upper(), tuple(Mode))),
        check_crc=parse_boolean("checkCrc", given),
        unwrap_batches=unwraps,
        broker_version=given.get("brokerVersion"),
        broker_conf=given.get("brokerConf"),
        reserved_hours=_parse_optional(
            "reservedHours", given, r"[0-9]{1,7}(\.[0-9]{1,6})?", "a number of hours, such as 72", float
        ),
        at=parse_optional_timestamp("at", given),
        most_keys=parse_optional_integer("mostKeys", given, 0),
        from_where=word if word in ("first", "last") else parse_optional_timestamp("fromWhere", given),
        tiered_storage=given.get("tieredStorage"),
    )


def _parse_split_by(given: Mapping[str, str], predicate: Predicate) -> bool:
    by_queue = parse_choice("splitBy", given.get("splitBy", "log").lower(), ("log", "queue")) == "queue"
    if by_queue and predicate.topics is None:
        raise OptionError("option splitBy=queue needs a topic: give option topic")
    if by_queue and "tieredStorage" in given:
        raise OptionError("option splitBy=queue reads only the store: give no tieredStorage, or sort the rows")
    return by_queue


def _parse_predicate(given: Mapping[str, str]) -> Predicate:
    message_id = given.get("offsetMessageId")
    integer, time = parse_optional_integer, parse_optional_timestamp
    text = given.get("tag")
    if text is not None and not text.strip("| "):
        raise OptionError(f"option tag={text!r} names no tag: give one, or several as 'a || b'")
    predicate = Predicate(
        topics=_as_set(given.get("topic")),
        queue_ids=_as_set(parse_optional_integer("queueId", given)),
        tags=parse_tags(text),
        keys=_as_set(given.get("key")),
        unique_keys=_as_set(given.get("uniqueKey")),
        offset_message_ids=None if message_id is None else frozenset((normalize_offset_message_id(message_id),)),
        commit_log_offset=IntegerSet(integer("startOffset", given), integer("endOffset", given)),
        queue_offset=IntegerSet(integer("startQueueOffset", given), integer("endQueueOffset", given)),
        store_timestamp=IntegerSet(time("startTimestamp", given), time("endTimestamp", given)),
        filters=_parse_filter(given.get("filter")),
    )
    if predicate.unique_keys is not None:
        predicate &= Predicate(transaction_types=IN_INDEX)
    if not predicate.queue_offset.is_all:
        predicate &= Predicate(transaction_types=IN_QUEUES)
    return predicate & Predicate.of(decode_conditions(given.get("conditions", "[]")))


def _parse_filter(text: str | None) -> tuple[Expression, ...]:
    if text is None:
        return ()
    parsed = parse_sql92(text)
    if parsed.ignored:
        raise OptionError(f"option filter: {parsed.warning}: write the whole condition")
    return (parsed.condition,)


def _as_set(value: _T | None) -> frozenset[_T] | None:
    return None if value is None else frozenset((value,))


def _parse_starting_offsets(given: Mapping[str, str]) -> int | str:
    text = given.get("startingOffsets", EARLIEST).strip().lower()
    if text in (EARLIEST, LATEST):
        return text
    if not re.fullmatch(r"\d{1,19}", text) or int(text) >= 1 << 63:
        raise OptionError(f"option startingOffsets={text!r} is not {EARLIEST}, {LATEST} or a commit log offset")
    return int(text)


def parse_write_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The options of a write that are given, as arguments of `spark_mq.restore`; `path` is the store."""
    names = [option.name for option in WRITE_OPTIONS]

    def refused(key: str) -> str:
        if key.lower() in (known.lower() for known in OPTION_NAMES):
            return f"option {key} has no effect on a write; it has {', '.join(names)}"
        return f"unknown option {key}{similar(key, names)}. Options: {', '.join(names)}"

    given: dict[str, Any] = {**named_options(options, names, refused)}
    if not given.get("path"):
        raise OptionError("option path is missing: give the store directory, .save('/data/store')")
    table = given.pop("table", MESSAGES.name)
    if table.lower() != MESSAGES.name:
        raise OptionError(f"table {table} cannot be written: a broker derives it from {MESSAGES.name}")
    given["renumber"] = parse_boolean("renumber", given)
    text = given.get("topicMap", "")
    topics: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        old, separator, new = (part.strip() for part in pair.partition("="))
        if not (old and separator and new):
            raise OptionError(f"option topicMap={text!r}: {pair!r} is not OLD=NEW; write orders=orders_2025,old=new")
        if old in topics:
            raise OptionError(f"option topicMap={text!r}: topic {old} has two new names")
        topics[old] = new
    given["topicMap"] = topics
    return {re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name): value for name, value in given.items()}
