"""The constants of comparisons, evaluated without Spark: for `spark-mq sql --explain`.

Only what is certain has a value: plain literals, integers and their arithmetic, times, and times plus or minus an
interval. Times without a zone are those of the session's time zone, and text is compared as an instant with an instant,
as Spark does unless `spark.sql.ansi.enabled` is changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from spark_mq.format.timestamp import epoch_micros
from spark_mq.query.conditions import TIMESTAMP, Constant, Constants, TypedComparison, constants_of

_INT_BITS, _BIGINT_BITS = 31, 63
_CLOCK = r"(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?(Z|[+-]\d\d:\d\d)?)?"
_TIME = re.compile(rf"\s*(\d{{4}})(?:-(\d{{1,2}})(?:-(\d{{1,2}}){_CLOCK})?)?\s*")
_UNITS = {"DAY": "days", "HOUR": "hours", "MINUTE": "minutes", "SECOND": "seconds", "WEEK": "weeks"}
_CALENDAR_UNITS = ("days", "weeks")
_INSTANT_TYPES = frozenset((TIMESTAMP, "date", "string"))
_TIME_TYPES = {
    exp.DataType.Type.DATE: "date",
    exp.DataType.Type.TIMESTAMPTZ: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPLTZ: TIMESTAMP,
}
_NUMBER = re.compile(r"\(?(-?\d{1,19})L?\)?")


def evaluate(comparisons: Sequence[TypedComparison], zone: tzinfo | None) -> Constants:
    """The values of those constants of comparisons that need no Spark."""
    values = {}
    for text, is_instant in constants_of(comparisons):
        constant = _instant(text, zone) if is_instant else _plain(text)
        if constant is not None:
            values[text, is_instant] = constant
    return Constants(values, _INSTANT_TYPES)


def _plain(text: str) -> Constant | None:
    number = _NUMBER.fullmatch(text)
    if number is not None:
        value = int(number[1])
        fits = -(1 << _INT_BITS) <= value < 1 << _INT_BITS and "L" not in text
        return Constant("int" if fits else "bigint", value) if abs(value) < 1 << _BIGINT_BITS else None
    tree = _parsed(text)
    if isinstance(tree, exp.Literal) and tree.is_string and "\\" not in text:
        return Constant("string", text[1:-1])
    value_of = None if tree is None else _integer(tree)
    if value_of is None or not -(1 << _INT_BITS) <= value_of < 1 << _INT_BITS:
        return None
    return Constant("int", value_of)


def _integer(node: exp.Expr) -> int | None:
    """The value of arithmetic with integers that no intermediate result can make overflow."""
    if isinstance(node, exp.Paren):
        return _integer(node.this)
    if isinstance(node, exp.Literal):
        return int(node.name) if not node.is_string and node.name.isdigit() and len(node.name) < 10 else None
    if isinstance(node, exp.Neg):
        value = _integer(node.this)
        return None if value is None else -value
    if not isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return None
    left, right = _integer(node.left), _integer(node.right)
    if left is None or right is None:
        return None
    result = left + right if isinstance(node, exp.Add) else left - right if isinstance(node, exp.Sub) else left * right
    return result if abs(result) < 1 << _INT_BITS else None


def _instant(text: str, zone: tzinfo | None) -> Constant | None:
    tree = _parsed(text)
    moment = None if tree is None else _moment(tree, zone)
    if tree is None or moment is None:
        return None
    micros = epoch_micros(moment.astimezone(UTC))
    if isinstance(tree, exp.Literal):
        return Constant("string", tree.name, micros)
    data_type = _TIME_TYPES.get(tree.to.this, TIMESTAMP) if isinstance(tree, exp.Cast) else TIMESTAMP
    return Constant(data_type, "", micros)


def _moment(node: exp.Expr, zone: tzinfo | None) -> datetime | None:
    if isinstance(node, exp.Paren):
        return _moment(node.this, zone)
    if isinstance(node, exp.Literal):
        return _parsed_time(node.name, zone) if node.is_string else None
    if isinstance(node, exp.Cast):
        is_time = node.to.this in _TIME_TYPES and isinstance(node.this, exp.Literal) and node.this.is_string
        moment = _parsed_time(node.this.name, zone) if is_time else None
        if moment is None or node.to.this != exp.DataType.Type.DATE:
            return moment
        return _parsed_time(re.split("[ T]", node.this.name.strip())[0], zone)  # the clock and its zone do not count
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.right, exp.Interval):
        moment = _moment(node.left, zone)
        return None if moment is None else _shifted(moment, node.right, -1 if isinstance(node, exp.Sub) else 1, zone)
    return None


def _shifted(moment: datetime, interval: exp.Interval, sign: int, zone: tzinfo | None) -> datetime | None:
    """The moment plus an interval: days are those of the calendar, which a clock change makes longer or shorter."""
    unit = interval.args.get("unit")
    name = _UNITS.get(unit.name.upper().removesuffix("S")) if isinstance(unit, exp.Var) else None
    if name is None or not interval.this.name.isdigit():
        return None
    try:
        amount = sign * timedelta(**{name: int(interval.this.name)})
        if name in _CALENDAR_UNITS:
            return _in_zone(moment.astimezone(zone).replace(tzinfo=None) + amount, zone)
        return moment.astimezone(UTC) + amount
    except (OverflowError, ValueError):
        return None


def _parsed_time(text: str, zone: tzinfo | None) -> datetime | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day = (int(field or 1) for field in match.groups()[:3])
    hour, minute, second = (int(field or 0) for field in match.groups()[3:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, int((match[7] or "").ljust(6, "0")))
        if match[8] is None:
            return _in_zone(moment, zone)
        return datetime.fromisoformat(moment.isoformat() + ("+00:00" if match[8] == "Z" else match[8]))
    except (ValueError, OverflowError):
        return None


def _in_zone(moment: datetime, zone: tzinfo | None) -> datetime:
    """A time of the zone's clock. A time that the clock skips, or shows twice, is taken as Java takes it."""
    return moment.astimezone(UTC) if zone is None else moment.replace(tzinfo=zone).astimezone(UTC)


def _parsed(text: str) -> exp.Expr | None:
    try:
        (tree,) = Spark().parse(f"SELECT {text}")
    except SqlglotError:
        return None
    return tree.expressions[0] if isinstance(tree, exp.Select) and len(tree.expressions) == 1 else None
