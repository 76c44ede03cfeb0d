"""Ranges of a file that compiled code reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.kernels.file_ranges import read_ranges

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


def test_an_error_of_the_operating_system_is_told(tmp_path: Path) -> None:
    closed = os.open(tmp_path, os.O_RDONLY)  # a folder has no bytes
    assert read(closed, [(0, 1)], 1) is None
    os.close(closed)
    assert read(closed, [(0, 1)], 1) is None
