"""Writing the stored properties of many messages, as kernels; `spark_mq.format.properties` has their form.

The result of every function here is `Pieces`: the properties of message i are piece i.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s
from spark_mq.format.kernels.big_endian import copy_bytes
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.kernels.properties import places_of, same_bytes
from spark_mq.format.pieces import OutPieces, Pieces, empty_pieces
from spark_mq.format.properties import (
    CRC_DIGITS,
    CRC_PROPERTY,
    KEYS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_CRC_SIZE,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQUE_KEY,
)

_SPACE = ord(" ")
_TAGS, _KEYS, _UNIQUE_KEY = (np.frombuffer(name, np.uint8) for name in (TAGS, KEYS, UNIQUE_KEY))
_CRC_NAME = np.frombuffer(CRC_PROPERTY, np.uint8)
_CRC = np.frombuffer(
    CRC_PROPERTY + bytes((NAME_VALUE_SEPARATOR,)) + b"0" * CRC_DIGITS + bytes((PROPERTY_SEPARATOR,)), np.uint8
)
"""A property CRC that is not computed yet."""


class PropertyFault(IntEnum):
    """Why the properties of a row cannot be written."""

    NONE = 0
    NAME_SEPARATOR = 1
    """A name contains 0x01 or 0x02."""
    VALUE_SEPARATOR = 2
    """A value contains 0x01 or 0x02."""
    EMPTY_NAME = 3
    KEY_WITH_SPACE = 4
    """A key of a list of keys contains a space, which separates keys."""


_, _NAME_SEPARATOR, _VALUE_SEPARATOR, _EMPTY_NAME, _KEY_WITH_SPACE = map(int, PropertyFault)


class ListedPieces(NamedTuple):
    """A list of pieces for each row: row i has the pieces `starts[i]` to `stops[i]` - 1."""

    starts: Int64s
    stops: Int64s
    pieces: Pieces


class PropertySources(NamedTuple):
    """Where the properties of rows come from.

    Attributes:
        stored: The stored properties of a row. If it has them, nothing else is used.
        values: The values of these names: `pieces[i]` belongs to piece i of `names`.
        keys_are_lists: Whether each key is an element of a list; else a row has one piece, the whole value of KEYS.
    """

    stored: Pieces
    names: ListedPieces
    values: Pieces
    tags: Pieces
    keys: ListedPieces
    keys_are_lists: bool
    unique_keys: Pieces


def write_properties(sources: PropertySources) -> tuple[Pieces, Int32s]:
    """The properties of each row, and the `PropertyFault` of each row.

    Empty values are left out, because a decoder drops them. A property CRC is put at the end, and has to be computed
    again.
    """
    count = sources.stored.size
    parts = (sources.stored, sources.names.pieces, sources.values, sources.tags, sources.keys.pieces)
    separators = 2 * sources.names.pieces.size + sources.keys.pieces.size
    fixed = count * (len(TAGS) + len(KEYS) + len(UNIQUE_KEY) + 3 * 2 + PROPERTY_CRC_SIZE)
    size = sum(part.total() for part in parts) + sources.unique_keys.total() + separators + fixed
    out, faults = empty_pieces(count, size), np.empty(count, np.int32)
    _write_properties(sources, out, faults)
    return Pieces(*out), faults


def put_values(properties: Pieces, name: bytes, values: Pieces) -> Pieces:
    """The properties with these values of a property, NULL for no change.

    A value takes the place of the one that is there; else the property becomes the first one. A name that is repeated
    has the value at its last place.
    """
    if not values.is_given().any():
        return properties
    new, (starts, lengths) = np.frombuffer(name, np.uint8), places_of(properties, name)
    size = properties.total() + values.total() + int(values.is_given().sum()) * (len(name) + 2)
    out = empty_pieces(properties.size, size)
    _put_values(properties, new, starts, lengths, values, out)
    return Pieces(*out)


def with_property_crcs(properties: Pieces) -> Pieces:
    """The properties with a property CRC at the end, which is still zero where there was none.

    As a broker does, it puts a separator before the property CRC if there is none (`MessageExtEncoder.encode`@5.3.3).
    """
    out = empty_pieces(properties.size, properties.total() + properties.size * (PROPERTY_CRC_SIZE + 1))
    _append_property_crcs(properties, out)
    return Pieces(*out)


@kernel
def _has_byte_up_to_two(buffer: Bytes, start: int, length: int) -> bool:
    """Whether a piece has a separator: the loop has no early exit, so the compiler uses vector instructions."""
    found = np.uint8(0)
    for position in range(start, start + length):
        byte = buffer[position]
        found |= np.uint8(byte == np.uint8(NAME_VALUE_SEPARATOR)) | np.uint8(byte == np.uint8(PROPERTY_SEPARATOR))
    return bool(found)


@kernel
def _put(out: OutBytes, at: int, name: Bytes, buffer: Bytes, start: int, length: int) -> int:
    """Write a property at `at`, and return the position after it."""
    copy_bytes(out, at, name, 0, name.size)
    at += name.size
    out[at] = NAME_VALUE_SEPARATOR
    copy_bytes(out, at + 1, buffer, start, length)
    at += 1 + length
    out[at] = PROPERTY_SEPARATOR
    return at + 1


@kernel
def _is_piece(pieces: Pieces, index: int, text: Bytes) -> bool:
    return pieces.lengths[index] == text.size and same_bytes(pieces.buffer, pieces.starts[index], text, 0, text.size)


@kernel
def _put_value(out: OutBytes, at: int, name: Bytes, values: Pieces, index: int, faults: OutInt32s) -> int:
    """Write a property of row `index`, if the row has a value; returns the position after it."""
    start, length = values.starts[index], int(values.lengths[index])
    if length <= 0:
        return at
    if _has_byte_up_to_two(values.buffer, start, length):
        faults[index] = _VALUE_SEPARATOR
    return _put(out, at, name, values.buffer, start, length)


@kernel
def _write_properties(sources: PropertySources, out: OutPieces, faults: OutInt32s) -> None:
    at = 0
    stored, names, values, keys = sources.stored, sources.names.pieces, sources.values, sources.keys.pieces
    for index in range(stored.starts.size):
        out.starts[index] = at
        faults[index] = 0
        if stored.lengths[index] >= 0:
            copy_bytes(out.buffer, at, stored.buffer, stored.starts[index], stored.lengths[index])
            out.lengths[index] = stored.lengths[index]
            at += int(stored.lengths[index])
            continue
        has_tags, has_keys, has_unique_key, has_crc = False, False, False, False
        for entry in range(sources.names.starts[index], sources.names.stops[index]):
            start, length = names.starts[entry], int(names.lengths[entry])
            value_start, value_length = values.starts[entry], int(values.lengths[entry])
            if value_length <= 0:
                continue
            if _is_piece(names, entry, _CRC_NAME):
                has_crc = True
                continue
            has_tags = has_tags or _is_piece(names, entry, _TAGS)
            has_keys = has_keys or _is_piece(names, entry, _KEYS)
            has_unique_key = has_unique_key or _is_piece(names, entry, _UNIQUE_KEY)
            if length <= 0:
                faults[index] = _EMPTY_NAME
                continue
            if _has_byte_up_to_two(names.buffer, start, length):
                faults[index] = _NAME_SEPARATOR
            if _has_byte_up_to_two(values.buffer, value_start, value_length):
                faults[index] = _VALUE_SEPARATOR
            copy_bytes(out.buffer, at, names.buffer, start, length)
            at += length
            out.buffer[at] = NAME_VALUE_SEPARATOR
            copy_bytes(out.buffer, at + 1, values.buffer, value_start, value_length)
            at += 1 + value_length
            out.buffer[at] = PROPERTY_SEPARATOR
            at += 1
        if not has_tags:
            at = _put_value(out.buffer, at, _TAGS, sources.tags, index, faults)
        if not has_keys:
            first = True
            for entry in range(sources.keys.starts[index], sources.keys.stops[index]):
                start, length = keys.starts[entry], int(keys.lengths[entry])
                if length <= 0:
                    continue
                if _has_byte_up_to_two(keys.buffer, start, length):
                    faults[index] = _VALUE_SEPARATOR
                if sources.keys_are_lists:
                    for position in range(start, start + length):
                        if keys.buffer[position] == _SPACE:
                            faults[index] = _KEY_WITH_SPACE
                if first:
                    at = _put(out.buffer, at, _KEYS, keys.buffer, start, length)
                    first = False
                else:
                    out.buffer[at - 1] = _SPACE
                    copy_bytes(out.buffer, at, keys.buffer, start, length)
                    at += length
                    out.buffer[at] = PROPERTY_SEPARATOR
                    at += 1
        if not has_unique_key:
            at = _put_value(out.buffer, at, _UNIQUE_KEY, sources.unique_keys, index, faults)
        if has_crc:
            copy_bytes(out.buffer, at, _CRC, 0, _CRC.size)
            at += _CRC.size
        out.lengths[index] = at - out.starts[index]


@kernel
def _put_values(
    properties: Pieces, name: Bytes, old_starts: Int64s, old_lengths: Int32s, values: Pieces, out: OutPieces
) -> None:
    at = 0
    for index in range(properties.starts.size):
        out.starts[index] = at
        start = properties.starts[index]
        end, size = start + max(int(properties.lengths[index]), 0), int(values.lengths[index])
        if size >= 0 and old_lengths[index] < 0:
            at = _put(out.buffer, at, name, values.buffer, values.starts[index], size)
        elif size >= 0:
            copy_bytes(out.buffer, at, properties.buffer, start, old_starts[index] - start)
            at += old_starts[index] - start
            copy_bytes(out.buffer, at, values.buffer, values.starts[index], size)
            at += size
            start = old_starts[index] + int(old_lengths[index])
        copy_bytes(out.buffer, at, properties.buffer, start, end - start)
        at += end - start
        out.lengths[index] = at - out.starts[index]


@kernel
def _append_property_crcs(properties: Pieces, out: OutPieces) -> None:
    data, at = properties.buffer, 0
    for index in range(properties.starts.size):
        out.starts[index] = at
        start, length = properties.starts[index], max(int(properties.lengths[index]), 0)
        copy_bytes(out.buffer, at, data, start, length)
        name_size = _CRC.size - CRC_DIGITS - 1
        has_crc = (
            length >= _CRC.size
            and same_bytes(data, start + length - _CRC.size, _CRC, 0, name_size)
            and data[start + length - 1] == PROPERTY_SEPARATOR
            and (length == _CRC.size or data[start + length - _CRC.size - 1] == PROPERTY_SEPARATOR)
        )
        if not has_crc:
            if length > 0 and data[start + length - 1] != PROPERTY_SEPARATOR:
                out.buffer[at + length] = PROPERTY_SEPARATOR
                length += 1
            copy_bytes(out.buffer, at + length, _CRC, 0, _CRC.size)
            length += _CRC.size
        out.lengths[index] = length
        at += length
