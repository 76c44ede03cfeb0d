"""Comparisons of a column with constants that are true for every row that passes a condition.

A constant has the same value whenever it is evaluated: a literal, a cast of a literal, an interval, arithmetic, a named
parameter. Literals are copied from the query's text, so that Spark interprets their escapes. Functions are not
constants here: the values of some depend on the time, and the parser has names for functions that Spark does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from sqlglot import exp

from spark_mq.query.statement import Statement
from spark_mq.store.config.named_stores import STORE_COLUMNS

_DIGITS = re.compile(r"\d+")
_LITERAL_SUFFIX = "LSYlsy"
_QUOTED = re.compile(r"'.*'|\".*\"", re.DOTALL)
_TIME_TYPE_BEFORE = re.compile(r"\b(?:TIMESTAMP(?:_LTZ|_NTZ)?|DATE)\s*$", re.IGNORECASE)
_QUOTED_DIGIT = re.compile(r"['\"]\s*\d")
"""The start of a quoted time that does not depend on when it is evaluated, as `now` and `today` do."""
_TYPES = {
    exp.DataType.Type.TINYINT: "TINYINT",
    exp.DataType.Type.SMALLINT: "SMALLINT",
    exp.DataType.Type.INT: "INT",
    exp.DataType.Type.BIGINT: "BIGINT",
    exp.DataType.Type.TEXT: "STRING",
    exp.DataType.Type.DATE: "DATE",
    exp.DataType.Type.TIMESTAMPTZ: "TIMESTAMP",
    exp.DataType.Type.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
    exp.DataType.Type.TIMESTAMPNTZ: "TIMESTAMP_NTZ",
}
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
_UNITS = frozenset(("WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"))
_OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def constant(statement: Statement, node: exp.Expr) -> str | None:
    """The SQL text of a constant; None if the node is not certainly a constant."""
    if isinstance(node, exp.Literal):
        text = statement.source(node)
        return text if text is not None and (_QUOTED if node.is_string else _DIGITS).fullmatch(text) else None
    if isinstance(node, exp.Placeholder):
        return f":{node.this}" if isinstance(node.this, str) and node.this else None
    if isinstance(node, exp.Paren | exp.Neg):
        text = constant(statement, node.this)
        return None if text is None else f"({text})" if isinstance(node, exp.Paren) else f"(-{text})"
    if isinstance(node, exp.Cast):
        return _cast(statement, node)
    if isinstance(node, exp.Interval):
        return _interval(node)
    if isinstance(node, exp.Binary) and type(node) in _OPERATORS:
        left, right = constant(statement, node.left), constant(statement, node.right)
        return None if left is None or right is None else f"({left} {_OPERATORS[type(node)]} {right})"
    return None


def _cast(statement: Statement, node: exp.Cast) -> str | None:
    """The text of a typed literal such as `TIMESTAMP '...'`, of a `CAST` of a literal, or of a number with a suffix."""
    span = statement.span(node.this)
    type_name = None if node.to.expressions else _TYPES.get(node.to.this)
    if span is None or type_name is None or not isinstance(node.this, exp.Literal):
        return None
    literal = statement.text[slice(*span)]
    if type_name in _TIMES and not _QUOTED_DIGIT.match(literal):
        return None
    if not isinstance(node, exp.TryCast):
        before = _TIME_TYPE_BEFORE.search(statement.text, 0, span[0])
        return None if before is None else statement.text[before.start() : span[1]]
    if not node.this.is_string and literal[-1] in _LITERAL_SUFFIX:
        return literal if _DIGITS.fullmatch(literal[:-1]) else None
    text = constant(statement, node.this)
    return None if text is None else f"try_cast({text} AS {type_name})"


def _interval(node: exp.Interval) -> str | None:
    """The text of an interval of a whole number of one unit; None for any other interval."""
    unit = node.args.get("unit")
    if not isinstance(unit, exp.Var) or not isinstance(node.this, exp.Literal):
        return None
    name = unit.name.upper().removesuffix("S")
    return f"INTERVAL '{node.this.name}' {name}" if name in _UNITS and _DIGITS.fullmatch(node.this.name) else None


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
_MIRROR = str.maketrans("<>", "><")
"""Of a comparison whose sides change places."""
_LISTS = (Comparator.IN, Comparator.NOT_IN, Comparator.CONTAINS)
"""The comparators that can have several constants."""


@dataclass(frozen=True)
class Comparison:
    """A comparison that is never true for NULL."""

    column: str
    comparator: Comparator
    values: tuple[str, ...]

    def __str__(self) -> str:
        """The comparison as SQL; `CONTAINS`, which SQL does not have, is written in the same way."""
        if self.comparator not in _LISTS:
            return f"{self.column} {self.comparator} {self.values[0]}"
        return f"{self.column} {self.comparator} ({', '.join(self.values)})"


ColumnComparison = tuple[exp.Column, Comparison]
"""A comparison, after the node of the column that it compares."""


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
    kinds = {
        (comparison.comparator, tuple(part.name.lower() for part in node.parts)) for node, comparison in alternatives
    }
    node, first = alternatives[0]
    if len(kinds) > 1 or first.comparator not in (Comparator.IN, Comparator.CONTAINS):
        return None
    return node, replace(first, values=tuple(value for _, item in alternatives for value in item.values))


def _between(statement: Statement, condition: exp.Between) -> Iterator[ColumnComparison]:
    if condition.args.get("symmetric"):
        return
    for comparator, bound in ((Comparator.GREATER_OR_EQUAL, "low"), (Comparator.LESS_OR_EQUAL, "high")):
        comparison = _column_comparison(statement, condition.this, comparator, [condition.args[bound]])
        if comparison is not None:
            yield comparison


def _comparison(statement: Statement, condition: exp.Expr) -> ColumnComparison | None:
    comparator = _COMPARATORS.get(type(condition))
    if isinstance(condition, exp.Not) and isinstance(condition.this, exp.In):
        condition, comparator = condition.this, Comparator.NOT_IN
    if isinstance(condition, exp.In):
        is_list = not any(value for name, value in condition.args.items() if name not in ("this", "expressions"))
        comparator = comparator or Comparator.IN
        return _column_comparison(statement, condition.this, comparator, condition.expressions) if is_list else None
    if isinstance(condition, exp.ArrayContains):
        return _column_comparison(statement, condition.this, Comparator.CONTAINS, [condition.expression])
    if comparator is None:
        return None
    left, right = condition.this, condition.expression
    if isinstance(_without_parentheses(left), exp.Column):
        return _column_comparison(statement, left, comparator, [right])
    return _column_comparison(statement, right, Comparator(comparator.translate(_MIRROR)), [left])


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
    return column, Comparison(column.name.lower(), comparator, values)


def _without_parentheses(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


@dataclass(frozen=True)
class TableColumns:
    """Column names of one table.

    Attributes:
        default: The columns of a read without a schema, in order.
        extra: The columns that are read only if a schema names them.
        pushable: The columns on which a comparison can be pushed down into a read; of NOT IN and CONTAINS only those
            that the next two attributes name.
        enumerated: The columns that have few values, all of which are known, so that NOT IN is an IN.
        searchable: The columns that are arrays, and whose elements a read can look up.
        takes_conditions: Whether any condition on a pushable column can be given to a read, not only one value.
    """

    default: tuple[str, ...]
    extra: tuple[str, ...] = ()
    pushable: frozenset[str] = frozenset()
    enumerated: frozenset[str] = frozenset()
    searchable: frozenset[str] = frozenset()
    takes_conditions: bool = False

    def of_several(self) -> Self:
        """The columns of the table of several stores: those that name the store are the first ones."""
        extra = tuple(name for name in self.extra if name not in STORE_COLUMNS)
        pushable = self.pushable | frozenset(STORE_COLUMNS) if self.takes_conditions else self.pushable
        return replace(self, default=(*STORE_COLUMNS, *self.default), extra=extra, pushable=pushable)

    def of_history(self) -> Self:
        """The columns of `history`, which has those that an archive and a store both have."""
        return replace(self.of_several(), extra=())

    @property
    def all(self) -> frozenset[str]:
        """The names of all columns."""
        return frozenset((*self.default, *self.extra))

    def can_push(self, comparison: Comparison) -> bool:
        """Whether a read of the table can apply the comparison."""
        if comparison.comparator == Comparator.NOT_IN:
            return comparison.column in self.enumerated
        if comparison.comparator == Comparator.CONTAINS:
            return comparison.column in self.searchable
        return comparison.column in self.pushable
