"""The rules of SQL92 expressions (`org.apache.rocketmq.filter.expression`@5.3.3), once for all ways to evaluate them.

`answers` walks over an expression. A `Messages` is what the answers are about: the properties of one message, a column
of properties in Arrow, or one in Spark. It answers the questions about texts; everything else is a table of `truth`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from spark_mq.filters import expression as sql
from spark_mq.filters import truth
from spark_mq.filters.java_number import compare_numbers, double_order, order_of_number, parse_double
from spark_mq.filters.truth import ERROR, FALSE, NULL, TRUE, Table1, Table2, Truth

Answers = TypeVar("Answers")

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


class Messages(Protocol[Answers]):
    """The properties of messages. Each answer is NULL for a message that lacks a property, if nothing else is said."""

    def constant(self, value: Truth) -> Answers:
        """The same answer for every message."""

    def lookup(self, table: Table1, answers: Answers) -> Answers:
        """The answers that the table has for these answers."""

    def lookup_two(self, table: Table2, left: Answers, right: Answers) -> Answers:
        """The answers that the table has for the two answers of each message."""

    def is_present(self, name: str) -> Answers:
        """TRUE if the message has the property."""

    def is_one_of(self, name: str, values: tuple[str, ...]) -> Answers:
        """Whether the text is one of the values."""

    def contains(self, name: str, search: sql.Search, text: str) -> Answers:
        """Whether the property's text contains `text`, starts or ends with it."""

    def as_boolean(self, name: str) -> Answers:
        """`Boolean.valueOf` of the text."""

    def compare_number(self, name: str, operator: str, constant: sql.Constant) -> Answers:
        """The comparison of the text, read as a number of the constant's kind; ERROR if Java cannot read it."""

    def equal_texts(self, left: str, right: str) -> Answers:
        """Whether two properties have the same text; TRUE if both are missing, FALSE if only the right one is."""

    def compare_texts(self, left: str, operator: str, right: str) -> Answers:
        """The comparison of two texts, both read as doubles; ERROR if Java cannot read one of them."""


def answers(expression: sql.Expression, messages: Messages[Answers]) -> Answers:
    """The answer of a condition for each message."""
    if isinstance(expression, sql.Constant):
        return messages.constant(_boolean_of(expression))
    if isinstance(expression, sql.BooleanCast):
        return messages.lookup(truth.FALSE_IF_KNOWN, messages.is_present(expression.operand.name))
    if isinstance(expression, sql.Not):
        return messages.lookup(truth.NOT, answers(expression.operand, messages))
    if isinstance(expression, (sql.And, sql.Or)):
        table = truth.AND if isinstance(expression, sql.And) else truth.OR
        parts = [answers(operand, messages) for operand in expression.operands]
        while len(parts) > 1:  # the tables are associative: a flat tree has the same answer
            pairs = [messages.lookup_two(table, *parts[at : at + 2]) for at in range(0, len(parts) - 1, 2)]
            parts = pairs + parts[len(pairs) * 2 :]
        return parts[0]
    if isinstance(expression, sql.Unknown):
        return messages.lookup(truth.NULL_ONLY, answers(expression.operand, messages))
    if isinstance(expression, sql.In):
        found = messages.is_one_of(expression.operand.name, expression.values)
        return messages.lookup(truth.NOT, found) if expression.is_negated else found
    if isinstance(expression, sql.Find):
        return _find(expression, messages)
    if isinstance(expression, sql.Equal):
        return _equal(expression, messages)
    assert isinstance(expression, sql.Comparison), "a property is a condition only in a BooleanCast"
    return _comparison(expression, messages)


def _find(find: sql.Find, messages: Messages[Answers]) -> Answers:
    """FALSE for everything that is not a text, also in the negated form (`ContainsExpression` and others @5.3.3)."""
    operand = find.operand
    if not find.text:
        return messages.constant(FALSE)
    if isinstance(operand, sql.Property):
        found = messages.contains(operand.name, find.search, find.text)
        if find.is_negated:
            found = messages.lookup(truth.NOT, found)
        return messages.lookup(truth.FALSE_IF_NULL, found)
    if isinstance(operand, sql.Constant):
        if operand.kind != sql.Kind.STRING:
            return messages.constant(FALSE)
        return messages.constant(Truth(has_text(str(operand.value), find.search, find.text) != find.is_negated))
    return messages.lookup(truth.FALSE_ONLY, answers(operand, messages))


def has_text(value: str, search: sql.Search, text: str) -> bool:
    """Whether a text contains another one, starts or ends with it."""
    if search == sql.Search.CONTAINS:
        return text in value
    return value.startswith(text) if search == sql.Search.STARTSWITH else value.endswith(text)


