"""Joins and look-ups of Arrow columns by the numbers of their rows (`arrays.numbered`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.arrow_array import array_of


def ranks(numbers: Int64s) -> Int64s:
    """For each row, how many rows before it have the same number."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if numbers.size else np.empty(0, np.int64)
    lengths = np.diff(np.r_[starts, numbers.size])
    result = np.empty(numbers.size, np.int64)
    result[order] = np.arange(numbers.size) - np.repeat(starts, lengths)
    return result


def positions_of(wanted: Int64s, numbers: Int64s) -> Int64s:
    """For each wanted number, the first row of `numbers` that has it; -1 if none has it."""
    if not numbers.size:
        return np.full(wanted.size, -1, np.int64)
    order = np.argsort(numbers, kind="stable")
    at = np.minimum(np.searchsorted(numbers[order], wanted), numbers.size - 1)
    found = order[at]
    return np.where(numbers[found] == wanted, found, -1).astype(np.int64)


def taken(column: pa.Array | pa.ChunkedArray, positions: Int64s) -> pa.Array:
    """The values of a column at the positions; NULL at position -1."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.take(pa.array(positions, mask=positions < 0))


def is_valid(column: pa.Array | pa.ChunkedArray) -> Flags:
    """Which values are not NULL."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def by_value(column: pa.Array | pa.ChunkedArray, values: Mapping[str, Any], kind: pa.DataType) -> pa.Array:
    """For each text of a column, the value of a mapping; NULL for NULL, and for a text that the mapping lacks."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = pc.dictionary_encode(array)
    of_texts = array_of([values.get(text) for text in encoded.dictionary.to_pylist()], kind)
    return of_texts.take(encoded.indices)


def int64s(column: pa.Array | pa.ChunkedArray, null: int = -1) -> Int64s:
    """An integer column as an array; NULL becomes `null`."""
    filled = pc.fill_null(column.cast(pa.int64()), null)
    return (
        np.asarray(filled.to_numpy(), np.int64) if isinstance(filled, pa.ChunkedArray) else np.asarray(filled, np.int64)
    )
