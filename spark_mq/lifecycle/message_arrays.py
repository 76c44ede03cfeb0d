"""Arrow columns as NumPy arrays, and back; numbers of rows, and groups that are merged: what tables share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.arrow_array import array_of
from spark_mq.lifecycle.outcomes import Case

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
_MERGED_ROWS = 1 << 20
"""Sums of batches that are kept before they are merged."""
_MOST_NUMBERS = 1 << 62


def integers(column: Column, null: int = -1) -> Int64s:
    """A column of integers; NULL becomes `null`."""
    if column.null_count:
        column = pc.fill_null(column.cast(pa.int64()), null)
    return np.asarray(column).astype(np.int64)


def flags(column: Column) -> Flags:
    """A column of booleans; NULL is False."""
    return np.array(pc.fill_null(column, False), np.bool_)


def _array(column: Column) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def numbers(texts: Column, max_digits: int, absent: int, invalid: int) -> Int64s:
    """Text as decimal integers of at most 18 digits; `absent` stands for NULL, `invalid` for any other text."""
    texts = _array(texts)
    is_number = pc.fill_null(pc.match_substring_regex(texts, rf"^[+-]?[0-9]{{1,{max_digits}}}$"), False)
    values = np.where(flags(pc.is_null(texts)), absent, invalid)
    found = pc.replace_substring_regex(texts.filter(is_number), r"^\+", "").cast(pa.int64())
    values[flags(is_number)] = found.to_numpy(zero_copy_only=False)
    return values


def numbered(*columns: Column) -> Int64s:
    """For each row, the number of its combination of values: combinations are numbered as they first appear."""
    result, count = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        codes = _array(column).dictionary_encode(null_encoding="encode")
        values = max(len(codes.dictionary), 1)
        if count * values >= _MOST_NUMBERS:
            result, count = _dense(result)
        if values > 1:
            result, count = result * values + integers(codes.indices), count * values
    return _dense(result)[0]


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


class Groups:
    """Messages by the number of the group that they are of, -1 for none; numbers of messages ascend in the log."""

    def __init__(self, number: Int64s) -> None:
        self.number = number
        self.count = int(number.max(initial=-1)) + 1

    def members(self, chosen: Flags) -> Int64s:
        """The chosen messages that are of a group, by group, then in the order of the log."""
        messages = np.flatnonzero(chosen & (self.number >= 0))
        return messages[np.argsort(self.number[messages], kind="stable")]

    def first(self, messages: Int64s) -> Int64s:
        """The first of some messages of each group, which are in order; -1 if there is none."""
        first = np.full(self.count, -1, np.int64)
        first[self.number[messages[::-1]]] = messages[::-1]
        return first

    def last(self, messages: Int64s) -> Int64s:
        """The last of some messages of each group, which are in order; -1 if there is none."""
        return self.first(messages[::-1])

    def lists(self, messages: Int64s, values: Int64s) -> pa.Array:
        """For each group the values of its messages, which are in the order of groups."""
        return lists(self.number[messages], values[messages], self.count)


def lists(owners: Int64s, values: Int64s, count: int) -> pa.Array:
    """A list of integers for each of `count` owners; `owners` ascend."""
    ends = np.cumsum(np.bincount(owners, minlength=count))
    offsets = np.concatenate((np.zeros(1, np.int64), ends)).astype(np.int32)
    kind = pa.list_(pa.field("element", pa.int64()))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), type=kind)


def ranks(numbers: Int64s) -> Int64s:
    """For each row, how many rows before it have the same number."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if numbers.size else np.empty(0, np.int64)
    lengths = np.diff(np.r_[starts, numbers.size])
    result = np.empty(numbers.size, np.int64)
    result[order] = np.arange(numbers.size) - np.repeat(starts, lengths)
    return result


def extremes(numbers: Int64s, values: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """The least and the greatest value of each number from 0 to `count` - 1; values are 0 or more.

    Without a value, the least one is the greatest integer, and the greatest one is -1.
    """
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(least, numbers, values)
    np.maximum.at(most, numbers, values)
    return least, most


def positions_of(wanted: Int64s, numbers: Int64s) -> Int64s:
    """For each wanted number, the first row of `numbers` that has it; -1 if none has it."""
    if not numbers.size:
        return np.full(wanted.size, -1, np.int64)
    order = np.argsort(numbers, kind="stable")
    at = np.minimum(np.searchsorted(numbers[order], wanted), numbers.size - 1)
    found = order[at]
    return np.where(numbers[found] == wanted, found, -1).astype(np.int64)


def taken(column: Column, positions: Int64s) -> pa.Array:
    """The values of a column at the positions; NULL at position -1."""
    return _array(column).take(pa.array(positions, mask=positions < 0))


def by_value(column: Column, values: Mapping[str, Any], kind: pa.DataType) -> pa.Array:
    """For each text of a column, the value of a mapping; NULL for NULL, and for a text that the mapping lacks."""
    encoded = pc.dictionary_encode(_array(column))
    of_texts = array_of([values.get(text) for text in encoded.dictionary.to_pylist()], kind)
    return of_texts.take(encoded.indices)


def by_number(numbers: Int64s, values: Mapping[int, int], absent: int) -> Int64s:
    """For each number, the value of a mapping; `absent` for a number that the mapping lacks."""
    found = pc.index_in(pa.array(numbers), pa.array(list(values), pa.int64()))
    return integers(pa.array(list(values.values()), pa.int64()).take(found), absent)


def first_cases(cases: Sequence[Case]) -> tuple[pa.Array, pa.Array]:
    """State and reason of each row, by the first case that is true for it; one of them must be."""
    case = np.argmax(np.stack(np.broadcast_arrays(*(condition for condition, _, _ in cases))), axis=0)
    states = pa.array([state for _, state, _ in cases]).take(pa.array(case))
    texts = [reason if isinstance(reason, str) else None for _, _, reason in cases]
    reasons = pa.array(texts, pa.string()).take(pa.array(case))
    for number, (_, _, reason) in enumerate(cases):
        if isinstance(reason, pa.Array) and (case == number).any():
            reasons = pc.if_else(pa.array(case == number), reason, reasons)
    return states, reasons


class MergedGroups:
    """Groups of rows by some columns: the number of rows, sums, and the least and the greatest value of a column."""

    def __init__(self, by: Sequence[str], summed: Sequence[str] = (), ranged: Sequence[str] = ()) -> None:
        self._by = list(by)
        self._summed = [*summed, "count"]
        self._ranged = list(ranged)
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._merged = 0

    def add(self, rows: pa.Table) -> None:
        """Count rows, which have all columns of the groups."""
        rows = rows.append_column("count", pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
        for name in self._ranged:
            rows = rows.append_column(f"{name}_min", rows[name]).append_column(f"{name}_max", rows[name])
        part = self._group(rows)
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows > max(_MERGED_ROWS, 2 * self._merged):
            merged = self._group(pa.concat_tables(self._parts))
            self._parts, self._rows, self._merged = [merged], merged.num_rows, merged.num_rows

    def result(self) -> pa.Table | None:
        """The groups: columns `by`, `summed`, `count`, and two for each of `ranged`; None if no row was counted."""
        return self._group(pa.concat_tables(self._parts)) if self._parts else None

    def _group(self, rows: pa.Table) -> pa.Table:
        sums = [(name, "sum") for name in self._summed]
        sums += [(f"{name}_{end}", end) for name in self._ranged for end in ("min", "max")]
        grouped = rows.group_by(self._by, use_threads=False).aggregate(sums)
        names = {f"{name}_{function}": name for name, function in sums}
        return grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
