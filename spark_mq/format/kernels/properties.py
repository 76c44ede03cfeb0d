"""The rules of `spark_mq.format.properties` for many records, as kernels over stored bytes.

A piece of text is a start (an index in `buffer`) and a length in bytes. Length -1 means that there is no such piece.
"""

from __future__ import annotations

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutFlags, OutInt32s, OutInt64s
from spark_mq.format.kernels.big_endian import byte_at
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_SPACE, _MINUS, _PLUS, _ZERO = ord(" "), ord("-"), ord("+"), ord("0")


@kernel
def next_property(buffer: Bytes, position: int, end: int) -> tuple[int, int, int, int]:
    """The property piece at `position`: name start, name end, value end, and the start of the next piece.

    The value starts after the byte at name end. If a piece does not count, its name end is its name start.
    """
    name_start = position
    while position < end and (buffer[position] > PROPERTY_SEPARATOR or buffer[position] < NAME_VALUE_SEPARATOR):
        position += 1
    name_end = position
    while position < end and buffer[position] != PROPERTY_SEPARATOR:
        position += 1
    if name_end == name_start or name_end + 1 >= position:
        return name_start, name_start, position, position + 1
    return name_start, name_end, position, position + 1


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
        while position < end and buffer[position] != PROPERTY_SEPARATOR:
            position += 1
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
    buffer: Bytes, starts: Int64s, lengths: Int32s, name: Bytes, value_starts: OutInt64s, value_lengths: OutInt32s
) -> None:
    """`find_value` for many messages, whose properties are the pieces `starts`, `lengths`."""
    for index in range(starts.size):
        value_start, value_length = find_value(buffer, starts[index], lengths[index], name)
        value_starts[index] = value_start
        value_lengths[index] = value_length


@kernel
def _is_repeated_later(buffer: Bytes, name_start: int, name_end: int, position: int, end: int) -> bool:
    length = name_end - name_start
    while position < end:
        later_start, later_end, _, position = next_property(buffer, position, end)
        if later_end - later_start == length and same_bytes(buffer, name_start, buffer, later_start, length):
            return True
    return False


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

    Message i has the properties `offsets[i]` to `offsets[i + 1]` - 1 of the last four arrays.
    """
    count = 0
    offsets[0] = 0
    for index in range(starts.size):
        position, end = starts[index], starts[index] + lengths[index]
        while position < end:
            name_start, name_end, value_end, position = next_property(buffer, position, end)
            if name_end == name_start or _is_repeated_later(buffer, name_start, name_end, position, end):
                continue
            name_starts[count] = name_start
            name_lengths[count] = name_end - name_start
            value_starts[count] = name_end + 1
            value_lengths[count] = value_end - name_end - 1
            count += 1
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