def _equal(equal: sql.Equal, messages: Messages[Answers]) -> Answers:
    """`=` of texts, numbers and booleans (`ComparisonExpression.doCreateEqual`, `__compare`@5.3.3)."""
    left, right = equal.left, equal.right
    if isinstance(left, sql.Constant) and isinstance(right, sql.Constant):
        return messages.constant(_equal_constants(left, right))
    if isinstance(left, sql.Property) and isinstance(right, sql.Property):
        return messages.equal_texts(left.name, right.name)
    if isinstance(left, sql.Property) and isinstance(right, sql.Constant):
        if right.kind == sql.Kind.STRING:
            return messages.is_one_of(left.name, (str(right.value),))
        if right.kind in sql.NUMBERS:
            return messages.compare_number(left.name, "=", right)
    is_text_or_number = isinstance(left, sql.Constant) and left.kind not in (sql.Kind.BOOLEAN, sql.Kind.NULL)
    if is_text_or_number and isinstance(right, sql.Property):
        return messages.lookup(truth.FALSE_IF_NULL, _equal(sql.Equal(right, left), messages))
    if isinstance(right, sql.Constant) and right.kind in sql.NUMBERS:
        return messages.lookup(truth.FALSE_IF_KNOWN, answers(left, messages))
    if isinstance(left, sql.Constant) and left.kind in sql.NUMBERS:
        return messages.lookup(truth.FALSE_ONLY, answers(right, messages))
    if isinstance(right, sql.Property):
        return messages.lookup_two(truth.EQUAL_TEXT, answers(left, messages), messages.is_present(right.name))
    if isinstance(right, sql.Constant) and right.kind == sql.Kind.STRING:
        return messages.lookup_two(truth.EQUAL_TEXT, answers(left, messages), messages.constant(TRUE))
    booleans = messages.as_boolean(left.name) if isinstance(left, sql.Property) else answers(left, messages)
    return messages.lookup_two(truth.EQUAL, booleans, answers(right, messages))


def _boolean_of(constant: sql.Constant) -> Truth:
    """A constant beside a boolean: `Boolean.valueOf` of a text."""
    if constant.kind == sql.Kind.NULL:
        return NULL
    if constant.kind == sql.Kind.STRING:
        return Truth(str(constant.value).lower() == "true")
    return Truth(bool(constant.value))


def _equal_constants(left: sql.Constant, right: sql.Constant) -> Truth:
    if sql.Kind.NULL in (left.kind, right.kind):
        one, other = (NULL if side.kind == sql.Kind.NULL else TRUE for side in (left, right))
        return truth.EQUAL[4 * one + other]
    if left.kind in sql.NUMBERS and right.kind in sql.NUMBERS:
        return Truth(compare_numbers(left, right) == 0)
    if sql.Kind.STRING not in (left.kind, right.kind):
        return Truth(left.kind == right.kind and left.value == right.value)
    if left.kind == right.kind:
        return Truth(left.value == right.value)
    if right.kind == sql.Kind.BOOLEAN:
        return truth.EQUAL[4 * _boolean_of(left) + _boolean_of(right)]
    if left.kind == sql.Kind.BOOLEAN:
        return Truth.ERROR
    text, number = (left, right) if left.kind == sql.Kind.STRING else (right, left)
    order = order_of_number(str(text.value), number)
    return Truth.ERROR if order is None else Truth(order == 0)


def _comparison(comparison: sql.Comparison, messages: Messages[Answers]) -> Answers:
    """`<`, `<=`, `>`, `>=`; the right side is evaluated only if the left one has a value."""
    operator, left, right = comparison.operator, comparison.left, comparison.right
    if isinstance(left, sql.Unknown):
        return answers(left, messages)
    if isinstance(right, sql.Unknown):
        return messages.lookup_two(truth.NULL_OR_RIGHT, _presence(left, messages), answers(right, messages))
    if sql.Kind.NULL in (getattr(left, "kind", None), getattr(right, "kind", None)):
        return messages.constant(NULL)
    if isinstance(left, sql.Property) and isinstance(right, sql.Property):
        return messages.compare_texts(left.name, operator, right.name)
    if isinstance(left, sql.Property):
        assert isinstance(right, sql.Constant)
        return messages.compare_number(left.name, operator, right)
    assert isinstance(left, sql.Constant)
    if isinstance(right, sql.Property):
        return messages.compare_number(right.name, _FLIPPED[operator], left)
    assert isinstance(right, sql.Constant)
    return messages.constant(Truth(compares(operator, compare_numbers(left, right))))


def _presence(operand: sql.Expression, messages: Messages[Answers]) -> Answers:
    if isinstance(operand, sql.Property):
        return messages.is_present(operand.name)
    assert isinstance(operand, sql.Constant)
    return messages.constant(NULL if operand.kind == sql.Kind.NULL else TRUE)


def compares(operator: str, order: int) -> bool:
    """Whether an order, which is negative, 0 or positive, is that of the operator."""
    if order == 0:
        return operator in ("=", "<=", ">=")
    return operator in (("<", "<=") if order < 0 else (">", ">="))


def evaluate(condition: sql.Expression, properties: Mapping[str, str]) -> Truth:
    """What a condition says about a message with these properties. Only TRUE is a match."""
    return answers(condition, OneMessage(properties))


class OneMessage:
    """The properties of one message, as `Messages`."""

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
        return NULL if text is None else Truth(text in values)

    def contains(self, name: str, search: sql.Search, text: str) -> Truth:
        value = self._properties.get(name)
        return NULL if value is None else Truth(has_text(value, search, text))

    def as_boolean(self, name: str) -> Truth:
        text = self._properties.get(name)
        return NULL if text is None else Truth(text.lower() == "true")

    def compare_number(self, name: str, operator: str, constant: sql.Constant) -> Truth:
        text = self._properties.get(name)
        if text is None:
            return NULL
        order = order_of_number(text, constant)
        return ERROR if order is None else Truth(compares(operator, order))

    def equal_texts(self, left: str, right: str) -> Truth:
        one, other = self._properties.get(left), self._properties.get(right)
        if one is None and other is not None:
            return NULL
        return Truth(one == other)

    def compare_texts(self, left: str, operator: str, right: str) -> Truth:
        if left not in self._properties or right not in self._properties:
            return NULL
        one, other = parse_double(self._properties[left]), parse_double(self._properties[right])
        if one is None or other is None:
            return ERROR
        a, b = double_order(one), double_order(other)
        return Truth(compares(operator, (a > b) - (a < b)))
