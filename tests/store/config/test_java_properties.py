from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_mq.store.config.broker_conf import parse_java_properties

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


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\uzzzz", r"\u=1"])
def test_a_malformed_escape_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        parse_java_properties(text)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=b\nc : d\ne f", {"a": "b", "c": "d", "e": "f"}),
        ("# no=setting\n  ! nor=this\n\n a = b ", {"a": "b "}),
        ("messageDelayLevel=1s \\\n    5s\\\n  10s", {"messageDelayLevel": "1s 5s10s"}),
        (r"a\=b\:c\ d=\t\u00fc\\", {"a=b:c d": "\tü\\"}),
        ("a=1\r\na=2\rb", {"a": "2", "b": ""}),
    ],
)
def test_the_rules_of_java_properties(text: str, settings: dict[str, str]) -> None:
    assert parse_java_properties(text) == settings
