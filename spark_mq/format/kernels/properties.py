"""The rules of `spark_mq.format.properties` for many records, as kernels over stored bytes.

A piece of text is a start (an index in `buffer`) and a length in bytes. Length -1 means that there is no such piece.

A piece of the properties, up to a separator 0x02, is `name 0x01 value`. The decoder ignores any other piece
(`MessageDecoder.string2messageProperties`@5.3.3). An empty value and a missing last separator are usual, because
producers send them. A piece without 0x01, without a name, or not in UTF-8 comes from no client: a broker writes the
bytes of a Java string.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutBytes, OutFlags, OutInt32s, OutInt64s
from spark_mq.format.kernels.big_endian import append_bytes, byte_at, index_in_eight, prefetch
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.java_string import is_utf8
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.pieces import Pieces
from spark_mq.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_AHEAD, _CACHE_LINE = 16, 64
"""Properties are at the end of a record, where no processor expects the next access: it is told 16 records before."""

_INNER = np.frombuffer(b"INNER_", np.uint8)
_SPACE, _MINUS, _PLUS, _ZERO = ord(" "), ord("-"), ord("+"), ord("0")


@kernel
def check_pieces(buffer: Bytes, frames: Frames, wrong_counts: OutInt32s, has_inner: OutFlags) -> None:
    """Write how many pieces are not a named value in UTF-8, and whether a name begins with INNER_, of each record."""
    for index in range(frames.size):
        if index + _AHEAD < frames.size:
            prefetch(buffer, frames[index + _AHEAD].properties_start)
            prefetch(buffer, frames[index + _AHEAD].properties_start + _CACHE_LINE)
        frame = frames[index]
        position, wrong, inner = frame.properties_start, 0, False
        end = position + int(frame.properties_length)
        is_text = is_utf8(buffer, position, end)
        while position < end:
            piece = position
            position = skip_value(buffer, position, end)
            name_end = piece
            while name_end < position and buffer[name_end] != NAME_VALUE_SEPARATOR:
                name_end += 1
            is_named = piece < name_end < position
            if not is_named or not (is_text or is_utf8(buffer, piece, position)):
                wrong += 1
            elif name_end - piece >= _INNER.size and same_bytes(buffer, piece, _INNER, 0, _INNER.size):
                inner = True
            position += 1
        wrong_counts[index], has_inner[index] = wrong, inner


def checked_pieces(buffer: Bytes, frames: Frames) -> tuple[Int32s, Flags]:
    """The pieces of each record's properties, in one pass.

    Returns the number of those that are not a named value in UTF-8, and which records have a property whose name
    begins with `INNER_`.
    """
    wrong, has_inner = np.empty(frames.size, np.int32), np.empty(frames.size, np.bool_)
    check_pieces(buffer, frames, wrong, has_inner)
    return wrong, has_inner


@kernel
def skip_to(buffer: Bytes, position: int, end: int, byte: int) -> int:
    """The first position from `position` on, before `end`, that has `byte`; `end` if there is none."""
    while end - position >= 8:
        index = index_in_eight(buffer, position, byte)
        if index < 8:
            return position + index
        position += 8
    while position < end and byte_at(buffer, position) != byte:
        position += 1
    return position


@kernel
def skip_value(buffer: Bytes, position: int, end: int) -> int:
    """The first position from `position` on, before `end`, that has a property separator; `end` if there is none."""
    return skip_to(buffer, position, end, PROPERTY_SEPARATOR)


@kernel
def same_bytes(left: Bytes, left_start: int, right: Bytes, right_start: int, length: int) -> bool:
    """Whether two byte ranges of the same length are equal."""
    for index in range(length):  # noqa: SIM110 (a kernel)
        if left[left_start + index] != right[right_start + index]:
            return False
    return True


@kernel
def find_value(buffer: Bytes, start: int, length: int, name: Bytes) -> tuple[int, int]:
    """Start and length of the value of property `name` in the properties at `start`; length -1 if there is none."""
    value_start, value_length = 0, -1
    position = start if start > 0 else 0  # an index that cannot be negative saves a test for each byte
    end = position + length
    while position < end:
        piece = position
        position = skip_value(buffer, position, end)
        length_here = named_value_length(buffer, piece, position, name)
        if length_here > 0:
            value_start, value_length = piece + name.size + 1, length_here
        position += 1
    return value_start, value_length


@kernel
def named_value_length(buffer: Bytes, start: int, end: int, name: Bytes) -> int:
    """The length of the value if the piece from `start` to `end` is a property `name` that counts; else 0."""
    length = end - start - name.size - 1
    if length <= 0 or buffer[start + name.size] != NAME_VALUE_SEPARATOR:
        return 0
    return length if same_bytes(buffer, start, name, 0, name.size) else 0


def places_of(properties: Pieces, *names: bytes) -> tuple[Int64s, Int32s]:
    """Where the value of a property starts, and its length: -1 for messages that do not have it.

    Of several names, which are found in one pass, the places follow each other.
    """
    count = properties.size * len(names)
    starts, lengths = np.empty(count, np.int64), np.empty(count, np.int32)
    ends = np.cumsum([len(name) for name in names], dtype=np.int64)
    _find_values(properties, np.frombuffer(b"".join(names), np.uint8), ends, starts, lengths)
    return starts, lengths


@kernel
def _find_values(
    properties: Pieces, names: Bytes, name_ends: Int64s, value_starts: OutInt64s, value_lengths: OutInt32s
) -> None:
    """`find_value` of several names for the properties of many messages.

    `names` has all names, one after the other. The value of name k in message i is written to index k n + i of
    `value_starts` and `value_lengths`, for n messages.
    """
    buffer, starts, lengths = properties.buffer, properties.starts, properties.lengths
    for index in range(starts.size):
        if index + _AHEAD < starts.size:
            prefetch(buffer, starts[index + _AHEAD])
            prefetch(buffer, starts[index + _AHEAD] + _CACHE_LINE)
        for name in range(name_ends.size):
            value_starts[name * starts.size + index] = 0
            value_lengths[name * starts.size + index] = -1
        position, end = starts[index], starts[index] + lengths[index]
        while position < end:
            piece = position
            position = skip_value(buffer, position, end)
            name_start = 0
            for name in range(name_ends.size):
                size = name_ends[name] - name_start
                length = position - piece - size - 1
                if (
                    length > 0
                    and buffer[piece + size] == NAME_VALUE_SEPARATOR
                    and same_bytes(buffer, piece, names, name_start, size)
                ):
                    value_starts[name * starts.size + index] = piece + size + 1
                    value_lengths[name * starts.size + index] = length
                name_start = name_ends[name]
            position += 1


@kernel
def copy_properties(
    buffer: Bytes,
    starts: Int64s,
    lengths: Int32s,
    wanted: Bytes,
    wanted_ends: Int64s,
    pieces: OutInt64s,
    offsets: OutInt32s,
    name_offsets: OutInt32s,
    names: OutBytes,
    value_offsets: OutInt32s,
    values: OutBytes,
    value_starts: OutInt64s,
    value_lengths: OutInt32s,
) -> None:
    """Copy all properties of all messages, each name once, with its last value; and `places_of` some names.

    Message i has the properties `offsets[i]` to `offsets[i + 1]` - 1, in the order of their last values. Property k has
    the name `names[name_offsets[k]:name_offsets[k + 1]]`, and its value likewise.

    Args:
        value_starts: Receives where the value of wanted name k of message i is, at index k n + i for n messages.
    """
    count, names_end, values_end = 0, 0, 0
    offsets[0], name_offsets[0], value_offsets[0] = 0, 0, 0
    for index in range(starts.size):
        if index + _AHEAD < starts.size:
            prefetch(buffer, starts[index + _AHEAD])
            prefetch(buffer, starts[index + _AHEAD] + _CACHE_LINE)
        for name in range(wanted_ends.size):
            value_starts[name * starts.size + index] = 0
            value_lengths[name * starts.size + index] = -1
        found = 0
        position, end = starts[index], starts[index] + lengths[index]
        while position < end:
            piece = position
            position = skip_value(buffer, position, end)
            separator = skip_to(buffer, piece, position, NAME_VALUE_SEPARATOR)
            if separator > piece and separator + 1 < position:
                pieces[3 * found], pieces[3 * found + 1], pieces[3 * found + 2] = piece, separator, position
                found += 1
            position += 1
        for number in range(found):
            start, separator, stop = pieces[3 * number], pieces[3 * number + 1], pieces[3 * number + 2]
            size = separator - start
            later = number + 1  # only the last one of each name stays
            while later < found and not (
                pieces[3 * later + 1] - pieces[3 * later] == size
                and same_bytes(buffer, start, buffer, pieces[3 * later], size)
            ):
                later += 1
            if later < found:
                continue
            append_bytes(names, names_end, buffer, start, size)
            append_bytes(values, values_end, buffer, separator + 1, stop - separator - 1)
            names_end += size
            values_end += stop - separator - 1
            count += 1
            name_offsets[count], value_offsets[count] = names_end, values_end
            name_start = 0
            for name in range(wanted_ends.size):
                if wanted_ends[name] - name_start == size and same_bytes(buffer, start, wanted, name_start, size):
                    value_starts[name * starts.size + index] = separator + 1
                    value_lengths[name * starts.size + index] = stop - separator - 1
                name_start = wanted_ends[name]
        offsets[index + 1] = count


@kernel
def copy_keys(
    buffer: Bytes, starts: Int64s, lengths: Int32s, offsets: OutInt32s, key_offsets: OutInt32s, keys: OutBytes
) -> None:
    """Copy the keys in values of KEYS: the pieces between spaces that are not empty (`IndexService.buildIndex`@5.3.3).

    Value i has the keys `offsets[i]` to `offsets[i + 1]` - 1. Key k is `keys[key_offsets[k]:key_offsets[k + 1]]`.
    """
    count, keys_end = 0, 0
    offsets[0], key_offsets[0] = 0, 0
    for index in range(starts.size):
        position, end = starts[index], starts[index] + lengths[index]
        while position < end:
            key_start = position
            position = skip_to(buffer, position, end, _SPACE)
            if position > key_start:
                append_bytes(keys, keys_end, buffer, key_start, position - key_start)
                keys_end += position - key_start
                count += 1
                key_offsets[count] = keys_end
            position += 1
        offsets[index + 1] = count


@kernel
def parse_decimal(buffer: Bytes, start: int, length: int) -> tuple[bool, int]:
    """`Integer.parseInt` of ASCII text: whether the text is a 32-bit integer, and its value."""
    if length <= 0:
        return False, 0
    position, end = start, start + length
    negative = length > 1 and buffer[position] == _MINUS
    if length > 1 and (buffer[position] == _MINUS or buffer[position] == _PLUS):
        position += 1
    if position == end:
        return False, 0
    value = 0
    while position < end:
        digit = byte_at(buffer, position) - _ZERO
        value = value * 10 + digit
        if digit < 0 or digit > 9 or value > 0x80000000:
            return False, 0
        position += 1
    value = -value if negative else value
    return value <= 0x7FFFFFFF, value


@kernel
def equal_pieces(buffer: Bytes, starts: Int64s, lengths: Int32s, text: Bytes, result: OutFlags) -> None:
    """Set `result` to which pieces have exactly the bytes `text`."""
    for index in range(starts.size):
        result[index] = lengths[index] == text.size and same_bytes(buffer, starts[index], text, 0, text.size)
