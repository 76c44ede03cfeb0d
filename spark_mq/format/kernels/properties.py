"""The rules of `spark_mq.format.properties` for many records, as kernels over stored bytes.

A piece of text is a start (an index in `buffer`) and a length in bytes. Length -1 means that there is no such piece.
"""

from __future__ import annotations

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutFlags, OutInt32s, OutInt64s
from spark_mq.format.kernels.big_endian import byte_at, index_in_eight
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_SPACE, _MINUS, _PLUS, _ZERO = ord(" "), ord("-"), ord("+"), ord("0")


@kernel
def skip_value(buffer: Bytes, position: int, end: int) -> int:
    """The first position from `position` on, before `end`, that has a property separator; `end` if there is none."""
    while end - position >= 8:
        index = index_in_eight(buffer, position, PROPERTY_SEPARATOR)
        if index < 8:
            return position + index
        position += 8
    while position < end and buffer[position] != PROPERTY_SEPARATOR:
        position += 1
    return position


@kernel
def same_bytes(left: Bytes, left_start: int, right: Bytes, right_start: int, length: int) -> bool:
    """Whether two byte ranges of the same length are equal."""
    for index in range(length):  # noqa: SIM110 (a kernel)
        if left[left_start + index] != right[right_start + index]:
            return False
    return True


@kernel
def find_value(buffer: Bytes, start: int, length: int, name: Bytes) -> tuple[int, int]:
    """Start and length of the value of property `name` in the properties at `start`; length -1 if there is none.

    If the name is repeated, its last value counts.
    """
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


@kernel
def find_values(
    buffer: Bytes,
    starts: Int64s,
    lengths: Int32s,
    names: Bytes,
    name_ends: Int64s,
    value_starts: OutInt64s,
    value_lengths: OutInt32s,
) -> None:
    """`find_value` of several names for many messages, whose properties are the pieces `starts`, `lengths`.

    `names` has all names, one after the other. The value of name k in message i is written to index k n + i of
    `value_starts` and `value_lengths`, for n messages.
    """
    for index in range(starts.size):
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
def list_properties(
    buffer: Bytes,
    starts: Int64s,
    lengths: Int32s,
    offsets: OutInt32s,
    name_starts: OutInt64s,
    name_lengths: OutInt32s,
    value_starts: OutInt64s,
    value_lengths: OutInt32s,
) -> None:
    """List all properties of all messages, each name once, with its last value.

    Message i has the properties `offsets[i]` to `offsets[i + 1]` - 1 of the last four arrays, in the order of their
    last values.
    """
    count = 0
    offsets[0] = 0
    for index in range(starts.size):
        first, before = count, count
        position, end = starts[index], starts[index] + lengths[index]
        while position < end:
            name_start = position
            while position < end and (buffer[position] > PROPERTY_SEPARATOR or buffer[position] < NAME_VALUE_SEPARATOR):
                position += 1
            name_length = position - name_start
            position = skip_value(buffer, position, end)
            value_length = position - name_start - name_length - 1
            position += 1
            if name_length > 0 and value_length > 0:
                name_starts[count], name_lengths[count] = name_start, name_length
                value_starts[count], value_lengths[count] = name_start + name_length + 1, value_length
                count += 1
        while before < count:  # only the last one of each name stays
            start, length = name_starts[before], name_lengths[before]
            later = before + 1
            while later < count and not (
                name_lengths[later] == length and same_bytes(buffer, start, buffer, name_starts[later], length)
            ):
                later += 1
            if later == count:
                name_starts[first], name_lengths[first] = start, length
                value_starts[first], value_lengths[first] = value_starts[before], value_lengths[before]
                first += 1
            before += 1
        count = first
        offsets[index + 1] = count


@kernel
def list_keys(
    buffer: Bytes, starts: Int64s, lengths: Int32s, offsets: OutInt32s, key_starts: OutInt64s, key_lengths: OutInt32s
) -> None:
    """List the keys in values of KEYS: the pieces between spaces that are not empty (`IndexService.buildIndex`@5.3.3).

    Value i has the keys `offsets[i]` to `offsets[i + 1]` - 1.
    """
    count = 0
    offsets[0] = 0
    for index in range(starts.size):
        position, end = starts[index], starts[index] + lengths[index]
        while position < end:
            key_start = position
            while position < end and buffer[position] != _SPACE:
                position += 1
            if position > key_start:
                key_starts[count] = key_start
                key_lengths[count] = position - key_start
                count += 1
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
