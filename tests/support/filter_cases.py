"""Random SQL92 expressions and messages, for comparisons of evaluators."""

# ruff: noqa: E501 - the lists are easier to read with long lines
from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_mq.filters.conditions import evaluate
from spark_mq.filters.truth import Truth
from spark_mq.format.bloom_filter import bit_map
from spark_mq.store.config.consumer_filters import ConsumerFilter

ANSWERS = Path(__file__).parent.parent / "filters" / "java_answers.jsonl"
"""What RocketMQ's classes say (`tests/broker/make_filter_cases.py`)."""
BITS = ANSWERS.with_name("java_bits.jsonl")
"""The bits of texts in Bloom filters, by the same program."""

NAMES = ("a", "b", "price", "TAGS", "A", "_x$1")
TEXTS = (
    "1", "2", "10", "-5", "+3", "007", "0", "-0", "1.5", "2.0", "1e2", "1.", ".5", " 1.5 ", "1.5f", "3d", "NaN", "-NaN",
    "Infinity", "-Infinity", "infinity", "inf", "nan", "0x1p3", "0x.8P1", "0x1", "1e400", "-1e-400", "", " ", "+", "-",
    "1 ", "2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "00000000000000000000005", "99999999999999999999", "true", "TRUE", "True ", "false",
    "eu", "EU", "e'u", "ı", "\u0663", "１２", "\U0001d7d1", "日本", "😀", "tr\u00fce", "1_000", "1L", "0.0", "-0.0",
    "0x1.fffffffffffff8p1023", "1.7976931348623159e308", "4.9e-324", "2.4e-324", "1\n", "\t2", "\u00a02", "e1", "1e",
    "1e+", "1.e1f", "--1", "abcabc", "\x00", "9007199254740993", "9007199254740992.0", "5E0D", "NaNd", "Infinityf",
)  # fmt: skip
_LITERALS = (
    "0", "1", "2", "10", "007", "5L", "3l", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
    "1.5", "2.0", "5.", ".5", "1E2", "1e400", "0.0", "0e5", "4.9e-324", "1e-400", "9007199254740993", "9007199254740992.0",
    "'eu'", "'1'", "'1.5'", "'true'", "'TRUE'", "'e''u'", "''", "'日本'", "'abc'", "'x", "TRUE", "false", "NULL", "Null",
)  # fmt: skip
_GARBAGE = (
    "AND", "or", "NOT", "=", "<>", "(", ")", ",", "#", "\"", "LIKE", "!=", "IS", "-", "--", "-- c\n", "/* c */", "/*",
    "/***/", "é", "contains", "IN", "BETWEEN", "1.5.5", "\t", "\u00a0", "'", ";", "*", "1", "a", "\r", "+", ">",
)  # fmt: skip


def questions(seed: int, count: int) -> list[tuple[str, list[dict[str, str]]]]:
    """Expressions, each with messages."""
    rng = random.Random(seed)
    return [(random_expression(rng), [random_message(rng) for _ in range(4)]) for _ in range(count)]


def random_message(rng: random.Random) -> dict[str, str]:
    """The properties of a message: each of the names in two of three messages."""
    return {name: rng.choice(TEXTS) for name in NAMES if rng.random() < 0.67}


def random_expression(rng: random.Random) -> str:
    """An expression; about a half of them are accepted, and few of those are refused for what they compare."""
    text = _condition(rng, rng.choice((0, 1, 1, 2, 3)))
    words = text.split(" ")
    while rng.random() < 0.12:
        at = rng.randrange(len(words) + 1)
        if rng.random() < 0.5:
            words.insert(at, rng.choice(_GARBAGE))
        elif len(words) > 1:
            words.pop(min(at, len(words) - 1))
    return " ".join(words)


def _condition(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return _atom(rng, depth)
    kind = rng.randrange(8)
    if kind < 3:
        word = rng.choice((" AND ", " and ", " OR ", " Or "))
        return word.join(_condition(rng, depth - 1) for _ in range(rng.choice((2, 2, 3))))
    if kind == 3:
        return f"NOT ( {_condition(rng, depth - 1)} )"
    if kind == 4:
        return f"NOT {_condition(rng, depth - 1)}"
    if kind == 5:
        return f"( {_condition(rng, depth - 1)} )"
    return f"{_operand(rng, depth)} {rng.choice(('=', '<>'))} {_operand(rng, depth)}"


def _atom(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(14)
    name = rng.choice(NAMES)
    negated = rng.choice(("", "", "NOT "))
    if kind < 3:
        return f"{_operand(rng, depth)} {rng.choice(('=', '<>'))} {_operand(rng, depth)}"
    if kind < 6:
        return f"{_number(rng)} {rng.choice(('<', '<=', '>', '>='))} {_number(rng)}"
    if kind == 6:
        return f"{_operand(rng, depth)} IS {rng.choice(('', 'NOT '))}NULL"
    if kind in (7, 8):
        return f"{_number(rng)} {negated}BETWEEN {_number(rng)} AND {_number(rng)}"
    if kind in (9, 10):
        texts = [rng.choice(TEXTS).replace("'", "''") for _ in range(rng.choice((1, 2, 6)))]
        quoted = " , ".join(f"'{text}'" for text in texts)
        return f"{name} {negated}IN ( {quoted} )"
    if kind < 13:
        search = rng.choice(("CONTAINS", "StartsWith", "ENDSWITH"))
        return f"{_operand(rng, depth)} {negated}{search} '{rng.choice(('', 'e', '1', '日', 'u', 'abc', '5', '.'))}'"
    return name


def _number(rng: random.Random) -> str:
    kind = rng.randrange(8)
    if kind < 4:
        return rng.choice(NAMES)
    if kind < 7:
        return f"{rng.choice(('', '', '- ', '+ '))}{rng.choice(_LITERALS[:23])}"
    return f"- {rng.choice(NAMES)}"


def _operand(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(9)
    if kind < 4:
        return rng.choice(NAMES)
    if kind < 7:
        return rng.choice(_LITERALS)
    if kind == 7:
        return f"{rng.choice(('-', '- -', '+'))} {rng.choice(_LITERALS)}"
    if depth > 0:
        return f"{rng.choice(('', '', '- '))}( {_condition(rng, depth - 1)} )"
    return f"- {rng.choice(NAMES)}"


def is_true_for(one: ConsumerFilter, properties: Mapping[str, str]) -> bool:
    """Whether the expression is TRUE for a message with these properties; False if it cannot be evaluated."""
    return one.condition is not None and evaluate(one.condition, properties) == Truth.TRUE


def message_bit_map(filters: Sequence[ConsumerFilter], properties: Mapping[str, str], bit_count: int) -> bytes:
    """The bit map that a broker stores for a message (`CommitLogDispatcherCalcBitMap.dispatch`@5.3.3, as in 4.9.7).

    It has the bits of all groups whose expression is TRUE, and is empty if there is no filter for the topic.
    """
    if not filters:
        return b""
    positions = [p for one in filters if is_true_for(one, properties) for p in one.bit_positions or ()]
    if any(not 0 <= position < bit_count for position in positions):
        return b""  # Java throws an exception, and stores no bit map
    return bit_map(positions, bit_count)
