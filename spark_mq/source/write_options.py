"""The options of `df.write.format("rocketmq")`, and their parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_mq.errors import OptionError, similar
from spark_mq.source.options import OPTION_NAMES, parse_boolean
from spark_mq.tables.messages import MESSAGES, WRITE_OPTIONS

WRITE_NAMES = tuple(option.name for option in WRITE_OPTIONS)


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write; the arguments of `spark_mq.restore` have the same names."""

    path: str
    broker_conf: str | None = None
    broker_version: str | None = None
    time_zone: str | None = None
    renumber: bool = False
    store_host: str | None = None
    topic_map: Mapping[str, str] = field(default_factory=dict)
    offset_map: str | None = None
    append_id: str | None = None


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a write."""
    given: dict[str, str] = {}
    for key, value in options.items():
        name = next((known for known in WRITE_NAMES if known.lower() == key.lower()), None)
        if name is None:
            if key.lower() in (known.lower() for known in OPTION_NAMES):
                raise OptionError(f"option {key} has no effect on a write; it has {', '.join(WRITE_NAMES)}")
            raise OptionError(f"unknown option {key}{similar(key, WRITE_NAMES)}. Options: {', '.join(WRITE_NAMES)}")
        given[name] = value
    if not given.get("path"):
        raise OptionError("option path is missing: give the store directory, .save('/data/store')")
    if given.get("table", MESSAGES.name).lower() != MESSAGES.name:
        raise OptionError(f"table {given['table']} cannot be written: a broker derives it from {MESSAGES.name}")
    return WriteOptions(
        path=given["path"],
        broker_conf=given.get("brokerConf"),
        broker_version=given.get("brokerVersion"),
        time_zone=given.get("timeZone"),
        renumber=parse_boolean("renumber", given),
        store_host=given.get("storeHost"),
        topic_map=_parse_topic_map(given.get("topicMap", "")),
        offset_map=given.get("offsetMap"),
        append_id=given.get("appendId"),
    )


def _parse_topic_map(text: str) -> dict[str, str]:
    topics: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        old, separator, new = (part.strip() for part in pair.partition("="))
        if not (old and separator and new):
            raise OptionError(f"option topicMap={text!r}: {pair!r} is not OLD=NEW; write orders=orders_2025,old=new")
        if old in topics:
            raise OptionError(f"option topicMap={text!r}: topic {old} has two new names")
        topics[old] = new
    return topics
