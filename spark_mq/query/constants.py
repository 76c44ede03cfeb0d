"""Constants of a query as SQL text of their own, for Spark to evaluate.

Only what is the same whenever it is evaluated: literals, casts of them, intervals, arithmetic, named parameters.
Literals are taken from the text as they are written, so that escapes mean what they mean to Spark. Functions are left
out: some are not the same at two moments, and a parser's names for them are not Spark's.
"""

from __future__ import annotations

import re

from sqlglot import exp

from spark_mq.query.statement import Statement

_DIGITS = re.compile(r"\d+")
_LITERAL_SUFFIX = "LSYlsy"
_QUOTED = re.compile(r"'.*'|\".*\"", re.DOTALL)
_TIME_TYPE_BEFORE = re.compile(r"\b(?:TIMESTAMP(?:_LTZ|_NTZ)?|DATE)\s*$", re.IGNORECASE)
_MOMENT = re.compile(r"['\"]\s*\d")
"""How a text begins that is no word for a moment: `now`, `today` are other moments at other times."""
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
    """The SQL text of a constant; None for what is none, or not surely the same at every moment."""
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
    """`TIMESTAMP '...'` and its like as they are; `CAST(... AS ...)`, and numbers with a suffix."""
    place = statement.place(node.this)
    type_name = None if node.to.expressions else _TYPES.get(node.to.this)
    if place is None or type_name is None or not isinstance(node.this, exp.Literal):
        return None
    written = statement.text[slice(*place)]
    if type_name in _TIMES and not _MOMENT.match(written):
        return None
    if not isinstance(node, exp.TryCast):
        before = _TIME_TYPE_BEFORE.search(statement.text, 0, place[0])
        return None if before is None else statement.text[before.start() : place[1]]
    if not node.this.is_string and written[-1] in _LITERAL_SUFFIX:
        return written if _DIGITS.fullmatch(written[:-1]) else None
    text = _literal(statement, node.this)
    return None if text is None else f"try_cast({text} AS {type_name})"


def _interval(node: exp.Interval) -> str | None:
    """One of a whole number of one unit."""
    unit = node.args.get("unit")
    if not isinstance(unit, exp.Var) or not isinstance(node.this, exp.Literal):
        return None
    name = unit.name.upper().removesuffix("S")
    return f"INTERVAL '{node.this.name}' {name}" if name in _UNITS and _DIGITS.fullmatch(node.this.name) else None
