"""Comparisons of a column with constants that are true for every row that passes a condition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from spark_mq.query.constants import constant
from spark_mq.query.statement import Statement
from spark_mq.source.condition import Operator

_OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: Operator.IN,
    exp.LT: Operator.LESS,
    exp.LTE: Operator.LESS_OR_EQUAL,
    exp.GT: Operator.GREATER,
    exp.GTE: Operator.GREATER_OR_EQUAL,
}
_MIRRORED = {
    Operator.IN: Operator.IN,
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
}


@dataclass(frozen=True)
class Comparison:
    """A comparison that is never true for NULL.

    Attributes:
        column: The column's name, in lower case.
        operator: How the column is compared.
        values: The constants, as SQL text; several only for IN.
    """

    column: str
    operator: Operator
    values: tuple[str, ...]

    def __str__(self) -> str:
        """The comparison as SQL."""
        if self.operator != Operator.IN:
            return f"{self.column} {self.operator} {self.values[0]}"
        return f"{self.column} IN ({', '.join(self.values)})"


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
    """`a = 1 OR a IN (2, 3)` as `a IN (1, 2, 3)`; None if an operand is not such a comparison of the same column."""
    alternatives = [_comparison(statement, operand) for operand in _operands(condition, exp.Or)]
    equalities = [item for item in alternatives if item is not None and item.comparison.operator == Operator.IN]
    if len(equalities) < len(alternatives) or any(not _is_same(item.node, equalities[0].node) for item in equalities):
        return None
    values = tuple(value for item in equalities for value in item.comparison.values)
    return replace(equalities[0], comparison=replace(equalities[0].comparison, values=values))


def _is_same(left: exp.Column, right: exp.Column) -> bool:
    return [part.name.lower() for part in left.parts] == [part.name.lower() for part in right.parts]


def _between(statement: Statement, condition: exp.Between) -> Iterator[ColumnComparison]:
    if condition.args.get("symmetric"):
        return
    for operator, bound in ((Operator.GREATER_OR_EQUAL, "low"), (Operator.LESS_OR_EQUAL, "high")):
        comparison = _column_comparison(statement, condition.this, operator, [condition.args[bound]])
        if comparison is not None:
            yield comparison


def _comparison(statement: Statement, condition: exp.Expr) -> ColumnComparison | None:
    if isinstance(condition, exp.In):
        if any(value for name, value in condition.args.items() if name not in ("this", "expressions")):
            return None
        return _column_comparison(statement, condition.this, Operator.IN, condition.expressions)
    operator = _OPERATORS.get(type(condition))
    if operator is None:
        return None
    left, right = condition.this, condition.expression
    if isinstance(_without_parentheses(left), exp.Column):
        return _column_comparison(statement, left, operator, [right])
    return _column_comparison(statement, right, _MIRRORED[operator], [left])


def _column_comparison(
    statement: Statement, node: exp.Expr, operator: Operator, constants: list[exp.Expr]
) -> ColumnComparison | None:
    column = _without_parentheses(node)
    if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier):
        return None
    texts = [constant(statement, expression) for expression in constants]
    values = tuple(text for text in texts if text is not None)
    if not values or len(values) < len(texts):
        return None
    return ColumnComparison(column, Comparison(column.name.lower(), operator, values))


def _without_parentheses(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node
