"""Turns comparisons into conditions, given the values of their constants.

A condition is exactly equivalent to its comparison, with one exception: `keys CONTAINS ('k')` becomes a condition on
`key`, which also matches a message whose unique key is `k`, and never matches a message of transaction type ROLLBACK,
because the index does not contain such messages. So that condition is only used if other conditions exclude ROLLBACK.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from spark_mq.format.record import TRANSACTION_TYPE_NAMES
from spark_mq.format.timestamp import EPOCH
from spark_mq.query.comparisons import Comparator, Comparison
from spark_mq.source.predicate import ROLLBACK, Condition, Operator, Predicate, Value

TIMESTAMP = "timestamp"
"""Spark's name of the type of an instant."""
_STRING = "string"
"""Spark's name of the type of text without a collation: text is equal if its bytes are."""
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_STARTS_WITH_DIGIT = re.compile(r"\s*\d")

TRANSACTION_TYPE, KEYS, KEY, UNIQUE_KEY = "transaction_type", "keys", "key", "unique_key"
KNOWN_VALUES = {TRANSACTION_TYPE: TRANSACTION_TYPE_NAMES}
"""By column: the values that a column of few known values has."""
ELEMENT_COLUMNS = {KEYS: KEY}
"""By column that is an array: the column of conditions on its elements."""


@dataclass(frozen=True)
class Constant:
    """The value of a constant.

    Attributes:
        value: The value; None for NULL. Of a constant that is compared with an instant, the value cast to text.
        micros: The constant as an instant, microseconds since 1970; None if it is not one, or it is not requested.
    """

    data_type: str
    value: object
    micros: int | None = None


@dataclass(frozen=True)
class Constants:
    """The values of constants, and which types Spark compares as instants with a TIMESTAMP.

    Attributes:
        values: By SQL text, and whether the constant is compared with an instant. A constant without a value is left
            out.
        instant_types: Spark's names of the types of constants that it casts to TIMESTAMP to compare them with one.
        can_search: Whether `array_contains` is Spark's own function.
    """

    values: Mapping[tuple[str, bool], Constant]
    instant_types: frozenset[str] = frozenset()
    can_search: bool = True


TypedComparison = tuple[Comparison, str]
"""A comparison, and Spark's name of the type of its column; of CONTAINS, of the column's elements."""


def constants_of(comparisons: Iterable[TypedComparison]) -> list[tuple[str, bool]]:
    """The constants of the comparisons: SQL text, and whether the constant is compared with an instant."""
    texts = ((text, data_type == TIMESTAMP) for comparison, data_type in comparisons for text in comparison.values)
    return list(dict.fromkeys(texts))


def conditions_of(comparisons: Sequence[TypedComparison], constants: Constants) -> dict[Comparison, Condition]:
    """The conditions of comparisons, by comparison.

    Comparisons without an equivalent are left out: those for which Spark would cast the column, those with NULL, and
    those with a constant that has no value.
    """
    conditions = {}
    for comparison, data_type in comparisons:
        is_instant = data_type == TIMESTAMP
        found = [constants.values.get((text, is_instant)) for text in comparison.values]
        known = [constant for constant in found if constant is not None]
        if len(known) < len(found):
            continue
        if is_instant:
            values = _instants(comparison.comparator, known, constants.instant_types)
        else:
            values = _plain_values(data_type, known)
        condition = None if values is None else _condition(comparison, values, constants.can_search)
        if condition is not None:
            conditions[comparison] = condition
    return conditions


def usable_conditions(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """The conditions without those on elements of `keys`, unless the others exclude transaction type ROLLBACK."""
    others = [condition for condition in conditions if condition.column != KEY]
    return tuple(others if may_be_rolled_back(others) else conditions)


def may_be_rolled_back(conditions: Iterable[Condition]) -> bool:
    """Whether messages of transaction type ROLLBACK, which are in no index, can match the conditions."""
    return Predicate.of(conditions).allows_transaction_type(ROLLBACK)


def _condition(comparison: Comparison, values: tuple[Value, ...], can_search: bool) -> Condition | None:
    if comparison.comparator == Comparator.NOT_IN:
        others = tuple(value for value in KNOWN_VALUES[comparison.column] if value not in values)
        return Condition(comparison.column, Operator.IN, others)
    if comparison.comparator == Comparator.CONTAINS:
        return Condition(ELEMENT_COLUMNS[comparison.column], Operator.IN, values) if can_search else None
    return Condition(comparison.column, Operator(comparison.comparator.lower()), values)


def _plain_values(data_type: str, constants: Iterable[Constant]) -> tuple[Value, ...] | None:
    """Text of the same collation for a text column, integers for an integer column; None for any other value."""
    values = []
    for constant in constants:
        is_integer = data_type in _INTEGERS and constant.data_type in _INTEGERS
        is_text = data_type == _STRING == constant.data_type
        if not (is_integer or is_text) or not isinstance(constant.value, str | int):
            return None
        values.append(constant.value)
    return tuple(values)


def _instants(
    comparator: Comparator, constants: Iterable[Constant], instant_types: frozenset[str]
) -> tuple[Value, ...] | None:
    """Datetimes in UTC; None if Spark would not compare a value as an instant, or Python has no such datetime."""
    values = []
    for constant in constants:
        if constant.data_type not in instant_types or constant.micros is None:
            return None
        if constant.data_type == _STRING:
            if comparator == Comparator.IN:  # other rules apply in a list: the value may stay text
                return None
            if not _STARTS_WITH_DIGIT.match(str(constant.value)):  # 'now' is another instant later
                return None
        try:
            values.append(EPOCH + timedelta(microseconds=constant.micros))
        except OverflowError:
            return None
    return tuple(values)
