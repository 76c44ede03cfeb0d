"""Big-endian, two's-complement integers in a byte array, as Java's `ByteBuffer` reads and writes them.

The functions take a `uint8` array `buffer` and an index `position` in it. The caller has checked the bounds.

Each function has two forms. Plain Python runs the one that is written here. In a kernel, a call becomes the few machine
instructions that `instructions` gives.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s, OutInt64s
from spark_mq.format.kernels.kernel import kernel, replaced

SLACK = 32
"""Bytes that a target of `append_bytes` should have after its end."""


@replaced("read", 8, 0)
def byte_at(buffer: Bytes, position: int) -> int:
    """The byte at `position` as a 64-bit integer, so that arithmetic neither overflows nor becomes floating-point."""
    return int(buffer[position])


@replaced("read", 32, 0)
def read_u32(buffer: Bytes, position: int) -> int:
    """The four bytes at `position` as an unsigned integer."""
    return (
        (byte_at(buffer, position) << 24)
        | (byte_at(buffer, position + 1) << 16)
        | (byte_at(buffer, position + 2) << 8)
        | byte_at(buffer, position + 3)
    )


@replaced("read", 16, 1)
def read_i16(buffer: Bytes, position: int) -> int:
    """The two bytes at `position` as a signed integer (`ByteBuffer.getShort`)."""
    value = (byte_at(buffer, position) << 8) | byte_at(buffer, position + 1)
    return value - 0x10000 if value >= 0x8000 else value


@replaced("read", 32, 1)
def read_i32(buffer: Bytes, position: int) -> int:
    """The four bytes at `position` as a signed integer (`ByteBuffer.getInt`)."""
    value = read_u32(buffer, position)
    return value - 0x100000000 if value >= 0x80000000 else value


@replaced("read", 64, 1)
def read_i64(buffer: Bytes, position: int) -> int:
    """The eight bytes at `position` as a signed integer (`ByteBuffer.getLong`)."""
    return (read_i32(buffer, position) << 32) | read_u32(buffer, position + 4)


@replaced("write", 32)
def write_i32(buffer: OutBytes, position: int, value: int) -> None:
    """Write the low 32 bits of `value` to the four bytes at `position` (`ByteBuffer.putInt`)."""
    buffer[position] = (value >> 24) & 0xFF
    buffer[position + 1] = (value >> 16) & 0xFF
    buffer[position + 2] = (value >> 8) & 0xFF
    buffer[position + 3] = value & 0xFF


@replaced("write", 64)
def write_i64(buffer: OutBytes, position: int, value: int) -> None:
    """Write `value` to the eight bytes at `position` (`ByteBuffer.putLong`)."""
    write_i32(buffer, position, value >> 32)
    write_i32(buffer, position + 4, value)


@replaced("index")
def index_in_eight(buffer: Bytes, position: int, byte: int) -> int:
    """The index, from 0, of the first `byte` among the eight bytes at `position`; 8 if it is not among them."""
    for index in range(8):
        if byte_at(buffer, position + index) == byte:
            return index
    return 8


@replaced("prefetch")
def prefetch(buffer: Bytes, position: int) -> None:
    """Have the processor load the bytes at `position` into its cache; any position is allowed."""


@replaced("copy")
def copy_bytes(target: OutBytes, at: int, source: Bytes, start: int, length: int) -> None:
    """Copy `length` bytes from index `start` of `source` to index `at` of `target`; none if `length` is negative."""
    if length > 0:
        target[at : at + length] = source[start : start + length]


@replaced("append", SLACK)
def append_bytes(target: OutBytes, at: int, source: Bytes, start: int, length: int) -> None:
    """`copy_bytes`, for a target that is written from its start to its end.

    Bytes of the target after the copied ones may become anything: a piece of up to `SLACK` bytes is one load and one
    store of `SLACK` bytes if both arrays have that many, which takes half the time of a copy of the exact length.
    """
    if length > 0:
        target[at : at + length] = source[start : start + length]


@kernel
def _gather_i32(buffer: Bytes, positions: Int64s, values: OutInt32s) -> None:
    for index in range(positions.size):
        values[index] = read_i32(buffer, positions[index])


@kernel
def _gather_i64(buffer: Bytes, positions: Int64s, values: OutInt64s) -> None:
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
