"""The machine instructions that take the place of calls in kernels.

A plain function that is `replaced`, such as those of `big_endian`, becomes a few instructions (a load and a byte swap).
As kernels, these functions would take a third of all the time to compile, because nearly every kernel calls them.
`kernel` imports this module before it compiles; compiled kernels do not need it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, type_callable

Function = Callable[..., object]
"""A plain function, which kernels call."""


def declare(function: Function, how: str, details: Sequence[int]) -> None:
    """Let calls of a function in kernels become machine instructions; `how` and the details say which."""
    if how == "read":
        _reads(function, *details)
    elif how == "write":
        _writes(function, *details)
    elif how == "fold":
        kinds = types.Array, types.Integer, types.Integer, types.Integer
        _in_kernels(function, types.int64, partial(_lower_fold, function), *kinds)
    else:
        lower, result, kinds = _OTHERS[how]
        _in_kernels(function, result, partial(lower, *details), *kinds)


def _in_kernels(function: Function, result: Any, lower: Callable[..., Any], *kinds: Any) -> None:
    """Let calls of a function with arguments of these kinds become what `lower` gives if a kernel has them."""

    def type_of_call(*arguments: Any) -> Any:
        return result

    type_of_call.pysig = inspect.signature(function)  # type: ignore[attr-defined]
    type_callable(function)(lambda context: type_of_call)
    lower_builtin(function, *kinds)(lower)


def _reads(function: Function, bits: int, signed: int) -> None:
    """Declare that a function returns the `bits` bits at a position as a 64-bit integer."""

    def read(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        value = builder.load(_pointer(context, builder, signature, arguments, bits), align=1)
        value = _swapped(builder, value)
        if bits == 64:
            return value
        return builder.sext(value, ir.IntType(64)) if signed else builder.zext(value, ir.IntType(64))

    _in_kernels(function, types.int64, read, types.Array, types.Integer)


def _writes(function: Function, bits: int) -> None:
    """Declare that a function writes the low `bits` bits of a value to a position."""

    def write(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        value = context.cast(builder, arguments[2], signature.args[2], types.int64)
        if bits < 64:
            value = builder.trunc(value, ir.IntType(bits))
        builder.store(_swapped(builder, value), _pointer(context, builder, signature, arguments, bits), align=1)
        return context.get_dummy_value()

    _in_kernels(function, types.none, write, types.Array, types.Integer, types.Integer)


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


def _lower_index(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    eight = _swapped(builder, builder.load(_pointer(context, builder, signature, arguments, 64), align=1))
    byte = context.cast(builder, arguments[2], signature.args[2], types.int64)
    low_bits = eight.type(0x7F7F7F7F7F7F7F7F)
    mixed = builder.xor(eight, builder.mul(byte, eight.type(0x0101010101010101)))  # the byte becomes zero
    # The highest bit of a byte of this sum is 0 only if the byte is zero; no byte adds to its neighbour.
    others = builder.or_(builder.add(builder.and_(mixed, low_bits), low_bits), builder.or_(mixed, low_bits))
    return builder.lshr(builder.ctlz(builder.not_(others), ir.IntType(1)(0)), eight.type(3))


def _lower_prefetch(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
    hint = builder.module.declare_intrinsic("llvm.prefetch", [address], kind)
    to_read, to_all_caches, data = number(0), number(3), number(1)
    builder.call(hint, [_pointer(context, builder, signature, arguments, 8), to_read, to_all_caches, data])
    return context.get_dummy_value()


def _lower_copy(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    target, source = (_pointer(context, builder, signature, arguments, 8, first) for first in (0, 2))
    length = context.cast(builder, arguments[4], signature.args[4], types.int64)
    with builder.if_then(builder.icmp_signed(">", length, length.type(0))):
        cgutils.raw_memcpy(builder, target, source, length, 1)
    return context.get_dummy_value()


def _lower_append(slack_size: int, context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    def integer(index: int) -> ir.Value:
        return context.cast(builder, arguments[index], signature.args[index], types.int64)

    def left(array: int, position: ir.Value) -> ir.Value:
        size = context.make_array(signature.args[array])(context, builder, arguments[array]).nitems
        return builder.sub(size, position)

    target, source = (_pointer(context, builder, signature, arguments, 8, first) for first in (0, 2))
    at, start, length = integer(1), integer(3), integer(4)
    slack = length.type(slack_size)
    with builder.if_then(builder.icmp_signed(">", length, length.type(0))):
        is_short = builder.and_(
            builder.icmp_signed("<=", length, slack),
            builder.and_(
                builder.icmp_signed(">=", left(0, at), slack), builder.icmp_signed(">=", left(2, start), slack)
            ),
        )
        with builder.if_else(is_short) as (short, long):
            with short:
                block = ir.VectorType(ir.IntType(8), slack_size).as_pointer()
                value = builder.load(builder.bitcast(source, block), align=1)
                builder.store(value, builder.bitcast(target, block), align=1)
            with long:
                cgutils.raw_memcpy(builder, target, source, length, 1)
    return context.get_dummy_value()


def _lower_pread(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    kinds = (types.intc, types.uintp, types.uintp, types.int64)
    kind = ir.FunctionType(ir.IntType(64), [context.get_value_type(each) for each in kinds])
    function = cgutils.get_or_insert_function(builder.module, kind, "pread")
    given = zip(arguments, signature.args, kinds, strict=True)
    return builder.call(function, [context.cast(builder, value, given_as, kind) for value, given_as, kind in given])


_WORD, _PAIR = ir.IntType(64), ir.VectorType(ir.IntType(64), 2)
_BY_64, _BY_16, _BY_4, _POLYNOMIAL = (
    ir.Constant(_PAIR, factors)
    for factors in ((0x154442BD4, 0x1C6E41596), (0x1751997D0, 0xCCAA009E), (0x163CD6124, 0), (0x1DB710641, 0x1F7011641))
)
"""The factors that move a block before bytes of this number, and the polynomial of CRC-32 with its inverse."""


def _lower_fold(function: Function, context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    """The CRC of blocks of 16 bytes, of which there is at least one. A block is multiplied, and added to a later one.

    Four blocks at a time move by 64 bytes, because a multiplication waits for the one before. The method and the
    factors are those of "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009). For a
    processor without that instruction the function itself is compiled.
    """
    if "+pclmul" not in context.codegen().magic_tuple()[2].split(","):
        return context.compile_internal(builder, function, signature, arguments)
    kind = ir.FunctionType(_PAIR, [_PAIR, _PAIR, ir.IntType(8)])
    multiply = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", (), kind)
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    start, length, crc = (context.cast(builder, arguments[n], signature.args[n], types.int64) for n in (1, 2, 3))
    at = cgutils.alloca_once_value(builder, start)

    def product(one: ir.Value, other: ir.Value, halves: int) -> ir.Value:
        return builder.call(multiply, [one, other, ir.IntType(8)(halves)])

    def next_block() -> ir.Value:
        position = builder.load(at)
        builder.store(builder.add(position, _WORD(16)), at)
        return builder.load(builder.bitcast(builder.gep(data, [position]), _PAIR.as_pointer()), align=1)

    def move(lane: ir.Value, factors: ir.Value, later: ir.Value) -> None:
        block = builder.load(lane)
        moved = builder.xor(product(block, factors, 0x00), product(block, factors, 0x11))
        builder.store(builder.xor(moved, later), lane)

    def shifted(block: ir.Value, bits: int) -> ir.Value:
        whole = ir.IntType(128)
        return builder.bitcast(builder.lshr(builder.bitcast(block, whole), whole(bits)), _PAIR)

    def low_halves(block: ir.Value) -> ir.Value:
        return builder.and_(block, ir.Constant(_PAIR, (0xFFFFFFFF, 0xFFFFFFFF)))

    before = builder.and_(crc, _WORD(0xFFFFFFFF))
    before = builder.insert_element(ir.Constant(_PAIR, (0, 0)), before, ir.IntType(32)(0))
    lanes = [cgutils.alloca_once_value(builder, builder.xor(next_block(), before))]
    more = builder.sub(builder.lshr(length, _WORD(6)), _WORD(1))
    with builder.if_then(builder.icmp_signed(">", more, _WORD(0))):
        lanes += [cgutils.alloca_once_value(builder, next_block()) for _ in range(3)]
        with cgutils.for_range(builder, more):
            for lane in lanes:
                move(lane, _BY_64, next_block())
        for lane in lanes[1:]:
            move(lanes[0], _BY_16, builder.load(lane))
    left = builder.sub(builder.add(start, length), builder.load(at))
    with cgutils.for_range(builder, builder.lshr(left, _WORD(4))):
        move(lanes[0], _BY_16, next_block())
    # The remainder of the last block, first of 8 bytes, then of 4 (Barrett's reduction).
    last = builder.load(lanes[0])
    last = builder.xor(shifted(last, 64), product(last, _BY_16, 0x10))
    last = builder.xor(shifted(last, 32), product(low_halves(last), _BY_4, 0x00))
    quotient = low_halves(product(low_halves(last), _POLYNOMIAL, 0x10))
    rest = builder.xor(last, product(quotient, _POLYNOMIAL, 0x00))
    return builder.lshr(builder.extract_element(rest, ir.IntType(32)(0)), _WORD(32))


_COPIED = (types.Array, types.Integer, types.Array, types.Integer, types.Integer)
_OTHERS: Mapping[str, tuple[Callable[..., ir.Value], Any, tuple[Any, ...]]] = {
    "prefetch": (_lower_prefetch, types.none, (types.Array, types.Integer)),
    "index": (_lower_index, types.int64, (types.Array, types.Integer, types.Integer)),
    "copy": (_lower_copy, types.none, _COPIED),
    "append": (_lower_append, types.none, _COPIED),
    "pread": (_lower_pread, types.int64, (types.Integer,) * 4),
}
