"""Arrow arrays and tables from a few Python values, or of timestamps, without importing pandas.

If pandas is installed, `pyarrow.array` of a list imports pandas, only to check whether the list is a pandas object.
That import takes longer than all other work of a command like `query-by-id`. Only the types that the tables have are
supported.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS, MIN_TIMESTAMP_MILLIS, TIMESTAMP


def timestamps(millis: Int64s, is_known: Flags | None = None) -> pa.Array:
    """Milliseconds since the epoch as TIMESTAMP; NULL if not known, and outside years 1 to 9999."""
    is_null = (millis < MIN_TIMESTAMP_MILLIS) | (millis > MAX_TIMESTAMP_MILLIS)
    if is_known is not None:
        is_null |= ~is_known
    if not is_null.any():
        return pa.Array.from_buffers(TIMESTAMP, millis.size, [None, pa.py_buffer(millis * 1000)])
    return pa.array(np.where(is_null, 0, millis) * 1000, mask=is_null).cast(TIMESTAMP)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as an array of type `kind`.

    Args:
        values: Python values; None is NULL. A timestamp is an integer of the type's unit, a map is a mapping or a
            sequence of pairs.
        kind: INT32, INT64, TIMESTAMP, BOOL, STRING or BINARY; or a LIST or MAP of these types.

    Raises:
        TypeError: `kind` is another type.
        struct.error: A number does not fit the type.
    """
    build = _BUILDERS.get(kind.id)
    if build is None:
        raise TypeError(f"arrays of type {kind} are not supported")
    validity = _bits([value is not None for value in values]) if None in values else None
    return build(values, kind, validity)


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The rows as a table of `schema`. A row is values by column name; a column that a row lacks is NULL."""
    return pa.Table.from_arrays(
        [array_of([row.get(field.name) for row in rows], field.type) for field in schema], schema=schema
    )


def _integers(values: Sequence[Any], kind: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    letter = "i" if kind.bit_width == 32 else "q"
    data = struct.pack(f"<{len(values)}{letter}", *(0 if value is None else value for value in values))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(data)])


def _boolean(values: Sequence[Any], kind: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [validity, _bits(values)])


def _variable_size(values: Sequence[Any], kind: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    pieces = [value.encode("utf-8") if isinstance(value, str) else value or b"" for value in values]
    offsets = _offsets([len(piece) for piece in pieces])
    return pa.Array.from_buffers(kind, len(values), [validity, offsets, pa.py_buffer(b"".join(pieces))])


def _list(values: Sequence[Any], kind: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    offsets = _offsets([0 if value is None else len(value) for value in values])
    child = array_of([item for value in values for item in value or ()], kind.value_type)
    return pa.Array.from_buffers(kind, len(values), [validity, offsets], children=[child])


def _map(values: Sequence[Any], kind: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    pairs = [list(value.items()) if isinstance(value, Mapping) else value or [] for value in values]
    keys = array_of([key for group in pairs for key, _ in group], kind.key_type)
    items = array_of([item for group in pairs for _, item in group], kind.item_type)
    entries_type = pa.struct([kind.key_field, kind.item_field])
    entries = pa.Array.from_buffers(entries_type, len(keys), [None], children=[keys, items])
    offsets = _offsets([len(group) for group in pairs])
    return pa.Array.from_buffers(kind, len(values), [validity, offsets], children=[entries])


def _offsets(lengths: Sequence[int]) -> pa.Buffer:
    return pa.py_buffer(struct.pack(f"<{len(lengths) + 1}i", 0, *accumulate(lengths)))


def _bits(flags: Sequence[Any]) -> pa.Buffer:
    number = sum(1 << index for index, flag in enumerate(flags) if flag)
    return pa.py_buffer(number.to_bytes(max((len(flags) + 7) // 8, 1), "little"))


_BUILDERS: dict[int, Callable[[Sequence[Any], pa.DataType, pa.Buffer | None], pa.Array]] = {
    pa.lib.Type_INT32: _integers,
    pa.lib.Type_INT64: _integers,
    pa.lib.Type_TIMESTAMP: _integers,
    pa.lib.Type_BOOL: _boolean,
    pa.lib.Type_STRING: _variable_size,
    pa.lib.Type_BINARY: _variable_size,
    pa.lib.Type_LIST: _list,
    pa.lib.Type_MAP: _map,
}
"""Builders by the type's id: comparing a type with eight others would take longer than building the array."""
