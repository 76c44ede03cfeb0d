"""The options of `df.write.format("rocketmq")`, and their parser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spark_mq.errors import OptionError, similar
from spark_mq.source.options import OPTION_NAMES, parse_boolean
from spark_mq.tables.messages import MESSAGES, WRITE_OPTIONS

WRITE_NAMES = tuple(option.name for option in WRITE_OPTIONS)


def parse_write_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The options of a write that are given, as arguments of `spark_mq.restore`; `path` is the store."""
    given: dict[str, Any] = {}
    for key, value in options.items():
        name = next((known for known in WRITE_NAMES if known.lower() == key.lower()), None)
        if name is None:
            if key.lower() in (known.lower() for known in OPTION_NAMES):
                raise OptionError(f"option {key} has no effect on a write; it has {', '.join(WRITE_NAMES)}")
            raise OptionError(f"unknown option {key}{similar(key, WRITE_NAMES)}. Options: {', '.join(WRITE_NAMES)}")
        given[name] = value
    if not given.get("path"):
        raise OptionError("option path is missing: give the store directory, .save('/data/store')")
    table = given.pop("table", MESSAGES.name)
    if table.lower() != MESSAGES.name:
        raise OptionError(f"table {table} cannot be written: a broker derives it from {MESSAGES.name}")
    given["renumber"] = parse_boolean("renumber", given)
    given["topicMap"] = _parse_topic_map(given.get("topicMap", ""))
    return {re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name): value for name, value in given.items()}


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
