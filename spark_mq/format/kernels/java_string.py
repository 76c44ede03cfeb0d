"""Text as Java sees it: UTF-8 decoding with Java's replacements, and `String.hashCode` of the result.

The text of a topic or property is `new String(bytes, UTF_8)` of its stored bytes. Bytes that are not UTF-8 become
U+FFFD. Java and Python differ in the number of replacements: for an encoded surrogate (`ED A0 80`), Java 17
(`String.decodeUTF8_UTF16`, `malformed3`, `malformed4`) has one U+FFFD, Python three. Hash codes are computed from the
text with replacements, so this module follows Java. `spark_mq.format.java_text` is the twin for a single text.

The kernels take a `uint8` array `buffer` and a range `start`, `length` of it. The caller has checked the range.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s, OutInt64s
from spark_mq.format.kernels.big_endian import byte_at, read_i64
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.pieces import Pieces

_REPLACEMENT = 0xFFFD
_HIGH_BITS = 0x8080808080808080 - (1 << 64)
"""The highest bit of each of eight bytes, which ASCII does not have."""


@kernel
def _is_continuation(byte: int) -> bool:
    return (byte & 0xC0) == 0x80


@kernel
def next_code_point(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    """The code point at `position`, U+FFFD if Java 17 calls the bytes malformed; and the position after it."""
    b1 = byte_at(buffer, position)
    left = end - position
    if b1 < 0x80:
        return b1, position + 1
    if 0xC2 <= b1 <= 0xDF:
        if left >= 2 and _is_continuation(byte_at(buffer, position + 1)):
            return ((b1 & 0x1F) << 6) | (byte_at(buffer, position + 1) & 0x3F), position + 2
        return _REPLACEMENT, position + 1
    if 0xE0 <= b1 <= 0xEF:
        return _three_bytes(buffer, position, left, b1)
    if 0xF0 <= b1 <= 0xF7:
        return _four_bytes(buffer, position, left, b1)
    return _REPLACEMENT, position + 1


@kernel
def _three_bytes(buffer: Bytes, position: int, left: int, b1: int) -> tuple[int, int]:
    if left < 2:
        return _REPLACEMENT, position + 1
    b2 = byte_at(buffer, position + 1)
    if not _is_continuation(b2) or (b1 == 0xE0 and (b2 & 0xE0) == 0x80):
        return _REPLACEMENT, position + 1
    if left < 3 or not _is_continuation(byte_at(buffer, position + 2)):
        return _REPLACEMENT, position + 2
    code_point = ((b1 & 0x0F) << 12) | ((b2 & 0x3F) << 6) | (byte_at(buffer, position + 2) & 0x3F)
    if 0xD800 <= code_point <= 0xDFFF:
        return _REPLACEMENT, position + 3
    return code_point, position + 3


@kernel
def _four_bytes(buffer: Bytes, position: int, left: int, b1: int) -> tuple[int, int]:
    if left < 2 or b1 > 0xF4:
        return _REPLACEMENT, position + 1
    b2 = byte_at(buffer, position + 1)
    outside = (b1 == 0xF0 and not 0x90 <= b2 <= 0xBF) or (b1 == 0xF4 and (b2 & 0xF0) != 0x80)
    if outside or not _is_continuation(b2):
        return _REPLACEMENT, position + 1
    if left < 3 or not _is_continuation(byte_at(buffer, position + 2)):
        return _REPLACEMENT, position + 2
    if left < 4 or not _is_continuation(byte_at(buffer, position + 3)):
        return _REPLACEMENT, position + 3
    code_point = (
        ((b1 & 0x07) << 18)
        | ((b2 & 0x3F) << 12)
        | ((byte_at(buffer, position + 2) & 0x3F) << 6)
        | (byte_at(buffer, position + 3) & 0x3F)
    )
    return code_point, position + 4


@kernel
def is_utf8(buffer: Bytes, start: int, end: int) -> bool:
    """Whether Java decodes the bytes without a replacement."""
    position = start if start > 0 else 0  # an index that cannot be negative saves a test for each byte
    while position < end:
        if end - position >= 8 and read_i64(buffer, position) & _HIGH_BITS == 0:
            position += 8
            continue
        at = position
        code_point, position = next_code_point(buffer, at, end)
        # U+FFFD is also a character that a producer can send: EF BF BD.
        if code_point == _REPLACEMENT and (position - at < 3 or buffer[at] != 0xEF):
            return False
    return True


@kernel
def hash_code(buffer: Bytes, start: int, length: int) -> int:
    """`new String(bytes, UTF_8).hashCode()`: h = 31 h + UTF-16 unit, wrapped to 32 bits."""
    unsigned = extend_hash(0, buffer, start, length)
    return unsigned - 0x100000000 if unsigned >= 0x80000000 else unsigned


def hash_codes(texts: Pieces) -> Int64s:
    """The hash code of each text; 0 for NULL."""
    codes = np.empty(texts.size, np.int64)
    _hash_codes(texts, codes)
    return codes


@kernel
def _hash_codes(texts: Pieces, codes: OutInt64s) -> None:
    for index in range(codes.size):
        length = int(texts.lengths[index])
        codes[index] = hash_code(texts.buffer, texts.starts[index], length) if length > 0 else 0


@kernel
def extend_hash(unsigned: int, buffer: Bytes, start: int, length: int) -> int:
    """The hash of a text followed by these bytes; `unsigned` is the hash of the text."""
    position = start if start > 0 else 0  # an index that cannot be negative saves a test for each byte
    end = position + length
    while (
        end - position >= 4
        and (buffer[position] | buffer[position + 1] | buffer[position + 2] | buffer[position + 3]) < 0x80
    ):  # four bytes at a time: only one of four multiplications waits for the previous result
        first_two = 31**3 * byte_at(buffer, position) + 31**2 * byte_at(buffer, position + 1)
        last_two = 31 * byte_at(buffer, position + 2) + byte_at(buffer, position + 3)
        unsigned = (31**4 * unsigned + (first_two + last_two)) & 0xFFFFFFFF
        position += 4
    while position < end and buffer[position] < 0x80:
        unsigned = (31 * unsigned + byte_at(buffer, position)) & 0xFFFFFFFF
        position += 1
    return unsigned if position == end else _extend_hash_by_code_points(unsigned, buffer, position, end)


@kernel
def _extend_hash_by_code_points(unsigned: int, buffer: Bytes, position: int, end: int) -> int:
    while position < end:
        code_point, position = next_code_point(buffer, position, end)
        if code_point >= 0x10000:
            high = 0xD800 + ((code_point - 0x10000) >> 10)
            unsigned = (31 * unsigned + high) & 0xFFFFFFFF
            code_point = 0xDC00 + ((code_point - 0x10000) & 0x3FF)
        unsigned = (31 * unsigned + code_point) & 0xFFFFFFFF
    return unsigned


@kernel
def _append_code_point(code_point: int, out: OutBytes, position: int) -> int:
    if code_point < 0x80:
        out[position] = code_point
        return position + 1
    if code_point < 0x800:
        out[position] = 0xC0 | (code_point >> 6)
        out[position + 1] = 0x80 | (code_point & 0x3F)
        return position + 2
    if code_point < 0x10000:
        out[position] = 0xE0 | (code_point >> 12)
        out[position + 1] = 0x80 | ((code_point >> 6) & 0x3F)
        out[position + 2] = 0x80 | (code_point & 0x3F)
        return position + 3
    out[position] = 0xF0 | (code_point >> 18)
    out[position + 1] = 0x80 | ((code_point >> 12) & 0x3F)
    out[position + 2] = 0x80 | ((code_point >> 6) & 0x3F)
    out[position + 3] = 0x80 | (code_point & 0x3F)
    return position + 4


@kernel
def repair_utf8(buffer: Bytes, offsets: Int32s, out: OutBytes, out_offsets: OutInt32s) -> None:
    """Rewrite texts as valid UTF-8, with U+FFFD as in Java.

    Text i is `buffer[offsets[i]:offsets[i + 1]]`; its valid form becomes `out[out_offsets[i]:out_offsets[i + 1]]`. A
    byte becomes at most three bytes, so `out` must have room for three times the bytes of all texts.
    """
    out_end = 0
    out_offsets[0] = 0
    for index in range(offsets.size - 1):
        position, end = int(offsets[index]), int(offsets[index + 1])
        while position < end:
            code_point, position = next_code_point(buffer, position, end)
            out_end = _append_code_point(code_point, out, out_end)
        out_offsets[index + 1] = out_end
