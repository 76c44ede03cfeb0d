"""SQL92 expressions: the answers of RocketMQ's classes, refusals with their position, and what is not read."""

from __future__ import annotations

import json
import pickle
import warnings

import pyarrow as pa
import pytest

import spark_mq.filters
from spark_mq.errors import FilterError, OptionError
from spark_mq.filters.arrays import of_maps
from spark_mq.filters.conditions import answers, evaluate
from spark_mq.filters.parser import MAX_DEPTH, parse_sql92
from spark_mq.filters.truth import Truth
from tests.support.filter_cases import ANSWERS, questions

VERSIONS = ("4.9.7", "5.3.3")
(FIRST, *CASES) = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
MESSAGES: list[dict[str, str]] = FIRST["messages"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answers_of_rocketmq(version: str) -> None:
    assert len(CASES) > 200
    for case in CASES:
        try:
            condition = parse_sql92(case["expression"], version).condition
        except FilterError:
            ours = None
        else:
            ours = [evaluate(condition, message).name for message in MESSAGES]
        assert ours == case[version], case["expression"]


def test_arrow_has_the_same_answers() -> None:
    asked = questions(3, 700)
    messages = [message for _, many in asked for message in many][:600]
    columns = of_maps(pa.array([*(list(message.items()) for message in messages), None], pa.map_("string", "string")))
    compared = 0
    for text in [*(text for text, _ in asked), *(case["expression"] for case in CASES)]:
        try:
            condition = parse_sql92(text).condition
        except FilterError:
            continue
        found = [Truth(code).name for code in answers(condition, columns)]
        assert found == [evaluate(condition, message).name for message in (*messages, {})], text
        compared += 1
    assert compared > 300


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("a = ", 4, "the end of the text cannot be here"),
        ("a = 1 #", 6, "'#' starts no token"),
        ("price > 'x'", 6, "compares properties and numbers"),
        ("a = 1 AND\nb IN (1)", 16, "line 2, column 7"),
        ("price BETWEEN 3 AND 1", 6, "ends reversed"),
        ("a = NULL", 2, "write IS NULL"),
        ("a = 0.0", 4, "0.0 is 0"),
        ("a = 'x' AND 5", 12, "a condition is needed here"),
        ("(" * 5000, MAX_DEPTH, "levels"),
        ("a = " * 100 + "a", 258, "levels"),
        ("a = '\ud800'", 0, "not valid Unicode"),
    ],
)
def test_refusals(text: str, position: int, reason: str) -> None:
    with pytest.raises(FilterError, match=reason) as refused:
        parse_sql92(text)
    assert refused.value.position == position
    assert pickle.loads(pickle.dumps(refused.value)).position == position


def test_many_conditions() -> None:
    text = " OR ".join(f"a = {number}" for number in range(3000))
    assert spark_mq.filters.matches(text, {"a": "2999"})
    assert not spark_mq.filters.matches(text, {"a": "3000"})


def test_versions() -> None:
    text = "a CONTAINS 'x'"
    for version in ("5", "5.1", "5.1.3", "5.2", "6"):
        assert parse_sql92(text, version).ignored == ""
    for version in ("4", "4.9.7", "5.0", "5.1.2"):
        assert parse_sql92(text, version).ignored == "CONTAINS 'x'"
    with pytest.raises(OptionError, match="not a version"):
        parse_sql92(text, "five")


def test_text_that_is_not_read() -> None:
    with pytest.warns(UserWarning, match="RocketMQ reads only 'a = 1' of the filter, and ignores \"LIKE 'x'\""):
        assert spark_mq.filters.matches("a = 1 LIKE 'x'", {"a": "1"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert spark_mq.filters.matches("a = 1 -- all of it\n", {"a": "1"})


def test_masks() -> None:
    messages = pa.table({"properties": pa.array([[("a", "1")], [], None], pa.map_("string", "string"))})
    assert spark_mq.filters.mask("a = 1", messages).to_pylist() == [True, False, False]
    assert spark_mq.filters.mask("a IS NULL", messages.to_batches()[0]).to_pylist() == [False, True, True]
