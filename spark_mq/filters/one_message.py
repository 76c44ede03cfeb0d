"""The properties of one message, for commands that look at single messages."""

from __future__ import annotations

from collections.abc import Mapping

from spark_mq.filters.conditions import answers, compares, has_text
from spark_mq.filters.expression import Constant, Expression, Search
from spark_mq.filters.java_number import double_order, order_of_number, parse_double
from spark_mq.filters.truth import ERROR, NULL, TRUE, Table1, Table2, Truth, truth_of


def evaluate(condition: Expression, properties: Mapping[str, str]) -> Truth:
    """What a condition says about a message with these properties. Only TRUE is a match.

    Example:
        >>> evaluate(parse_sql92("price > 5").condition, {"price": "7"})
        <Truth.TRUE: 1>
    """
    return answers(condition, OneMessage(properties))


class OneMessage:
    """The properties of one message, as `conditions.Messages`."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def constant(self, value: Truth) -> Truth:
        return value

    def lookup(self, table: Table1, answers: Truth) -> Truth:
        return table[answers]

    def lookup_two(self, table: Table2, left: Truth, right: Truth) -> Truth:
        return table[4 * left + right]

    def is_present(self, name: str) -> Truth:
        return TRUE if name in self._properties else NULL

    def is_one_of(self, name: str, values: tuple[str, ...]) -> Truth:
        text = self._properties.get(name)
        return NULL if text is None else truth_of(text in values)

    def contains(self, name: str, search: Search, text: str) -> Truth:
        value = self._properties.get(name)
        return NULL if value is None else truth_of(has_text(value, search, text))

    def as_boolean(self, name: str) -> Truth:
        text = self._properties.get(name)
        return NULL if text is None else truth_of(text.lower() == "true")

    def compare_number(self, name: str, operator: str, constant: Constant) -> Truth:
        text = self._properties.get(name)
        if text is None:
            return NULL
        order = order_of_number(text, constant)
        return ERROR if order is None else truth_of(compares(operator, order))

    def equal_texts(self, left: str, right: str) -> Truth:
        one, other = self._properties.get(left), self._properties.get(right)
        if one is None and other is not None:
            return NULL
        return truth_of(one == other)

    def compare_texts(self, left: str, operator: str, right: str) -> Truth:
        texts = self._properties.get(left), self._properties.get(right)
        if texts[0] is None or texts[1] is None:
            return NULL
        one, other = parse_double(texts[0]), parse_double(texts[1])
        if one is None or other is None:
            return ERROR
        a, b = double_order(one), double_order(other)
        return truth_of(compares(operator, (a > b) - (a < b)))
