"""Conditions as JSON, which come from users, too."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spark_mq.errors import OptionError
from spark_mq.source.predicate import Condition, Operator, decode_conditions, encode_conditions


def test_conditions_come_back() -> None:
    moment = datetime(2026, 11, 20, 8, 30, 0, 1, tzinfo=UTC)
    conditions = [Condition("topic", Operator.IN, ("a", "ü")), Condition("store_timestamp", Operator.IN, (moment,))]
    assert decode_conditions(encode_conditions(conditions)) == conditions


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
def test_anything_else_is_an_error_that_names_the_option(text: str) -> None:
    with pytest.raises(OptionError, match=r"^option conditions="):
        decode_conditions(text)


@pytest.mark.parametrize("operator", [operator for operator in Operator if operator != Operator.IN])
def test_a_comparison_takes_one_value(operator: Operator) -> None:
    with pytest.raises(OptionError, match="takes one value, not 2"):
        decode_conditions(f'[["queue_id", "{operator}", [1, 2]]]')
