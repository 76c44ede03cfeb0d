r"""The numbers that Java reads in a property's text: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf` (Java 17).

The patterns are written for Python, Spark and Arrow alike, with `\A` and `\z` added by each.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from functools import cache

from spark_mq.filters.expression import Constant, Kind

ASCII_INTEGER = "[+-]?[0-9]+"
DOUBLE = (
    r"[\x00-\x20]*[+-]?(?:NaN|Infinity"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)[\x00-\x20]*"
)
"""Text that `Double.valueOf` reads; white space around it is everything up to the space, as in `String.trim`."""
INT_RANGE = (-(1 << 31), (1 << 31) - 1)
LONG_RANGE = (-(1 << 63), (1 << 63) - 1)

_MOST_DIGITS = 19
"""The digits of the largest Long. Python refuses to read some thousand digits."""
_DOUBLE = re.compile(DOUBLE)
SPACE = "".join(map(chr, range(0x21)))
"""What `String.trim` removes."""


@cache
def java_digits() -> Mapping[str, str]:
    """Every digit that `Character.digit(char, 10)` knows outside of ASCII, and the ASCII digit that it stands for."""
    others = map(chr, range(0x80, 0x10000))
    return {char: str(unicodedata.decimal(char)) for char in others if unicodedata.category(char) == "Nd"}


def parse_integer(text: str, bounds: tuple[int, int]) -> int | None:
    """The integer in the text, as `Long.valueOf` reads it; None if Java refuses it, or it is not within the bounds."""
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if not digits.isascii():
        digits = digits.translate({ord(char): digit for char, digit in java_digits().items()})
    if not (digits.isascii() and digits.isdecimal()):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS:
        return None
    value = int(sign + digits)
    return value if bounds[0] <= value <= bounds[1] else None


def parse_double(text: str) -> float | None:
    """The number in the text, as `Double.valueOf` reads it; None if Java refuses it."""
    if not _DOUBLE.fullmatch(text):
        return None
    body = text.strip(SPACE)
    if "x" in body or "X" in body:
        try:
            return float.fromhex(body.rstrip("fFdD") if body[-1] in "fFdD" else body)
        except OverflowError:
            return -math.inf if body.startswith("-") else math.inf
    return float(body if body.endswith(("y", "N")) else body.rstrip("fFdD"))


def double_order(value: float) -> tuple[int, float]:
    """A key in the order of `Double.compareTo`: -0.0 is less than 0.0, and NaN is the largest."""
    if math.isnan(value):
        return 2, 0.0
    if value == 0:
        return (-1 if math.copysign(1, value) < 0 else 0), 0.0
    return (1, value) if value > 0 else (-2, value)


def order_of_number(text: str, constant: Constant) -> int | None:
    """-1, 0 or 1: the order of a text, read as a number, and a constant; None if Java cannot read the number."""
    number: float | None
    if constant.kind == Kind.DOUBLE:
        number = parse_double(text)
    else:
        number = parse_integer(text, INT_RANGE if constant.kind == Kind.INTEGER else LONG_RANGE)
    if number is None:
        return None
    value = constant.value
    assert isinstance(value, (int, float))
    if number != number:
        return 1
    return (number > value) - (number < value)


def compare_numbers(left: Constant, right: Constant) -> int:
    """-1, 0 or 1: the order of two numbers, as doubles if one of them is a double (`__compare`@5.3.3)."""
    a, b = left.value, right.value
    assert isinstance(a, (int, float))
    assert isinstance(b, (int, float))
    if Kind.DOUBLE in (left.kind, right.kind):
        a, b = float(a), float(b)
    return (a > b) - (a < b)
