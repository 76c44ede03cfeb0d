"""Filters that Spark pushes to a Python data source, as conditions.

Filters that are not conditions (IS NULL, NOT, LIKE ...) are left out. Spark keeps all filters, and checks each row
again. So pushing only reduces the rows that are read.
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
"""Operators by the names of Spark's classes (`pyspark.sql.datasource.Filter`), which are new in Spark 4.1."""


def conditions_of(filters: Iterable[Filter]) -> list[Condition]:
    """The conditions of the filters that compare a top-level column with values."""
    return [condition for pushed in filters if (condition := _condition(pushed)) is not None]


def _condition(one: Filter) -> Condition | None:
    operator = _OPERATORS.get(type(one).__name__)
    if operator is None or len(one.attribute) != 1:  # type: ignore[attr-defined]
        return None
    value = one.value  # type: ignore[attr-defined]
    values: Sequence[object] = value if type(one).__name__ == "In" else (value,)
    # NULL in a list makes a comparison NULL or true, never false: the same rows match without it.
    known = [_value(item) for item in values if item is not None]
    if any(item is None for item in known):
        return None
    return Condition(one.attribute[0], operator, tuple(item for item in known if item is not None))  # type: ignore[attr-defined]


def _value(value: object) -> Value | None:
    """The value for a condition; None if no column has its type."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    if isinstance(value, bool | date) or not isinstance(value, str | int):
        return None
    return value


class PushdownMessagesReader(MessagesReader):
    """The reader of messages that pass the filters of a query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Add the filters to the predicate of the read; Spark checks all filters again."""
        self.narrow(Predicate.of(conditions_of(filters)))
        return filters


class PushdownMessagesByKeyReader(PushdownMessagesReader, MessagesByKeyReader):
    """The reader of keys and messages that pass the filters of a query."""


def is_pushdown_planner() -> bool:
    """Whether the caller is Spark's planner of pushed filters.

    If the session's `spark.sql.python.filterPushdown.enabled` is false, Spark refuses a reader that has `pushFilters`
    (`plan_data_source_read`), and another worker requests the reader. That worker cannot see the session's settings.
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith("data_source_pushdown_filters.py"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
