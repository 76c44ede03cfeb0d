"""A record's checksums: the CRC of its body and, optionally from 5.2.0 on, a CRC of the whole record.

| checksum | covers | stored |
| --- | --- | --- |
| body CRC | the stored body, still compressed; not checked without a body | i32 at 8 |
| property CRC | the record without its last 20 bytes | in these 20 bytes, as the last property: `__CRC32#` 0x01, ten \
decimal digits, the least significant first, 0x02 |

Both are zlib's CRC-32 & 0x7FFFFFFF (`UtilAll.crc32`, `MessageDecoder.createCrc32`@5.3.3). A broker with
`enabledAppendPropCRC` writes the property CRC. If a message is forwarded with all its properties to a broker that
writes no property CRC, the new record can contain the property CRC of the original record. The broker's own check
(`forceVerifyPropCRC`) rejects such a record, too.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format import record
from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutBytes, OutFlags, OutInt64s
from spark_mq.format.kernels.big_endian import byte_at, read_i16, read_i32, read_i64
from spark_mq.format.kernels.frames import Frames, host_size
from spark_mq.format.kernels.kernel import kernel, replaced
from spark_mq.format.properties import (
    CRC_DIGITS,
    CRC_PROPERTY,
    NAME_VALUE_SEPARATOR,
    PROPERTY_CRC_SIZE,
    PROPERTY_SEPARATOR,
)
from spark_mq.format.record import CRC_MASK

_POLYNOMIAL = 0xEDB88320
_NONE = -1
_ZERO = ord("0")
_IMPOSSIBLE = 1 << 31

_NAME = np.frombuffer(CRC_PROPERTY + bytes((NAME_VALUE_SEPARATOR,)), np.uint8)


def _tables() -> Int32s:
    """Table k has the effect of a byte on the CRC after k more bytes have followed that byte."""
    tables = np.zeros((16, 256), np.int64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 16):
        tables[k] = tables[k - 1] >> 8 ^ tables[0][tables[k - 1] & 0xFF]
    return tables.astype(np.int32)


_TABLES = _tables()


@replaced("fold")
def _after_blocks(buffer: Bytes, start: int, length: int, crc: int) -> int:
    """The inverted CRC after `length` bytes more, a multiple of sixteen ("slicing by sixteen").

    In a kernel, a processor that can multiply without carry does that instead, at a fifth of the time.
    """
    for position in range(start, start + length, 16):
        first, second = read_i64(buffer, position), read_i64(buffer, position + 8)
        # The terms without the CRC of the bytes before: the processor computes them while it waits for that.
        later = (
            _TABLES[11, first >> 24 & 0xFF]
            ^ _TABLES[10, first >> 16 & 0xFF]
            ^ _TABLES[9, first >> 8 & 0xFF]
            ^ _TABLES[8, first & 0xFF]
            ^ _TABLES[7, second >> 56 & 0xFF]
            ^ _TABLES[6, second >> 48 & 0xFF]
            ^ _TABLES[5, second >> 40 & 0xFF]
            ^ _TABLES[4, second >> 32 & 0xFF]
            ^ _TABLES[3, second >> 24 & 0xFF]
            ^ _TABLES[2, second >> 16 & 0xFF]
            ^ _TABLES[1, second >> 8 & 0xFF]
            ^ _TABLES[0, second & 0xFF]
        )
        crc = (
            (_TABLES[15, (crc ^ first >> 56) & 0xFF] ^ _TABLES[14, (crc >> 8 ^ first >> 48) & 0xFF])
            ^ (_TABLES[13, (crc >> 16 ^ first >> 40) & 0xFF] ^ _TABLES[12, (crc >> 24 ^ first >> 32) & 0xFF])
            ^ later
        )
    return crc


@kernel
def crc32(buffer: Bytes, start: int, length: int) -> int:
    """`zlib.crc32` of the `length` bytes at `start`."""
    crc, blocks = -1, length & ~15
    if blocks > 0:
        crc = _after_blocks(buffer, start, blocks, crc)
    for position in range(start + blocks, start + length):
        crc = _TABLES[0, (crc ^ byte_at(buffer, position)) & 0xFF] ^ (crc >> 8 & 0xFFFFFF)
    return int(np.int64(~crc) & 0xFFFFFFFF)


@kernel
def stored_property_crc(buffer: Bytes, end: int, properties_length: int) -> int:
    """The property CRC of a record that ends at `end`; -1 if the record has none, 2^31 if the CRC is not a number."""
    if properties_length < PROPERTY_CRC_SIZE or buffer[end - 1] != PROPERTY_SEPARATOR:
        return _NONE
    start = end - PROPERTY_CRC_SIZE
    if properties_length > PROPERTY_CRC_SIZE and buffer[start - 1] != PROPERTY_SEPARATOR:
        return _NONE
    for index in range(_NAME.size):
        if buffer[start + index] != _NAME[index]:
            return _NONE
    value = 0
    for position in range(end - 2, end - 2 - CRC_DIGITS, -1):
        digit = byte_at(buffer, position) - _ZERO
        if digit < 0 or digit > 9:
            return _IMPOSSIBLE
        value = 10 * value + digit
    return value


@kernel
def write_property_crc(buffer: OutBytes, start: int, size: int) -> None:
    """Write the property CRC of the record of `size` bytes at `start` to its last 20 bytes, name included."""
    end = start + size
    position = end - PROPERTY_CRC_SIZE
    crc = crc32(buffer, start, size - PROPERTY_CRC_SIZE) & CRC_MASK
    for index in range(_NAME.size):
        buffer[position + index] = _NAME[index]
    position += _NAME.size
    for _ in range(CRC_DIGITS):
        buffer[position] = _ZERO + crc % 10
        crc //= 10
        position += 1
    buffer[end - 1] = PROPERTY_SEPARATOR


@kernel
def renew_property_crc(buffer: OutBytes, start: int) -> None:
    """Write the property CRC of the sound record at `start` again, if the record ends with one."""
    size = read_i32(buffer, start)
    end = start + size
    if buffer[end - 1] != PROPERTY_SEPARATOR or buffer[end - PROPERTY_CRC_SIZE] != _NAME[0]:
        return
    sys_flag = read_i32(buffer, start + record.SYS_FLAG_AT)
    at = start + record.BORN_HOST_AT + record.TIMESTAMP_SIZE + 12
    at += host_size(sys_flag, record.BORN_HOST_V6_FLAG)
    at += host_size(sys_flag, record.STORE_HOST_V6_FLAG)
    body_length = read_i32(buffer, at)
    at += 4 + (body_length if body_length > 0 else 0)
    if read_i32(buffer, start + record.MAGIC_AT) == record.MAGIC_V2:
        at += 2 + read_i16(buffer, at)
    else:
        at += 1 + byte_at(buffer, at)
    if stored_property_crc(buffer, end, read_i16(buffer, at)) != _NONE:
        write_property_crc(buffer, start, size)


@kernel
def _digests(buffer: Bytes, position: Int64s, size: Int32s, found: OutInt64s) -> None:
    for index in range(position.size):
        start, after = position[index], position[index] + record.COMMIT_LOG_OFFSET_AT + 8
        before = crc32(buffer, start, record.COMMIT_LOG_OFFSET_AT)
        found[index] = before << 31 ^ crc32(buffer, after, size[index] - record.COMMIT_LOG_OFFSET_AT - 8)


def digests(buffer: Bytes, frames: Frames) -> Int64s:
    """A number of each record that two records share if only their commit log offsets differ, and hardly otherwise."""
    found = np.empty(frames.size, np.int64)
    _digests(buffer, frames.position, frames.store_size, found)
    return found


@kernel
def _wrong_bodies(buffer: Bytes, frames: Frames, wrong: OutFlags) -> None:
    for index in range(frames.size):
        frame = frames[index]
        length = int(frame.body_length)
        wrong[index] = length > 0 and (
            crc32(buffer, frame.body_start, length) & CRC_MASK != read_i32(buffer, frame.position + record.BODY_CRC_AT)
        )


@kernel
def _wrong_properties(buffer: Bytes, frames: Frames, wrong: OutFlags) -> None:
    for index in range(frames.size):
        frame = frames[index]
        size = int(frame.store_size)
        stored = stored_property_crc(buffer, frame.position + size, frame.properties_length)
        wrong[index] = stored != _NONE and (
            crc32(buffer, frame.position, size - PROPERTY_CRC_SIZE) & CRC_MASK != stored
        )


def wrong_body_crcs(buffer: Bytes, frames: Frames) -> Flags:
    """Which records have a body whose CRC differs from the stored body CRC."""
    wrong = np.empty(frames.size, np.bool_)
    _wrong_bodies(buffer, frames, wrong)
    return wrong


def wrong_property_crcs(buffer: Bytes, frames: Frames) -> Flags:
    """Which records have a property CRC that is not the CRC of the record."""
    wrong = np.empty(frames.size, np.bool_)
    _wrong_properties(buffer, frames, wrong)
    return wrong
