"""The properties of messages in Spark: an expression becomes one native Spark column, without a Python function.

An answer is a number of `truth`, 0 to 3. A table is a 64-bit constant with two bits for each answer, so that each part
of an expression occurs once in the result.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf

from spark_mq.filters.expression import Constant, Kind, Search
from spark_mq.filters.java_number import ASCII_INTEGER, DOUBLE, java_digits
from spark_mq.filters.truth import ERROR, FALSE, NULL, TRUE, Table1, Table2, Truth

_TYPES = {Kind.INTEGER: "int", Kind.LONG: "bigint", Kind.DOUBLE: "double"}


class ColumnMessages:
    """A column of properties, as `conditions.Messages`."""

    def __init__(self, properties: Column) -> None:
        self._properties = properties

    def constant(self, value: Truth) -> Column:
        return sf.lit(int(value))

    def lookup(self, table: Table1, answers: Column) -> Column:
        return _pick(table, answers)

    def lookup_two(self, table: Table2, left: Column, right: Column) -> Column:
        return _pick(table, left * sf.lit(4) + right)

    def is_present(self, name: str) -> Column:
        return _known(self._text(name).isNotNull(), TRUE, NULL)

    def is_one_of(self, name: str, values: tuple[str, ...]) -> Column:
        return _answer(self._text(name).isin(*dict.fromkeys(values)))

    def contains(self, name: str, search: Search, text: str) -> Column:
        column, literal = self._text(name), sf.lit(text)
        if search == Search.CONTAINS:
            return _answer(column.contains(literal))
        return _answer(column.startswith(literal) if search == Search.STARTSWITH else column.endswith(literal))

    def as_boolean(self, name: str) -> Column:
        return _answer(sf.lower(self._text(name)) == sf.lit("true"))

    def compare_number(self, name: str, operator: str, constant: Constant) -> Column:
        text = self._text(name)
        number = _double(text) if constant.kind == Kind.DOUBLE else _integer(text, _TYPES[constant.kind])
        value = sf.lit(constant.value).cast(_TYPES[constant.kind])
        return _answer(_compared(number, operator, value), self._unreadable(name))

    def equal_texts(self, left: str, right: str) -> Column:
        one, other = self._text(left), self._text(right)
        same = sf.when(one.eqNullSafe(other), sf.lit(int(TRUE)))
        return same.otherwise(_known(one.isNull(), NULL, FALSE))

    def compare_texts(self, left: str, operator: str, right: str) -> Column:
        one, other = _double(self._text(left)), _double(self._text(right))
        compared = sf.when((one != 0) | (other != 0), _compared(one, operator, other)).otherwise(
            _compared(self._sign(left, one), operator, self._sign(right, other))
        )
        either = self._text(left).isNull() | self._text(right).isNull()
        return _answer(compared, _known(either, NULL, ERROR))

    def _text(self, name: str) -> Column:
        return sf.try_element_at(self._properties, sf.lit(name))

    def _sign(self, name: str, zero: Column) -> Column:
        """The order of 0.0 and -0.0, which Spark takes for equal; NULL for a text without a number."""
        is_negative = self._text(name).rlike(r"\A[\x00-\x20]*-")
        return sf.when(zero.isNotNull(), sf.when(is_negative, sf.lit(-1)).otherwise(sf.lit(0)))

    def _unreadable(self, name: str) -> Column:
        return _known(self._text(name).isNull(), NULL, ERROR)


def _pick(table: tuple[Truth, ...], position: Column) -> Column:
    packed = sum(int(value) << 2 * at for at, value in enumerate(table))
    shifted = sf.call_function("shiftright", sf.lit(packed).cast("bigint"), position * sf.lit(2))
    return shifted.bitwiseAND(sf.lit(3)).cast("int")


def _known(condition: Column, yes: Truth, no: Truth) -> Column:
    return sf.when(condition, sf.lit(int(yes))).otherwise(sf.lit(int(no)))


def _answer(boolean: Column, otherwise: Column | None = None) -> Column:
    """TRUE or FALSE, and another answer for NULL."""
    return sf.coalesce(boolean.cast("int"), sf.lit(int(NULL)) if otherwise is None else otherwise)


def _compared(left: Column, operator: str, right: Column) -> Column:
    if operator == "=":
        return left == right
    if operator in ("<", "<="):
        return left < right if operator == "<" else left <= right
    return left > right if operator == ">" else left >= right


def _integer(text: Column, data_type: str) -> Column:
    """The number that `Integer.valueOf` or `Long.valueOf` reads; NULL if Java refuses the text."""
    digits = "".join(java_digits())
    ascii_text = sf.translate(text, digits, "".join(java_digits().values()))
    return sf.when(text.rlike(rf"\A{ASCII_INTEGER}\z"), text.try_cast(data_type)).when(
        text.rlike(rf"\A[+-]?[0-9{digits}]+\z"), ascii_text.try_cast(data_type)
    )


def _double(text: Column) -> Column:
    """The number that `Double.valueOf` reads; NULL if Java refuses the text.

    Spark's cast calls Java's method, and also reads texts that Java refuses, such as `inf`.
    """
    return sf.when(text.rlike(rf"\A(?:{DOUBLE})\z"), text.try_cast("double"))
