"""Extension units: hostile bytes never lead to an error, one unit and many units are read alike."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.consume_queue_ext import ExtUnit, is_address, offset_of, offsets_of, parse_unit, parse_units

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UNITS = st.builds(ExtUnit, INT64, INT64, st.binary(max_size=40))


@given(UNITS, st.binary(max_size=8))
def test_a_unit_is_read_as_it_was_written(unit: ExtUnit, rest: bytes) -> None:
    assert parse_unit(unit.encode() + rest) == unit
    assert parse_unit(unit.encode()[:-1]) is None


@given(st.lists(UNITS | st.binary(max_size=60), max_size=12), st.lists(st.integers(-30, 400), max_size=20))
def test_many_units_are_read_as_single_ones(pieces: list[ExtUnit | bytes], more: list[int]) -> None:
    encoded = [piece.encode() if isinstance(piece, ExtUnit) else piece for piece in pieces]
    data = b"".join(encoded)
    ends = np.cumsum([0, *map(len, encoded)]).tolist()
    positions = np.array([*ends, *more], np.int64)
    found = parse_units(np.frombuffer(data, np.uint8), positions)
    for index, position in enumerate(positions.tolist()):
        one = parse_unit(data[position:]) if 0 <= position < len(data) else None
        assert found.is_found[index] == (one is not None)
        if one is not None:
            assert (found.tags_code[index], found.store_timestamp[index]) == (one.tags_code, one.store_timestamp)
            assert found.bit_map[index] == one.bit_map


@given(st.integers(0, (1 << 63) - (1 << 31) - 1))
def test_an_address_leads_to_its_offset(offset: int) -> None:
    address = offset - (1 << 63)
    assert is_address(address)
    assert offset_of(address) == offset
    assert offsets_of(np.array([address])).tolist() == [offset]


def test_tags_codes_are_not_addresses() -> None:
    assert not is_address(-(1 << 31))
    assert not is_address(0)
    assert is_address(-(1 << 31) - 1)


def test_sizes_that_contradict_each_other() -> None:
    unit = ExtUnit(1, 2, b"abc").encode()
    assert parse_unit(struct.pack(">h", 22) + unit[2:]) is None
    assert parse_unit(unit[:18] + struct.pack(">h", -1) + unit[20:]) is None
    assert parse_unit(bytes(40)) is None
