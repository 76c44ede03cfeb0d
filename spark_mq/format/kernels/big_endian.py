"""Big-endian, two's-complement integers in a byte array, as Java's `ByteBuffer` reads and writes them.

The functions take a `uint8` array `buffer` and an index `position` in it. The caller has checked the bounds.

Each function has two forms. Plain Python runs the one that is written here. In a kernel, numba replaces a call by the
few machine instructions that `_reads` or `_writes` gives (a load and a byte swap). As kernels, these functions would
take a third of all the time to compile, because nearly every kernel calls them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, type_callable

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s, OutInt64s
from spark_mq.format.kernels.kernel import Function, kernel

SLACK = 32
"""Bytes that a target of `append_bytes` should have after its end."""


def _in_kernels(function: Function, result: Any, lower: Callable[..., Any], *kinds: Any) -> Function:
    """The function, whose calls with arguments of these kinds become what `lower` gives if a kernel has them."""

    def type_of_call(*arguments: Any) -> Any:
        return result

    type_of_call.pysig = inspect.signature(function)  # type: ignore[attr-defined]
    type_callable(function)(lambda context: type_of_call)
    lower_builtin(function, *kinds)(lower)
    return function


def _reads(bits: int, signed: bool) -> Callable[[Function], Function]:
    """Declares that a function returns the `bits` bits at a position as a 64-bit integer."""

    def read(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        value = builder.load(_pointer(context, builder, signature, arguments, bits), align=1)
        value = _swapped(builder, value)
        if bits == 64:
            return value
        return builder.sext(value, ir.IntType(64)) if signed else builder.zext(value, ir.IntType(64))

    return lambda function: _in_kernels(function, types.int64, read, types.Array, types.Integer)


def _writes(bits: int) -> Callable[[Function], Function]:
    """Declares that a function writes the low `bits` bits of a value to a position."""

    def write(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        value = context.cast(builder, arguments[2], signature.args[2], types.int64)
        if bits < 64:
            value = builder.trunc(value, ir.IntType(bits))
        builder.store(_swapped(builder, value), _pointer(context, builder, signature, arguments, bits), align=1)
        return context.get_dummy_value()

    return lambda function: _in_kernels(function, types.none, write, types.Array, types.Integer, types.Integer)


def _swapped(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """An integer as this machine has it from its big-endian form, or the other way round."""
    return builder.bswap(value) if sys.byteorder == "little" and value.type.width > 8 else value


def _pointer(
    context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any, bits: int, first: int = 0
) -> ir.Value:
    """The address of element `arguments[first + 1]` of array `arguments[first]`, as an integer of `bits` bits."""
    data = context.make_array(signature.args[first])(context, builder, arguments[first]).data
    position = context.cast(builder, arguments[first + 1], signature.args[first + 1], types.int64)
    return builder.bitcast(builder.gep(data, [position]), ir.IntType(bits).as_pointer())


@_reads(8, signed=False)
def byte_at(buffer: Bytes, position: int) -> int:
    """The byte at `position` as a 64-bit integer, so that arithmetic neither overflows nor becomes floating-point."""
    return int(buffer[position])


@_reads(32, signed=False)
def read_u32(buffer: Bytes, position: int) -> int:
    """The four bytes at `position` as an unsigned integer."""
    return (
        (byte_at(buffer, position) << 24)
        | (byte_at(buffer, position + 1) << 16)
        | (byte_at(buffer, position + 2) << 8)
        | byte_at(buffer, position + 3)
    )


@_reads(16, signed=True)
def read_i16(buffer: Bytes, position: int) -> int:
    """The two bytes at `position` as a signed integer (`ByteBuffer.getShort`)."""
    value = (byte_at(buffer, position) << 8) | byte_at(buffer, position + 1)
    return value - 0x10000 if value >= 0x8000 else value


@_reads(32, signed=True)
def read_i32(buffer: Bytes, position: int) -> int:
    """The four bytes at `position` as a signed integer (`ByteBuffer.getInt`)."""
    value = read_u32(buffer, position)
    return value - 0x100000000 if value >= 0x80000000 else value


@_reads(64, signed=True)
def read_i64(buffer: Bytes, position: int) -> int:
    """The eight bytes at `position` as a signed integer (`ByteBuffer.getLong`)."""
    return (read_i32(buffer, position) << 32) | read_u32(buffer, position + 4)


@_writes(32)
def write_i32(buffer: OutBytes, position: int, value: int) -> None:
    """Write the low 32 bits of `value` to the four bytes at `position` (`ByteBuffer.putInt`)."""
    buffer[position] = (value >> 24) & 0xFF
    buffer[position + 1] = (value >> 16) & 0xFF
    buffer[position + 2] = (value >> 8) & 0xFF
    buffer[position + 3] = value & 0xFF


@_writes(64)
def write_i64(buffer: OutBytes, position: int, value: int) -> None:
    """Write `value` to the eight bytes at `position` (`ByteBuffer.putLong`)."""
    write_i32(buffer, position, value >> 32)
    write_i32(buffer, position + 4, value)


def index_in_eight(buffer: Bytes, position: int, byte: int) -> int:
    """The index, from 0, of the first `byte` among the eight bytes at `position`; 8 if it is not among them."""
    for index in range(8):
        if byte_at(buffer, position + index) == byte:
            return index
    return 8


def _lower_index(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    eight = _swapped(builder, builder.load(_pointer(context, builder, signature, arguments, 64), align=1))
    byte = context.cast(builder, arguments[2], signature.args[2], types.int64)
    low_bits = eight.type(0x7F7F7F7F7F7F7F7F)
    mixed = builder.xor(eight, builder.mul(byte, eight.type(0x0101010101010101)))  # the byte becomes zero
    # The highest bit of a byte of this sum is 0 only if the byte is zero; no byte adds to its neighbour.
    others = builder.or_(builder.add(builder.and_(mixed, low_bits), low_bits), builder.or_(mixed, low_bits))
    return builder.lshr(builder.ctlz(builder.not_(others), ir.IntType(1)(0)), eight.type(3))


def prefetch(buffer: Bytes, position: int) -> None:
    """Have the processor load the bytes at `position` into its cache; any position is allowed."""


def _lower_prefetch(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
    hint = builder.module.declare_intrinsic("llvm.prefetch", [address], kind)
    to_read, to_all_caches, data = number(0), number(3), number(1)
    builder.call(hint, [_pointer(context, builder, signature, arguments, 8), to_read, to_all_caches, data])
    return context.get_dummy_value()


def copy_bytes(target: OutBytes, at: int, source: Bytes, start: int, length: int) -> None:
    """Copy `length` bytes from index `start` of `source` to index `at` of `target`; none if `length` is negative."""
    if length > 0:
        target[at : at + length] = source[start : start + length]


def _lower_copy(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    target, source = (_pointer(context, builder, signature, arguments, 8, first) for first in (0, 2))
    length = context.cast(builder, arguments[4], signature.args[4], types.int64)
    with builder.if_then(builder.icmp_signed(">", length, length.type(0))):
        cgutils.raw_memcpy(builder, target, source, length, 1)
    return context.get_dummy_value()


def append_bytes(target: OutBytes, at: int, source: Bytes, start: int, length: int) -> None:
    """`copy_bytes`, for a target that is written from its start to its end.

    Bytes of the target after the copied ones may become anything: a piece of up to `SLACK` bytes is one load and one
    store of `SLACK` bytes if both arrays have that many, which takes half the time of a copy of the exact length.
    """
    if length > 0:
        target[at : at + length] = source[start : start + length]


def _lower_append(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    def integer(index: int) -> ir.Value:
        return context.cast(builder, arguments[index], signature.args[index], types.int64)

    def left(array: int, position: ir.Value) -> ir.Value:
        size = context.make_array(signature.args[array])(context, builder, arguments[array]).nitems
        return builder.sub(size, position)

    target, source = (_pointer(context, builder, signature, arguments, 8, first) for first in (0, 2))
    at, start, length = integer(1), integer(3), integer(4)
    slack = length.type(SLACK)
    with builder.if_then(builder.icmp_signed(">", length, length.type(0))):
        is_short = builder.and_(
            builder.icmp_signed("<=", length, slack),
            builder.and_(
                builder.icmp_signed(">=", left(0, at), slack), builder.icmp_signed(">=", left(2, start), slack)
            ),
        )
        with builder.if_else(is_short) as (short, long):
            with short:
                block = ir.VectorType(ir.IntType(8), SLACK).as_pointer()
                value = builder.load(builder.bitcast(source, block), align=1)
                builder.store(value, builder.bitcast(target, block), align=1)
            with long:
                cgutils.raw_memcpy(builder, target, source, length, 1)
    return context.get_dummy_value()


_in_kernels(prefetch, types.none, _lower_prefetch, types.Array, types.Integer)
_in_kernels(index_in_eight, types.int64, _lower_index, types.Array, types.Integer, types.Integer)
_COPIED = (types.Array, types.Integer, types.Array, types.Integer, types.Integer)
_in_kernels(copy_bytes, types.none, _lower_copy, *_COPIED)
_in_kernels(append_bytes, types.none, _lower_append, *_COPIED)


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
