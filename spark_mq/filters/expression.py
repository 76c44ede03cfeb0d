"""The parts of a parsed SQL92 expression, named as in RocketMQ's package `org.apache.rocketmq.filter.expression`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The Java type of a constant."""

    STRING = "String"
    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"
    BOOLEAN = "Boolean"
    NULL = "null"


NUMBERS = frozenset((Kind.INTEGER, Kind.LONG, Kind.DOUBLE))


class Search(StrEnum):
    """An operator that looks for text in a text."""

    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"


@dataclass(frozen=True)
class Constant:
    """A constant. `is_literal` is False for a negated one: RocketMQ does not check the type of that."""

    kind: Kind
    value: str | float | bool | None
    is_literal: bool = True


@dataclass(frozen=True)
class Property:
    """The text of a property, or null."""

    name: str


@dataclass(frozen=True)
class Unknown:
    """Null: `-` before something that is not a number; `operand` is evaluated, and can fail."""

    operand: Expression


@dataclass(frozen=True)
class BooleanCast:
    """A property as a condition: FALSE, because a text is not a boolean."""

    operand: Property


@dataclass(frozen=True)
class Not:
    """NOT."""

    operand: Expression


@dataclass(frozen=True)
class And:
    """AND of two or more conditions."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Or:
    """OR of two or more conditions."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Equal:
    """`=`; also IS NULL, whose right side is the constant NULL."""

    left: Expression
    right: Expression


@dataclass(frozen=True)
class Comparison:
    """`<`, `<=`, `>` or `>=`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class In:
    """IN, or NOT IN if `is_negated`."""

    operand: Property
    values: tuple[str, ...]
    is_negated: bool


@dataclass(frozen=True)
class Find:
    """CONTAINS, STARTSWITH or ENDSWITH, or NOT one of them if `is_negated`."""

    search: Search
    operand: Expression
    text: str
    is_negated: bool


Expression = Constant | Property | Unknown | BooleanCast | Not | And | Or | Equal | Comparison | In | Find


def is_boolean(expression: Expression) -> bool:
    """Whether the part is a `BooleanExpression` of RocketMQ."""
    if isinstance(expression, Constant):
        return expression.is_literal and expression.kind in (Kind.BOOLEAN, Kind.NULL)
    return not isinstance(expression, (Property, Unknown))
