"""Filters agree with RocketMQ's own classes: refusals, and the answers for messages."""

from __future__ import annotations

import random

import pytest

from spark_mq.errors import FilterError
from spark_mq.filters.one_message import evaluate
from spark_mq.filters.parser import parse_sql92
from spark_mq.filters.tags import parse_tags
from tests.broker import harness
from tests.support.filter_cases import questions
from tests.support.soak import SOAKS

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]


@pytest.mark.parametrize("version", harness.VERSIONS)
def test_random_expressions(version: str) -> None:
    asked = questions(7, 50_000 if SOAKS else 5000)
    differing = []
    for (text, messages), java in zip(asked, harness.filter_messages(asked, version), strict=True):
        try:
            condition = parse_sql92(text, version).condition
        except FilterError:
            ours = None
        else:
            ours = [evaluate(condition, message).name for message in messages]
        if ours != java:
            differing.append((text, messages, ours, java))
    assert not differing[:3]


@pytest.mark.parametrize("version", harness.VERSIONS)
def test_random_tags(version: str) -> None:
    rng = random.Random(8)
    pieces = ("a", "b", "||", "||", "|", " ", "*", "\t", "\x01", "\u00a0", "\u2003", "\u65e5")
    texts = ["*", "", "||", *("".join(rng.choices(pieces, k=rng.randrange(1, 8))) for _ in range(3000))]
    for text, java in zip(texts, harness.subscribe(texts, version), strict=True):
        try:
            tags = parse_tags(text)
        except FilterError:
            assert java is None, text
            continue
        if java == ["*"] and text in ("*", ""):
            assert tags is None
        else:
            assert tags == frozenset(java or ()), text
            assert java is not None, text
