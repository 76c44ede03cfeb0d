"""The options of a write: each is in the manual, and an error names what is wrong. No Spark here."""

from __future__ import annotations

import re

import pytest

from spark_mq.errors import OptionError
from spark_mq.source.options import parse_write_options


def test_names_are_not_case_sensitive() -> None:
    given = {"PATH": "/s", "brokerconf": "/b.conf", "ReNumber": "True", "topicmap": "a=b, c=d,", "storehost": "h:1"}
    topics = {"a": "b", "c": "d"}
    expected = {"path": "/s", "broker_conf": "/b.conf", "renumber": True, "topic_map": topics, "store_host": "h:1"}
    assert parse_write_options(given) == expected


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"renumbr": "true"}, "unknown option renumbr; similar: renumber"),
        ({"topic": "orders"}, "option topic has no effect on a write; it has path, table, brokerConf"),
        ({"table": "consume_queue"}, "table consume_queue cannot be written"),
        ({"renumber": "yes"}, "option renumber='yes' is not one of true, false"),
        ({"topicMap": "a=b,c"}, "'c' is not OLD=NEW"),
        ({"topicMap": "a="}, "'a=' is not OLD=NEW"),
        ({"topicMap": "a=b,a=c"}, "topic a has two new names"),
        ({"path": ""}, "option path is missing"),
    ],
)
def test_what_is_wrong_is_named(option: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(text)):
        parse_write_options({"path": "/s", **option})
