"""Tags of a subscription (`FilterAPI.buildSubscriptionData`@5.3.3)."""

from __future__ import annotations

import pytest

from spark_mq.errors import FilterError
from spark_mq.filters.parser import parse_tags


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (None, None),
        ("", None),
        ("*", None),
        (" * ", {"*"}),
        ("a || *", {"a", "*"}),
        ("a||b || a", {"a", "b"}),
        ("a | b", {"a | b"}),
        ("a |||b", {"a", "|b"}),
        ("\x01 a\t", {"a"}),
        ("\u00a0a", {"\u00a0a"}),
        ("||a||", {"a"}),
        ("  ", set()),
        (" || ", set()),
    ],
)
def test_tags(text: str | None, tags: set[str] | None) -> None:
    assert parse_tags(text) == tags


@pytest.mark.parametrize("text", ["||", "||||"])
def test_no_tag(text: str) -> None:
    with pytest.raises(FilterError, match="names no tag"):
        parse_tags(text)
