"""Big-endian, two's-complement integers in a byte array, as Java's `ByteBuffer` reads and writes them.

The kernels take a `uint8` array `buffer` and an index `position` in it. The caller has checked the bounds.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s, Int64s
from spark_mq.format.kernels.kernel import kernel


@kernel
def byte_at(buffer: Bytes, position: int) -> int:
    """The byte at `position` as a 64-bit integer, so that arithmetic neither overflows nor becomes floating-point."""
    return np.int64(buffer[position])  # type: ignore[return-value]


@kernel
def read_u32(buffer: Bytes, position: int) -> int:
    """The four bytes at `position` as an unsigned integer."""
    return (
        (byte_at(buffer, position) << 24)
        | (byte_at(buffer, position + 1) << 16)
        | (byte_at(buffer, position + 2) << 8)
        | byte_at(buffer, position + 3)
    )


@kernel
def read_i16(buffer: Bytes, position: int) -> int:
    """The two bytes at `position` as a signed integer (`ByteBuffer.getShort`)."""
    value = (byte_at(buffer, position) << 8) | byte_at(buffer, position + 1)
    return value - 0x10000 if value >= 0x8000 else value


@kernel
def read_i32(buffer: Bytes, position: int) -> int:
    """The four bytes at `position` as a signed integer (`ByteBuffer.getInt`)."""
    value = read_u32(buffer, position)
    return value - 0x100000000 if value >= 0x80000000 else value


@kernel
def read_i64(buffer: Bytes, position: int) -> int:
    """The eight bytes at `position` as a signed integer (`ByteBuffer.getLong`)."""
    return (read_i32(buffer, position) << 32) | read_u32(buffer, position + 4)


@kernel
def swap_bytes(value: int) -> int:
    """The low 32 bits of `value`, with their four bytes in reverse order, as an unsigned integer."""
    return ((value >> 24) & 0xFF) | ((value >> 8) & 0xFF00) | ((value & 0xFF00) << 8) | ((value & 0xFF) << 24)


@kernel
def write_i32(buffer: Bytes, position: int, value: int) -> None:
    """Write the low 32 bits of `value` to the four bytes at `position` (`ByteBuffer.putInt`)."""
    buffer[position] = (value >> 24) & 0xFF
    buffer[position + 1] = (value >> 16) & 0xFF
    buffer[position + 2] = (value >> 8) & 0xFF
    buffer[position + 3] = value & 0xFF


@kernel
def write_i64(buffer: Bytes, position: int, value: int) -> None:
    """Write `value` to the eight bytes at `position` (`ByteBuffer.putLong`)."""
    write_i32(buffer, position, value >> 32)
    write_i32(buffer, position + 4, value)


@kernel
def _gather_i32(buffer: Bytes, positions: Int64s, values: Int32s) -> None:
    for index in range(positions.size):
        values[index] = read_i32(buffer, positions[index])


@kernel
def _gather_i64(buffer: Bytes, positions: Int64s, values: Int64s) -> None:
    for index in range(positions.size):
        values[index] = read_i64(buffer, positions[index])


def int32s_at(buffer: Bytes, positions: Int64s) -> Int32s:
    """The 32-bit integers at `positions`."""
    values = np.empty(positions.size, np.int32)
    _gather_i32(buffer, positions, values)
    return values


def int64s_at(buffer: Bytes, positions: Int64s) -> Int64s:
    """The 64-bit integers at `positions`."""
    values = np.empty(positions.size, np.int64)
    _gather_i64(buffer, positions, values)
    return values
