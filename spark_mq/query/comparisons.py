"""Comparisons of a column with constants that are true for every row that passes a condition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlglot import exp

from spark_mq.query.constants import constant
from spark_mq.query.statement import Statement


class Comparator(StrEnum):
    """The comparison of a column with constants."""

    IN = "IN"
    """Equal to one of the constants."""
    NOT_IN = "NOT IN"
    """Equal to none of the constants."""
    CONTAINS = "CONTAINS"
    """The column is an array, and one of its elements is equal to one of the constants."""
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


_COMPARATORS: dict[type[exp.Expr], Comparator] = {
    exp.EQ: Comparator.IN,
    exp.NEQ: Comparator.NOT_IN,
    exp.LT: Comparator.LESS,
    exp.LTE: Comparator.LESS_OR_EQUAL,
    exp.GT: Comparator.GREATER,
    exp.GTE: Comparator.GREATER_OR_EQUAL,
}
_MIRRORED = {
    Comparator.IN: Comparator.IN,
    Comparator.NOT_IN: Comparator.NOT_IN,
    Comparator.LESS: Comparator.GREATER,
    Comparator.LESS_OR_EQUAL: Comparator.GREATER_OR_EQUAL,
    Comparator.GREATER: Comparator.LESS,
    Comparator.GREATER_OR_EQUAL: Comparator.LESS_OR_EQUAL,
}
_LISTS = (Comparator.IN, Comparator.NOT_IN, Comparator.CONTAINS)
"""The comparators that can have several constants."""


@dataclass(frozen=True)
class Comparison:
    """A comparison that is never true for NULL.

    Attributes:
        column: The column's name, in lower case.
        comparator: How the column is compared.
        values: The constants, as SQL text; several only for IN, NOT IN and CONTAINS.
    """

    column: str
    comparator: Comparator
    values: tuple[str, ...]

    def __str__(self) -> str:
        """The comparison as SQL; `CONTAINS`, which SQL does not have, is written in the same way."""
        if self.comparator not in _LISTS:
            return f"{self.column} {self.comparator} {self.values[0]}"
        return f"{self.column} {self.comparator} ({', '.join(self.values)})"


@dataclass(frozen=True, eq=False)
class ColumnComparison:
    """A comparison, and the node of the column that it compares."""

    node: exp.Column
    comparison: Comparison


def comparisons(statement: Statement, condition: exp.Expr) -> Iterator[ColumnComparison]:
    """Comparisons that are true for every row for which the condition is true."""
    for operand in _operands(condition, exp.And):
        if isinstance(operand, exp.Or):
            comparison = _alternatives(statement, operand)
        elif isinstance(operand, exp.Between):
            yield from _between(statement, operand)
            continue
        else:
            comparison = _comparison(statement, operand)
        if comparison is not None:
            yield comparison


def _operands(condition: exp.Expr, connector: type[exp.Connector]) -> Iterator[exp.Expr]:
    """The operands of nested ANDs or ORs, in order; without recursion, because a query may have thousands of them."""
    remaining = [condition]
    while remaining:
        node = remaining.pop()
        if isinstance(node, exp.Paren):
            remaining.append(node.this)
        elif isinstance(node, connector):
            remaining += [node.right, node.left]
        else:
            yield node


def _alternatives(statement: Statement, condition: exp.Or) -> ColumnComparison | None:
    """`a = 1 OR a IN (2, 3)` as `a IN (1, 2, 3)`, and the same for CONTAINS; None if the operands differ in more."""
    found = [_comparison(statement, operand) for operand in _operands(condition, exp.Or)]
    alternatives = [item for item in found if item is not None]
    if len(alternatives) < len(found):
        return None
    first = alternatives[0]
    if first.comparison.comparator not in (Comparator.IN, Comparator.CONTAINS) or any(
        item.comparison.comparator != first.comparison.comparator or not _is_same(item.node, first.node)
        for item in alternatives
    ):
        return None
    values = tuple(value for item in alternatives for value in item.comparison.values)
    return replace(first, comparison=replace(first.comparison, values=values))


def _is_same(left: exp.Column, right: exp.Column) -> bool:
    return [part.name.lower() for part in left.parts] == [part.name.lower() for part in right.parts]


def _between(statement: Statement, condition: exp.Between) -> Iterator[ColumnComparison]:
    if condition.args.get("symmetric"):
        return
    for comparator, bound in ((Comparator.GREATER_OR_EQUAL, "low"), (Comparator.LESS_OR_EQUAL, "high")):
        comparison = _column_comparison(statement, condition.this, comparator, [condition.args[bound]])
        if comparison is not None:
            yield comparison


def _comparison(statement: Statement, condition: exp.Expr) -> ColumnComparison | None:
    if isinstance(condition, exp.Not) and isinstance(condition.this, exp.In):
        return _membership(statement, condition.this, Comparator.NOT_IN)
    if isinstance(condition, exp.In):
        return _membership(statement, condition, Comparator.IN)
    if isinstance(condition, exp.ArrayContains):
        return _column_comparison(statement, condition.this, Comparator.CONTAINS, [condition.expression])
    comparator = _COMPARATORS.get(type(condition))
    if comparator is None:
        return None
    left, right = condition.this, condition.expression
    if isinstance(_without_parentheses(left), exp.Column):
        return _column_comparison(statement, left, comparator, [right])
    return _column_comparison(statement, right, _MIRRORED[comparator], [left])


def _membership(statement: Statement, condition: exp.In, comparator: Comparator) -> ColumnComparison | None:
    if any(value for name, value in condition.args.items() if name not in ("this", "expressions")):
        return None
    return _column_comparison(statement, condition.this, comparator, condition.expressions)


def _column_comparison(
    statement: Statement, node: exp.Expr, comparator: Comparator, constants: list[exp.Expr]
) -> ColumnComparison | None:
    column = _without_parentheses(node)
    if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier):
        return None
    texts = [constant(statement, expression) for expression in constants]
    values = tuple(text for text in texts if text is not None)
    if not values or len(values) < len(texts):
        return None
    return ColumnComparison(column, Comparison(column.name.lower(), comparator, values))


def _without_parentheses(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node
