"""The properties of many messages in Arrow: answers are NumPy arrays with a number of `truth` for each message.

Numbers that are written plainly are read by Arrow. All others are read as Java reads them, each distinct text once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.filters.conditions import answers, compares
from spark_mq.filters.expression import Constant, Expression, Kind, Search
from spark_mq.filters.java_number import INT_RANGE, LONG_RANGE, parse_double, parse_integer
from spark_mq.filters.truth import ERROR, FALSE, NULL, TRUE, Table1, Table2, Truth
from spark_mq.format.array_types import Flags, Int64s

if TYPE_CHECKING:
    from spark_mq.format.kernels.columns import MessageColumns

Codes = npt.NDArray[np.uint8]

_PLAIN_INTEGER = r"\A-?[0-9]{1,18}\z"
_PLAIN_DOUBLE = r"\A-?[0-9]{1,15}(\.[0-9]{1,15})?\z"
_FIND = {Search.CONTAINS: pc.match_substring, Search.STARTSWITH: pc.starts_with, Search.ENDSWITH: pc.ends_with}
_UNREADABLE = 2


def matching_mask(condition: Expression, messages: ArrayMessages) -> Flags:
    """Which messages match a parsed expression."""
    found: Flags = answers(condition, messages) == TRUE
    return found


def of_maps(properties: pa.MapArray) -> ArrayMessages:
    """The messages with these properties, map<string, string>; null has no property."""
    return ArrayMessages(len(properties), lambda name: pc.map_lookup(properties, name, "last").cast(pa.string()))


def of_columns(messages: MessageColumns) -> ArrayMessages:
    """The properties of records, for a filter that names properties in ASCII only, as each parsed one does."""
    return ArrayMessages(messages.frames.size, lambda name: messages.property_text(name.encode("ascii")))


class ArrayMessages:
    """Messages in Arrow, as `conditions.Messages`."""

    def __init__(self, size: int, find: Callable[[str], pa.StringArray]) -> None:
        """`find` returns the text of a property for each of the `size` messages; null without it."""
        self._size = size
        self._find = find
        self._found: dict[str, pa.StringArray] = {}

    def constant(self, value: Truth) -> Codes:
        return np.full(self._size, value, np.uint8)

    def lookup(self, table: Table1, answers: Codes) -> Codes:
        found: Codes = np.array(table, np.uint8)[answers]
        return found

    def lookup_two(self, table: Table2, left: Codes, right: Codes) -> Codes:
        found: Codes = np.array(table, np.uint8)[4 * left + right]
        return found

    def is_present(self, name: str) -> Codes:
        return np.where(self._is_missing(name), np.uint8(NULL), np.uint8(TRUE))

    def is_one_of(self, name: str, values: tuple[str, ...]) -> Codes:
        return self._known(name, pc.is_in(self._text(name), value_set=pa.array(values, pa.string())))

    def contains(self, name: str, search: Search, text: str) -> Codes:
        return self._known(name, _FIND[search](self._text(name), text))

    def as_boolean(self, name: str) -> Codes:
        return self._known(name, pc.equal(pc.ascii_lower(self._text(name)), "true"))

    def compare_number(self, name: str, operator: str, constant: Constant) -> Codes:
        if constant.kind == Kind.DOUBLE:
            order = _orders(*_doubles(self._text(name)), float(constant.value or 0))
        else:
            order = _orders(*_integers(self._text(name), constant.kind), int(constant.value or 0))
        return np.where(self._is_missing(name), np.uint8(NULL), _codes(order, operator))

    def equal_texts(self, left: str, right: str) -> Codes:
        lacks_left, lacks_right = self._is_missing(left), self._is_missing(right)
        equal = _booleans(pc.equal(self._text(left), self._text(right)))
        result = np.where(equal | (lacks_left & lacks_right), np.uint8(TRUE), np.uint8(FALSE))
        result[lacks_left & ~lacks_right] = NULL
        return result

    def compare_texts(self, left: str, operator: str, right: str) -> Codes:
        (one, is_one), (other, is_other) = _doubles(self._text(left)), _doubles(self._text(right))
        a, b = _double_keys(one), _double_keys(other)
        order = (a > b).astype(np.int8) - (a < b).astype(np.int8)
        order[~(is_one & is_other)] = _UNREADABLE
        missing = self._is_missing(left) | self._is_missing(right)
        return np.where(missing, np.uint8(NULL), _codes(order, operator))

    def _known(self, name: str, found: Any) -> Codes:
        return np.where(self._is_missing(name), np.uint8(NULL), _booleans(found).astype(np.uint8))

    def _is_missing(self, name: str) -> Flags:
        return np.asarray(self._text(name).is_null().to_numpy(zero_copy_only=False))

    def _text(self, name: str) -> pa.StringArray:
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]


def _booleans(array: Any) -> Flags:
    return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False))


def _codes(order: npt.NDArray[np.int8], operator: str) -> Codes:
    """The answers for orders -1, 0 and 1; ERROR for `_UNREADABLE`."""
    table = [compares(operator, value) for value in (-1, 0, 1)]
    return np.array([*table, ERROR], np.uint8)[order + 1]


def _orders(numbers: npt.NDArray[Any], is_number: Flags, constant: float) -> npt.NDArray[np.int8]:
    """The order of each number and a constant; NaN is larger than all others."""
    order = ((numbers > constant) | np.isnan(numbers)).astype(np.int8) - (numbers < constant).astype(np.int8)
    order[~is_number] = _UNREADABLE
    return np.asarray(order, np.int8)


def _integers(texts: pa.StringArray, kind: Kind) -> tuple[Int64s, Flags]:
    bounds = INT_RANGE if kind == Kind.INTEGER else LONG_RANGE
    numbers, is_number = _numbers(texts, _PLAIN_INTEGER, pa.int64(), lambda text: parse_integer(text, bounds))
    return numbers, is_number & (numbers >= bounds[0]) & (numbers <= bounds[1])


def _doubles(texts: pa.StringArray) -> tuple[npt.NDArray[np.float64], Flags]:
    return _numbers(texts, _PLAIN_DOUBLE, pa.float64(), parse_double)


def _numbers(texts: pa.StringArray, plain: str, data_type: pa.DataType, parse: Any) -> tuple[npt.NDArray[Any], Flags]:
    """The numbers, and which texts have one."""
    is_plain = pc.match_substring_regex(texts, plain)
    numbers = pc.if_else(is_plain, texts, "0").cast(data_type)
    result = numbers.fill_null(0).to_numpy(zero_copy_only=False).copy()
    is_number = _booleans(is_plain)
    others = np.flatnonzero(~is_number & ~np.asarray(texts.is_null().to_numpy(zero_copy_only=False)))
    if others.size:
        encoded = texts.take(pa.array(others)).dictionary_encode()
        parsed = [parse(text) for text in encoded.dictionary.to_pylist()]
        codes = encoded.indices.to_numpy()
        result[others] = np.array([0 if value is None else value for value in parsed], result.dtype)[codes]
        is_number[others] = np.array([value is not None for value in parsed])[codes]
    return result, is_number


def _double_keys(numbers: npt.NDArray[np.float64]) -> Int64s:
    """Integers in the order of `Double.compareTo`: -0.0 is less than 0.0, and NaN is the largest."""
    canonical = np.where(np.isnan(numbers), np.nan, numbers)
    bits = np.abs(canonical).view(np.int64)
    return np.where(np.signbit(numbers) & ~np.isnan(numbers), -bits - 1, bits)
