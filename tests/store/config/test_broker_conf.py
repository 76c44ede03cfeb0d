"""The settings of a broker, and the properties file that they are in, against what Java makes of it."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_mq.errors import OptionError
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf, parse_java_properties
from tests.support.stores import RealStore, usual_stores

TABLE = Path(__file__).with_name("java_properties.jsonl.gz")
OTHER_LINE_ENDS = "\f\v\x1c\x1d\x1e\x85\u2028\u2029"
"""What Python's `splitlines` takes for the end of a line, and Java does not."""


@cache
def java_rows() -> list[dict[str, Any]]:
    r"""What Java makes of some properties files.

    Java 17.0.15 gave the table: `settings` are the names and values after `Properties.load(new StringReader(text))`,
    null where that threw (a malformed `\u` escape). Some texts are written for a rule, the others are random
    pieces: separators, escapes, comments, continued lines, line ends.
    """
    with gzip.open(TABLE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def rows(other_line_ends: bool) -> list[dict[str, Any]]:
    """The rows that Java can read, with or without characters that only Python takes for line ends."""
    return [
        row
        for row in java_rows()
        if row["settings"] is not None and bool(set(OTHER_LINE_ENDS) & set(row["text"])) == other_line_ends
    ]


def test_the_table_of_java_is_there() -> None:
    assert len(rows(False)) > 150
    assert len(rows(True)) > 100


def test_settings_are_those_of_java() -> None:
    assert [row for row in rows(False) if parse_java_properties(row["text"]) != row["settings"]] == []


def test_only_line_feed_and_carriage_return_end_a_line() -> None:
    assert [row for row in rows(True) if parse_java_properties(row["text"]) != row["settings"]] == []


def load(tmp_path: Path, content: bytes) -> BrokerConf:
    file = tmp_path / "broker.conf"
    file.write_bytes(content)
    return BrokerConf.load(Location.resolve(str(file)))


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\uzzzz", r"\u=1"])
def test_a_malformed_escape_is_an_option_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="malformed"):
        load(tmp_path, text.encode())


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_real_broker_conf_gives_the_sizes_that_the_broker_used(store: RealStore) -> None:
    conf = BrokerConf.load(Location.resolve(str(store.broker_conf)))
    (fact,) = store.facts("store")
    assert conf.consume_queue_file_size == fact["mappedFileSizeConsumeQueue"]
    assert int(conf.settings["mappedFileSizeCommitLog"]) == fact["mappedFileSizeCommitLog"]
    assert conf.is_enabled("messageIndexEnable")


@pytest.mark.parametrize(("text", "size"), [("20", 20), ("21", 40), ("6000000", 6_000_000), ("1", 20)])
def test_the_queue_file_size_is_rounded_up_to_whole_units(text: str, size: int, tmp_path: Path) -> None:
    assert load(tmp_path, f"mappedFileSizeConsumeQueue={text}".encode()).consume_queue_file_size == size


def test_the_spelling_of_4_5_1_is_ignored_as_by_newer_brokers(tmp_path: Path) -> None:
    assert load(tmp_path, b"mapedFileSizeCommitLog=65536").commit_log_file_size is None
    assert load(tmp_path, b"mappedFileSizeCommitLog=65536").commit_log_file_size == 65536


@pytest.mark.parametrize("text", ["", "0", "-20", "x", "20.0", "1e3", "20 "])
def test_a_size_that_is_no_positive_number_is_refused(text: str, tmp_path: Path) -> None:
    conf = load(tmp_path, f"mappedFileSizeConsumeQueue={text}\n".encode())
    with pytest.raises(OptionError, match="mappedFileSizeConsumeQueue"):
        _ = conf.consume_queue_file_size


def test_settings_that_are_not_there_are_none(tmp_path: Path) -> None:
    conf = load(tmp_path, b"")
    assert (conf.consume_queue_file_size, conf.is_enabled("x")) == (None, False)
    assert conf.message_delay_level == DEFAULT_DELAY_LEVELS


def test_spaces_around_a_text_do_not_count(tmp_path: Path) -> None:
    conf = load(tmp_path, b"storeType = defaultRocksDB \nbrokerName=\n")
    assert conf.has_rocksdb_store
    assert (conf.text("brokerName", "a"), conf.text("brokerClusterName", "C")) == ("", "C")


@pytest.mark.parametrize(
    ("text", "enabled"),
    [("true", True), ("TRUE", True), ("true ", False), ("false", False), ("1", False), ("yes", False)],
)
def test_a_boolean_is_read_as_java_does(text: str, enabled: bool, tmp_path: Path) -> None:
    assert load(tmp_path, f"x={text}".encode()).is_enabled("x") == enabled


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"nowhere\.conf: cannot be read"):
        BrokerConf.load(Location.resolve(str(tmp_path / "nowhere.conf")))


def test_a_comment_that_is_no_utf8_does_not_matter(tmp_path: Path) -> None:
    assert load(tmp_path, b"# Gr\xf6\xdfe\nmappedFileSizeConsumeQueue=40").consume_queue_file_size == 40
