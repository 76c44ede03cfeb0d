"""Arrow columns as NumPy arrays, and back: what the tables of this package share."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int64s

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


def integers(column: Column) -> Int64s:
    """A column of integers without NULL."""
    return np.asarray(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    ).astype(np.int64)


def flags(column: Column) -> Flags:
    """A column of booleans; NULL is False."""
    filled = pc.fill_null(column, False)
    values = filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy()
    return np.array(values, np.bool_)


def numbers(texts: Column, max_digits: int, absent: int, invalid: int) -> Int64s:
    """Text as decimal integers.

    Args:
        texts: The texts, such as values of a property.
        max_digits: The largest number of digits; at most 18.
        absent: The number that stands for NULL.
        invalid: The number that stands for any other text.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    is_number = pc.fill_null(pc.match_substring_regex(texts, rf"^[+-]?[0-9]{{1,{max_digits}}}$"), False)
    values = np.where(flags(pc.is_null(texts)), absent, invalid)
    found = pc.replace_substring_regex(texts.filter(is_number), r"^\+", "").cast(pa.int64())
    values[flags(is_number)] = found.to_numpy(zero_copy_only=False)
    return values


def numbered(*columns: Column) -> Int64s:
    """For each row, the number of its combination of values: combinations are numbered as they first appear."""
    result, count = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        codes = array.dictionary_encode(null_encoding="encode")
        values = max(len(codes.dictionary), 1)
        if count * values >= _MOST_NUMBERS:
            result, count = _dense(result)
        if values > 1:
            result, count = result * values + integers(codes.indices), count * values
    return _dense(result)[0]


_MOST_NUMBERS = 1 << 62


def _dense(numbers: Int64s) -> tuple[Int64s, int]:
    """Numbers from 0 on, as values first appear, and how many there are."""
    codes = pa.array(numbers).dictionary_encode()
    return integers(codes.indices), max(len(codes.dictionary), 1)


def optional(values: Int64s, is_known: Flags, kind: pa.DataType | None = None) -> pa.Array:
    """Integers of the type `kind`, by default BIGINT; NULL if not known, or if a number has more bits."""
    kind = kind or pa.int64()
    limit = 1 << (kind.bit_width - 1)
    fits = is_known & (values >= -limit) & (values <= limit - 1)
    return pa.array(np.where(fits, values, 0), mask=~fits).cast(kind)


def lists(owners: Int64s, values: Int64s, count: int) -> pa.Array:
    """A list of integers for each of `count` owners; `owners` ascend."""
    ends = np.cumsum(np.bincount(owners, minlength=count))
    offsets = np.concatenate((np.zeros(1, np.int64), ends)).astype(np.int32)
    kind = pa.list_(pa.field("element", pa.int64()))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), type=kind)
