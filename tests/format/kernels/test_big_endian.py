"""The two forms of `big_endian`: plain Python, and the machine instructions that a kernel gets instead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.array_types import Bytes, OutBytes, OutInt64s
from spark_mq.format.kernels.big_endian import (
    SLACK,
    append_bytes,
    byte_at,
    copy_bytes,
    index_in_eight,
    prefetch,
    read_i16,
    read_i32,
    read_i64,
    read_u32,
    write_i32,
    write_i64,
)
from spark_mq.format.kernels.kernel import KERNELS, kernel
from tests.support.kernels import WITHOUT_JIT, array

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@kernel
def read_all(buffer: Bytes, position: int, values: OutInt64s) -> None:
    values[0] = byte_at(buffer, position)
    values[1] = read_u32(buffer, position)
    values[2] = read_i16(buffer, position)
    values[3] = read_i32(buffer, position)
    values[4] = read_i64(buffer, position)


@kernel
def index_of(buffer: Bytes, position: int, byte: int) -> int:
    return index_in_eight(buffer, position, byte)


@kernel
def copy(target: OutBytes, at: int, source: Bytes, start: int, length: int) -> None:
    copy_bytes(target, at, source, start, length)


@kernel
def append(target: OutBytes, at: int, source: Bytes, start: int, length: int) -> None:
    append_bytes(target, at, source, start, length)


@kernel
def load_ahead(buffer: Bytes, position: int) -> None:
    prefetch(buffer, position)


@kernel
def write_all(buffer: OutBytes, position: int, value: int) -> None:
    write_i32(buffer, position, value)
    write_i64(buffer, position + 4, value)


if not WITHOUT_JIT:
    KERNELS[:] = [each for each in KERNELS if each.__module__ != __name__]  # not of the package


@given(st.binary(min_size=11, max_size=11), st.integers(0, 3))
def test_both_forms_read_what_java_reads(data: bytes, position: int) -> None:
    part = data[position:]
    expected = [part[0], int.from_bytes(part[:4], "big")]
    expected += [int.from_bytes(part[:size], "big", signed=True) for size in (2, 4, 8)]
    values = np.empty(5, np.int64)
    read_all(array(data), position, values)
    assert values.tolist() == expected
    plain = [read(array(data), position) for read in (byte_at, read_u32, read_i16, read_i32, read_i64)]
    assert plain == expected


@given(INT64, st.integers(0, 3))
def test_both_forms_write_what_java_writes(value: int, position: int) -> None:
    expected = bytes(position) + (value & 0xFFFFFFFF).to_bytes(4, "big") + value.to_bytes(8, "big", signed=True)
    compiled, plain = np.zeros(position + 12, np.uint8), np.zeros(position + 12, np.uint8)
    write_all(compiled, position, value)
    write_i32(plain, position, value)
    write_i64(plain, position + 4, value)
    assert compiled.tobytes() == plain.tobytes() == expected


@given(st.lists(st.sampled_from([0, 1, 2, 3, 0x82, 0xFF]), min_size=9, max_size=9).map(bytes), st.integers(0, 1))
def test_both_forms_find_the_first_of_eight_bytes(data: bytes, position: int) -> None:
    for byte in (0, 2, 0xFF):
        expected = (data[position : position + 8] + bytes((byte,))).index(byte)
        assert index_of(array(data), position, byte) == index_in_eight(array(data), position, byte) == expected


@given(st.binary(min_size=9, max_size=9), st.integers(0, 3), st.integers(0, 3), st.integers(-1, 6))
def test_both_forms_copy_bytes(data: bytes, at: int, start: int, length: int) -> None:
    expected = bytearray(9)
    expected[at : at + max(length, 0)] = data[start : start + max(length, 0)]
    compiled, plain = np.zeros(9, np.uint8), np.zeros(9, np.uint8)
    copy(compiled, at, array(data), start, length)
    copy_bytes(plain, at, array(data), start, length)
    assert compiled.tobytes() == plain.tobytes() == expected


@given(st.integers(0, SLACK + 3), st.integers(0, SLACK + 3), st.integers(-1, SLACK + 4), st.integers(0, SLACK))
def test_both_forms_append_bytes_and_write_nothing_before_them_or_after_the_target(
    at: int, start: int, length: int, rest: int
) -> None:
    size = max(length, 0)
    memory, source = np.full(at + size + rest + SLACK, 0xEE, np.uint8), np.arange(start + size + rest, dtype=np.uint8)
    expected = memory[:at].tobytes() + source[start : start + size].tobytes()
    for form in (append, append_bytes):
        target = memory[: at + size + rest].copy()
        around = np.concatenate((target, memory[-SLACK:]))
        form(around[: target.size], at, source, start, length)
        assert around[: at + size].tobytes() == expected
        assert around[target.size :].tobytes() == b"\xee" * SLACK


@pytest.mark.skipif(WITHOUT_JIT, reason="Python has one form only")
def test_a_kernel_takes_read_only_and_strided_arrays_and_fills_only_new_ones() -> None:
    values = np.empty(5, np.int64)
    read_all(np.ones(8, np.uint8), 0, values)
    read_all(array(bytes(8)), 0, values)
    values.flags.writeable = False
    with pytest.raises(TypeError):
        read_all(array(bytes(8)), 0, values)


@pytest.mark.parametrize("position", [0, 8, 1 << 40, -(1 << 40)])
def test_any_position_can_be_prefetched(position: int) -> None:
    load_ahead(array(bytes(8)), position)
    prefetch(array(bytes(8)), position)
