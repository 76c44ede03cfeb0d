"""The constants of a query as separate SQL text, which Spark evaluates.

A constant has the same value whenever it is evaluated: a literal, a cast of a literal, an interval, arithmetic, a named
parameter. Literals are copied from the query's text, so that Spark interprets their escapes. Functions are not
constants here: the values of some depend on the time, and the parser has names for functions that Spark does not have.
"""

from __future__ import annotations

import re

from sqlglot import exp

from spark_mq.query.statement import Statement

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
        return _literal(statement, node)
    if isinstance(node, exp.Placeholder):
        name = node.this
        return f":{name}" if isinstance(name, str) and name else None
    if isinstance(node, exp.Paren):
        return _within("({})", statement, node.this)
    if isinstance(node, exp.Neg):
        return _within("(-{})", statement, node.this)
    if isinstance(node, exp.Cast):
        return _cast(statement, node)
    if isinstance(node, exp.Interval):
        return _interval(node)
    if isinstance(node, exp.Binary) and type(node) in _OPERATORS:
        left, right = constant(statement, node.left), constant(statement, node.right)
        return None if left is None or right is None else f"({left} {_OPERATORS[type(node)]} {right})"
    return None


def _within(template: str, statement: Statement, node: exp.Expr) -> str | None:
    text = constant(statement, node)
    return None if text is None else template.format(text)


def _literal(statement: Statement, node: exp.Literal) -> str | None:
    text = statement.source(node)
    if text is None or not (_QUOTED if node.is_string else _DIGITS).fullmatch(text):
        return None
    return text


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
    text = _literal(statement, node.this)
    return None if text is None else f"try_cast({text} AS {type_name})"


def _interval(node: exp.Interval) -> str | None:
    """The text of an interval of a whole number of one unit; None for any other interval."""
    unit = node.args.get("unit")
    if not isinstance(unit, exp.Var) or not isinstance(node.this, exp.Literal):
        return None
    name = unit.name.upper().removesuffix("S")
    return f"INTERVAL '{node.this.name}' {name}" if name in _UNITS and _DIGITS.fullmatch(node.this.name) else None
