"""Ranges of a file that compiled code reads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.kernels import gather as file_ranges
from spark_mq.format.kernels.frames import new_frames
from spark_mq.format.kernels.gather import MOST_READ, read_ranges, read_records
from spark_mq.testing import LogWriter
from tests.support.soak import SOAKS

_CONTENT = np.random.default_rng(7).integers(0, 256, 10_000, np.uint8).tobytes()
_POSITIONS = st.integers(0, len(_CONTENT))


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    file: Path = tmp_path_factory.mktemp("ranges") / "file"
    file.write_bytes(_CONTENT)
    opened = os.open(file, os.O_RDONLY)
    yield opened
    os.close(opened)


def read(descriptor: int, ranges: list[tuple[int, int]], room: int) -> bytes | None:
    out = np.zeros(room, np.uint8)
    starts, stops = (np.array([part[end] for part in ranges], np.int64) for end in (0, 1))
    return out.tobytes() if read_ranges(descriptor, starts, stops, out) else None


@given(ranges=st.lists(st.tuples(_POSITIONS, _POSITIONS).map(lambda part: (min(part), max(part))), max_size=20))
def test_the_ranges_follow_one_another(descriptor: int, ranges: list[tuple[int, int]]) -> None:
    expected = b"".join(_CONTENT[start:stop] for start, stop in ranges)
    assert read(descriptor, ranges, len(expected)) == expected


@pytest.mark.parametrize(
    ("ranges", "room"),
    [
        ([(9_000, 10_001)], 1_001),  # the file ends before
        ([(20_000, 20_001)], 1),
        ([(0, 10), (20, 30)], 19),  # no room
        ([(10, 9)], 100),
        ([(-1, 5)], 6),
    ],
)
def test_a_range_that_cannot_be_read_is_told(descriptor: int, ranges: list[tuple[int, int]], room: int) -> None:
    assert read(descriptor, ranges, room) is None


SIZES = [0, 900, 924, 925, 926, 3, 5_000, 1_000, 200_000, 1]
"""Bytes of bodies: records of less and more than the 1024 bytes that are read first, and of exactly as many."""


@pytest.mark.parametrize("room", [MOST_READ, 202_000, 220_000])
@pytest.mark.parametrize("torn", [0, 1])
def test_records_of_unknown_sizes(room: int, torn: int, tmp_path: Path) -> None:
    """Where something else is, or the file ends, is none. What has no room is read by the next call."""
    log = LogWriter(1 << 20)
    offsets = sorted([*(log.append(number, b"x" * size) for number, size in enumerate(SIZES)), 1, 3_000, 1 << 19])
    data = bytes(log.segments[0])
    records = [at for at in offsets if data[at + 28 : at + 36] == at.to_bytes(8, "big")]
    sizes = [int.from_bytes(data[at : at + 4], "big") for at in records]
    assert len(records) == len(SIZES)
    assert 1024 in sizes
    file = tmp_path / "file"
    file.write_bytes(bytes(7) + data[: len(data) - torn])
    out, frames, numbers = np.zeros(room, np.uint8), new_frames(len(offsets)), np.empty(len(offsets), np.int64)
    found, reached = [], 0
    with file.open("rb") as opened:
        while reached < len(offsets):
            where = opened.fileno(), -7, len(data), np.array(offsets), reached
            reached, filled, count = read_records(*where, out, 0, frames, numbers, 0)
            assert filled <= room
            for number, frame in zip(numbers[:count].tolist(), frames[:count], strict=True):
                at, size = int(frame.position), int(frame.store_size)
                found.append((offsets[number], out[at : at + size].tobytes()))
    whole = [(at, data[at : at + size]) for at, size in zip(records, sizes, strict=True)]
    assert found == whole[: len(whole) - torn]


def test_an_error_of_the_operating_system_is_told(tmp_path: Path) -> None:
    closed = os.open(tmp_path, os.O_RDONLY)  # a folder has no bytes
    assert read(closed, [(0, 1)], 1) is None
    os.close(closed)
    assert read(closed, [(0, 1)], 1) is None


@pytest.mark.parametrize("most", [1, 7, 4_000])
def test_short_reads_are_gone_on_with(descriptor: int, most: int) -> None:
    def pread(*arguments: Any) -> int:
        number, address, size, position = map(int, arguments)
        data = os.pread(number, min(size, most), position)
        ctypes.memmove(address, data, len(data))
        return len(data)

    out = np.zeros(5_000, np.uint8)
    starts, stops = np.array([100, 9_000, 0]), np.array([4_100, 9_000, 1_000])
    assert with_pread(pread)(descriptor, starts, stops, out)
    assert out.tobytes() == _CONTENT[100:4_100] + _CONTENT[:1_000]


def test_a_call_that_fails_after_others_is_told(descriptor: int) -> None:
    """An interrupted call, too: the caller then reads in another way."""
    answers = iter([10, -1])
    assert not with_pread(lambda *_: next(answers))(descriptor, np.array([0]), np.array([100]), np.zeros(100, np.uint8))


def with_pread(pread: Callable[..., int]) -> Callable[..., bool]:
    """The loop of the kernel as Python, over another call of the system."""
    plain = getattr(read_ranges, "__wrapped__", read_ranges)
    return FunctionType(plain.__code__, {**file_ranges.__dict__, "pread": pread})


def test_a_range_beyond_four_gigabytes(tmp_path: Path) -> None:
    """And, in a soak, one of more bytes than one call returns."""
    first, size = (1 << 32) + 12_345, (1 << 31) + (1 << 20) if SOAKS else 1 << 20
    with (tmp_path / "file").open("w+b") as file:
        file.truncate(first + size)  # a hole, which takes no room on the disk
        for position in (first, first + size - 5_000):
            file.seek(position)
            file.write(_CONTENT[:5_000])
        file.flush()
        out = np.full(size, 255, np.uint8)
        assert read_ranges(file.fileno(), np.array([first]), np.array([first + size]), out)
        assert out[:5_000].tobytes() == out[-5_000:].tobytes() == _CONTENT[:5_000]
        assert not out[5_000:-5_000].any()
