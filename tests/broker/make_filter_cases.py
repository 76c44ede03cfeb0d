"""Writes tests/filters/java_answers.jsonl: what RocketMQ's classes say about expressions and messages.

It also writes tests/filters/java_bits.jsonl: the bits of groups and topics in the Bloom filter of a broker.

`python -m tests.broker.make_filter_cases` needs Java and Maven. The first line has the messages (their properties), and
each other line an expression with the answers of each version; null is a refusal.
"""

# ruff: noqa: E501 - the lists are easier to read with long lines
from __future__ import annotations

import json
import random

from tests.broker import harness
from tests.support.filter_cases import ANSWERS, BITS, random_expression, random_message

_RANDOM = 110
_MESSAGES: list[dict[str, str]] = [
    {},
    {"a": "1", "b": "1", "price": "2", "TAGS": "paid", "region": "eu"},
    {"a": "1.5", "b": "2", "price": "3", "region": "it's"},
    {"a": "x", "price": "1e2", "KEYS": "k1 k2"},
    {"a": "true", "b": "TRUE", "price": " 2.5d "},
    {"a": "2147483648", "b": "-0", "price": "0"},
    {"a": "\u0663", "b": "NaN", "price": "Infinity"},
]
_EXPRESSIONS = (
    "a = 1", "a = 1L", "a = 1.0", "a = '1'", "1 = a", "'1' = a", "a <> 1", "a <> '1'", "a = b", "a <> b", "b = a",
    "a = TRUE", "TRUE = a", "a <> FALSE", "a = missing", "missing = a", "missing = missing", "missing <> missing",
    "a > 1", "a >= 1", "a < 1.5", "a <= 2147483648", "1 < a", "1 >= a", "a > b", "b < price", "b <= price", "price = 2",
    "price BETWEEN 1 AND 3", "price between 1 and 3 and region = 'eu'", "price NOT BETWEEN 1 AND 2.5",
    "price BETWEEN 3 AND 1", "price BETWEEN -1 AND -3", "price BETWEEN a AND b", "2 BETWEEN a AND price",
    "price BETWEEN NULL AND 1", "price BETWEEN 'a' AND 'b'", "price BETWEEN 1 AND",
    "region IN ('eu', 'us')", "region NOT IN ('eu')", "region IN ('it''s')", "region IN ()", "region IN (1)", "5 IN ('5')",
    "region IN ('a','b','c','d','eu','f')", "(region) IN ('eu')", "missing NOT IN ('a')", "a = 1 IN ('x')",
    "a IS NULL", "a IS NOT NULL", "missing IS NULL", "(a = 1) IS NULL", "a > 1 IS NULL", "5 IS NULL", "NULL IS NULL", "a IS 5",
    "NOT a = 1", "NOT (a = 1)", "NOT a", "NOT NOT a", "NOT missing", "a", "missing", "NOT a IS NULL", "NOT TRUE", "NOT 1",
    "TRUE", "FALSE", "NULL", "NOT NULL", "5", "'x'", "", " ", "TRUE AND NULL", "FALSE AND NULL", "TRUE OR NULL",
    "a > 1 OR TRUE", "TRUE OR a > 1", "a > 1 AND FALSE", "FALSE AND a > 1", "missing = 1 OR a > 1", "missing = 1 AND a > 1",
    "a = 1 AND b = 1 OR price = 3", "a = 1 OR b = 1 AND price = 3", "a = 1 AND (b = 1 OR price = 3)",
    "a = 1 = TRUE", "(a = 1) = (b = 1)", "(a = 1) = 'true'", "'true' = (a = 1)", "(a = 1) = 1", "1 = (a = 1)", "(a = 1) = b",
    "b = (a = 1)", "(a = 1) > 1", "a > 1 > 2", "a > 'x'", "a < TRUE", "a > NULL", "a = NULL", "NULL <> a", "TRUE = 5",
    "5 = TRUE", "TRUE = TRUE", "'a' = 'a'", "1 = 1.0", "1 = '1'", "'x' = 1", "1 < 2", "2 < 1", "'true' = TRUE",
    "a = -1", "a = +1", "a = - 1", "a = --1\n", "-a = 1", "-a IS NULL", "-'x' = a", "a > -NULL", "-(a = 1) IS NULL", "-5", "a > - -1",
    "a CONTAINS '1'", "a NOT CONTAINS '1'", "missing NOT CONTAINS '1'", "a CONTAINS ''", "a NOT CONTAINS ''",
    "region STARTSWITH 'e'", "region ENDSWITH 's'", "region not startswith 'e'", "region NOT ENDSWITH 's'", "5 CONTAINS '5'",
    "'55' CONTAINS '5'", "(a = 1) CONTAINS 'x'", "a CONTAINS 1", "contains = 1", "a CONTAINS '1' AND b = 1",
    "a = 1 LIKE 'x'", "a LIKE 'x'", "a = 1 b = 2", "a = 1 )", "(a = 1", "a = 1 #", "a = 1 b #", "a = 1 -- c", "a = 1 -- c\nAND b = 1",
    "a /* x */ = 1", "a /* x = 1", "a = 1 AND", "AND a = 1", "a == 1", "a != 1", "a = 'x", "a = \"x\"", "a = 'x''", "a = 007",
    "a = 0", "a = 0.0", "a = 1e400", "a = 1e-400", "a = 1.", "a = .5e1", "a = 5E0", "a = 1e", "a = 9223372036854775807",
    "a = 9223372036854775808", "a = -9223372036854775808", "a = 2147483648", "a = -2147483648", "$x_1 IS NULL", "TAGS = 'paid'",
    "é = 1", "a = 'é'", "a\u00a0= 1", "A = 1", "tags = 'paid'", "a NOT 1", "a NOT NULL", "a IS NOT", "a BETWEEN 1 OR 2", "+", "- -", "+ a",
)  # fmt: skip


def main() -> None:
    """Write the file."""
    rng = random.Random(20_261_123)
    messages = _MESSAGES + [random_message(rng) for _ in range(5)]
    expressions = dict.fromkeys((*_EXPRESSIONS, *(random_expression(rng) for _ in range(_RANDOM))))
    answers = [
        harness.filter_messages([(text, messages) for text in expressions], version) for version in harness.VERSIONS
    ]
    lines = [{"messages": messages}] + [
        {"expression": text, **dict(zip(harness.VERSIONS, both, strict=True))}
        for text, *both in zip(expressions, *answers, strict=True)
    ]
    ANSWERS.parent.mkdir(exist_ok=True)
    ANSWERS.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_bits()


def write_bits() -> None:
    """Write the bits of random groups and topics, for random settings of the filter."""
    rng = random.Random(20_261_124)
    names = ["".join(rng.choices("aZ_0%é日😀", k=rng.randrange(40))) for _ in range(60)]
    asked = [
        {"bloom": f"{name}#{rng.choice(names)}", "errorRate": rng.randrange(1, 100), "groups": rng.randrange(1, 500)}
        for name in names
    ]
    lines = [
        {**one, "bits": [*map(int, bits)]}
        for one, bits in zip(asked, harness.answers("filter", map(json.dumps, asked)), strict=True)
    ]
    BITS.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
