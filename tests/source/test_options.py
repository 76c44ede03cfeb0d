"""Options are read without Spark: names, values, and what is said of bad ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_mq.errors import OptionError
from spark_mq.format.amounts import parse_size
from spark_mq.source.options import STREAM_ONLY, Mode, parse_options, parse_write_options
from spark_mq.source.predicate import Operator, decode_conditions
from spark_mq.tables.all_tables import TABLES


def test_only_a_path_is_needed() -> None:
    options = parse_options({"path": "/data/store"})
    assert (options.path, options.table, options.topic, options.mode) == (
        "/data/store",
        "messages",
        None,
        Mode.PERMISSIVE,
    )


def test_names_are_not_case_sensitive() -> None:
    options = parse_options({"PATH": "/s", "STARTTIMESTAMP": "1795248093336", "splitsize": "1m"})
    assert (options.predicate.store_timestamp.first, options.split_size) == (1795248093336, 1 << 20)


def test_several_stores_are_not_the_options_of_one(tmp_path: Path) -> None:
    for options in ({"paths": '["/a","/b"]'}, {"path": "/data/*"}, {"path": "s3://bucket/{a,b}"}, {"path": "/s[ab]"}):
        with pytest.raises(OptionError, match=r"several stores.*this (read )?has one"):
            parse_options(options)
    folder = tmp_path / "s[ab]"
    folder.mkdir()
    for path in (str(folder), "s3://bucket/store?region=eu", "hdfs://[::1]:8020/store"):
        assert parse_options({"path": path}).path == path


@pytest.mark.parametrize("table", list(TABLES))
def test_an_option_without_effect_is_an_error_that_names_those_that_have_one(table: str) -> None:
    assert parse_options({"path": "/s", "table": table.upper()}).table == table
    for name in ("topic", "queueId", "consumerGroup", "mode", "brokerVersion", "brokerConf"):
        value = {"queueId": "3", "mode": "FAILFAST", "brokerVersion": "5"}.get(name, "x")
        options = {"path": "/s", "table": table, name: value}
        if name in [option.name for option in TABLES[table].options]:
            parse_options(options)
        else:
            with pytest.raises(OptionError, match=f"{name} has no effect on table {table}"):
                parse_options(options)


@pytest.mark.parametrize("name", STREAM_ONLY)
def test_an_option_of_streams_is_none_of_batches(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is for streams only"):
        parse_options({"path": "/s", name.upper(): "1"})


@pytest.mark.parametrize(("value", "is_checked"), [("true", True), ("True", True), ("false", False)])
def test_a_boolean_is_read(value: str, is_checked: bool) -> None:
    assert parse_options({"path": "/s", "checkCrc": value}).check_crc == is_checked
    assert not parse_options({"path": "/s"}).check_crc


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"startTimestmp; did you mean startTimestamp\?"):
        parse_options({"path": "/s", "startTimestmp": "5"})


@pytest.mark.parametrize("name", ["subscribe", "subscribePattern", "topics"])
def test_an_option_of_kafka_names_topic(name: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option {name}; a read of a store has option topic, for one topic"):
        parse_options({"path": "/data/store", name: "a,b"})


def test_a_missing_path_says_what_to_give() -> None:
    with pytest.raises(OptionError, match="store directory"):
        parse_options({})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("table", "mesages"),
        ("mode", "LENIENT"),
        ("checkCrc", "yes"),
        ("splitSize", "12"),
        ("startTimestamp", "yesterday"),
        ("endTimestamp", "2026-11-20T08:00:00"),
        ("startTimestamp", "1795248093"),
    ],
)
def test_a_bad_value_names_its_option(option: str, value: str) -> None:
    with pytest.raises(OptionError, match=option):
        parse_options({"path": "/s", option: value})


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("4k", 4096), ("64m", 64 << 20), ("64MiB", 64 << 20), ("1 G", 1 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size("splitSize", text) == size


@pytest.mark.parametrize(
    "text",
    [
        "topic = 'a'",
        "1",
        "[1]",
        '[["topic", "in"]]',
        '[["topic", "resembles", ["a"]]]',
        '[["queue_id", "in", [1.5]]]',
        '[["queue_id", "in", [true]]]',
        '[["store_timestamp", "in", [{"millis": 1}]]]',
        '[["store_timestamp", "in", [{"micros": 1e300}]]]',
    ],
)
def test_what_is_no_condition_is_an_error_that_names_the_option(text: str) -> None:
    with pytest.raises(OptionError, match=r"^option conditions="):
        decode_conditions(text)


@pytest.mark.parametrize("operator", [operator for operator in Operator if operator != Operator.IN])
def test_a_comparison_takes_one_value(operator: Operator) -> None:
    with pytest.raises(OptionError, match="takes one value, not 2"):
        decode_conditions(f'[["queue_id", "{operator}", [1, 2]]]')


def test_names_of_a_write_are_not_case_sensitive() -> None:
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
def test_what_is_wrong_with_a_write_is_named(option: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(text)):
        parse_write_options({"path": "/s", **option})
