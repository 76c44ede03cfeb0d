"""A comparison of a column with values, and the JSON text of a list of comparisons, for option `conditions`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from spark_mq.errors import OptionError
from spark_mq.format.timestamp import epoch_micros, of_micros

Value = str | int | datetime


class Operator(StrEnum):
    """The comparison of a column with values."""

    IN = "in"
    """Equal to one of the values."""
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@dataclass(frozen=True)
class Condition:
    """One comparison, with SQL's rule for NULL: a row for which the comparison is NULL does not match.

    Attributes:
        values: Texts, integers or, for a TIMESTAMP column, datetimes with a zone; one value, except for IN.
    """

    column: str
    operator: Operator
    values: tuple[Value, ...]


def encode_conditions(conditions: Iterable[Condition]) -> str:
    """The JSON text of conditions, which `decode_conditions` reads."""
    return json.dumps(
        [
            [condition.column, condition.operator, [_as_json(value) for value in condition.values]]
            for condition in conditions
        ]
    )


def decode_conditions(text: str) -> list[Condition]:
    """The conditions of a JSON text: `[["topic", "in", ["orders"]], ...]`.

    A time is `{"micros": n}`, microseconds since the epoch.
    """
    try:
        return [_condition(*item) for item in json.loads(text)]
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise OptionError(f"option conditions={text!r} is not a list of [column, operator, values]: {error}") from error


def _condition(column: str, operator: str, values: Sequence[object]) -> Condition:
    if operator != Operator.IN and len(values) != 1:
        raise ValueError(f"{operator} takes one value, not {len(values)}")
    return Condition(str(column), Operator(operator), tuple(map(_from_json, values)))


def _as_json(value: Value) -> object:
    return {"micros": epoch_micros(value)} if isinstance(value, datetime) else value


def _from_json(value: object) -> Value:
    if isinstance(value, dict):
        return of_micros(value["micros"])
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"{value!r} is neither text nor an integer")
    return value
