"""Comparisons of a column with constants that hold for every row that a condition lets through."""

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
    """`column` compared with `values`, which are SQL text; more than one for IN only. Never true where it is NULL."""

    column: str
    operator: Operator
    values: tuple[str, ...]

    def __str__(self) -> str:
        """As SQL."""
        if self.operator != Operator.IN:
            return f"{self.column} {self.operator} {self.values[0]}"
        return f"{self.column} IN ({', '.join(self.values)})"


@dataclass(frozen=True, eq=False)
class ColumnComparison:
    """A comparison, and the column of the tree that it is of."""

    node: exp.Column
    comparison: Comparison


def comparisons(statement: Statement, condition: exp.Expr) -> Iterator[ColumnComparison]:
    """The comparisons of which each holds wherever the condition holds."""
    for part in _parts(condition, exp.And):
        if isinstance(part, exp.Or):
            found = _alternatives(statement, part)
        elif isinstance(part, exp.Between):
            yield from _between(statement, part)
            continue
        else:
            found = _comparison(statement, part)
        if found is not None:
            yield found


def _parts(condition: exp.Expr, connector: type[exp.Connector]) -> Iterator[exp.Expr]:
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
    """`a = 1 OR a IN (2, 3)` as `a IN (1, 2, 3)`."""
    found = [_comparison(statement, part) for part in _parts(condition, exp.Or)]
    known = [one for one in found if one is not None and one.comparison.operator == Operator.IN]
    if len(known) < len(found) or any(not _is_same(one.node, known[0].node) for one in known):
        return None
    values = tuple(value for one in known for value in one.comparison.values)
    return replace(known[0], comparison=replace(known[0].comparison, values=values))


def _is_same(left: exp.Column, right: exp.Column) -> bool:
    return [part.name.lower() for part in left.parts] == [part.name.lower() for part in right.parts]


def _between(statement: Statement, condition: exp.Between) -> Iterator[ColumnComparison]:
    if condition.args.get("symmetric"):
        return
    for operator, bound in ((Operator.GREATER_OR_EQUAL, "low"), (Operator.LESS_OR_EQUAL, "high")):
        found = _of_column(statement, condition.this, operator, [condition.args[bound]])
        if found is not None:
            yield found


def _comparison(statement: Statement, condition: exp.Expr) -> ColumnComparison | None:
    if isinstance(condition, exp.In):
        if any(value for name, value in condition.args.items() if name not in ("this", "expressions")):
            return None
        return _of_column(statement, condition.this, Operator.IN, condition.expressions)
    operator = _OPERATORS.get(type(condition))
    if operator is None:
        return None
    left, right = condition.this, condition.expression
    if isinstance(_bare(left), exp.Column):
        return _of_column(statement, left, operator, [right])
    return _of_column(statement, right, _MIRRORED[operator], [left])


def _of_column(
    statement: Statement, node: exp.Expr, operator: Operator, constants: list[exp.Expr]
) -> ColumnComparison | None:
    column = _bare(node)
    if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier):
        return None
    values = [constant(statement, one) for one in constants]
    texts = tuple(value for value in values if value is not None)
    if not texts or len(texts) < len(values):
        return None
    return ColumnComparison(column, Comparison(column.name.lower(), operator, texts))


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node
