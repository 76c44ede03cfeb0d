"""Filters that Spark pushes to a Python data source, as conditions.

What no condition can say (IS NULL, NOT, LIKE ...) is left out: all filters stay with Spark, which looks at each row
again. So pushing only narrows what is read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from spark_mq.source.condition import Condition, Operator, Value
from spark_mq.source.messages import MessagesReader
from spark_mq.source.messages_by_key import MessagesByKeyReader
from spark_mq.source.predicate import Predicate

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_OPERATORS = {
    "EqualTo": Operator.IN,
    "In": Operator.IN,
    "LessThan": Operator.LESS,
    "LessThanOrEqual": Operator.LESS_OR_EQUAL,
    "GreaterThan": Operator.GREATER,
    "GreaterThanOrEqual": Operator.GREATER_OR_EQUAL,
}
"""By the names of Spark's classes, which are new in Spark 4.1 (`pyspark.sql.datasource.Filter`)."""


def conditions_of(filters: Iterable[Filter]) -> list[Condition]:
    """The filters on top-level columns that compare with values."""
    return [condition for one in filters if (condition := _condition(one)) is not None]


def _condition(one: Filter) -> Condition | None:
    operator = _OPERATORS.get(type(one).__name__)
    if operator is None or len(one.attribute) != 1:  # type: ignore[attr-defined]
        return None
    value = one.value  # type: ignore[attr-defined]
    values: Sequence[object] = value if type(one).__name__ == "In" else (value,)
    # NULL in a list makes a comparison NULL or true, and never false: for the rows that pass it is not there.
    known = [_value(item) for item in values if item is not None]
    if any(item is None for item in known):
        return None
    return Condition(one.attribute[0], operator, tuple(item for item in known if item is not None))  # type: ignore[attr-defined]


def _value(value: object) -> Value | None:
    """A value as a condition has it; None for one of a type that no column has."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    if isinstance(value, bool | date) or not isinstance(value, str | int):
        return None
    return value


class PushdownMessagesReader(MessagesReader):
    """Reads messages that pass the filters of a query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Narrow what is read; Spark looks at all filters again."""
        self.narrow(Predicate.of(conditions_of(filters)))
        return filters


class PushdownMessagesByKeyReader(PushdownMessagesReader, MessagesByKeyReader):
    """Reads keys and messages that pass the filters of a query."""


def is_pushdown_planner() -> bool:
    """Whether it is Spark's planner of pushed filters that asks for a reader.

    Where the session's `spark.sql.python.filterPushdown.enabled` is false, Spark refuses a reader that has
    `pushFilters` (`plan_data_source_read`); only then another worker asks. It cannot see the session's settings.
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith("data_source_pushdown_filters.py"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
