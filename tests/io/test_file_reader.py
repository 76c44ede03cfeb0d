"""Local files: what is announced to the operating system, and what is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_mq.io.file_reader import FileReader, FileReaders, sample
from spark_mq.io.location import Location

needs_advice = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the operating system takes no advice")


@pytest.fixture
def advice(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges of which the operating system is told."""
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda file, start, length, kind: told.append((start, start + length)))
    return told


@pytest.fixture
def file(tmp_path: Path) -> Location:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 100)
    return Location.resolve(str(tmp_path / "file"))


@needs_advice
@pytest.mark.parametrize("is_cached", [True, False])
def test_ranges_are_announced_if_one_of_them_is_not_cached(
    is_cached: bool, file: Location, advice: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = list(range(0, 20_000, 1000))
    monkeypatch.setattr(FileReader, "is_cached", lambda reader, position: is_cached or position != sample(starts)[3])
    ranges = [(start, start + 10) for start in starts]
    with FileReader(file) as reader:
        reader.announce(starts, [stop for _, stop in ranges])
        assert advice == ([] if is_cached else ranges)
        assert reader.read(1000, 3) == bytes([232, 233, 234])


@needs_advice
def test_ranges_of_several_files_are_announced(
    file: Location, advice: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileReader, "is_cached", lambda reader, position: False)
    readers = FileReaders()
    readers.announce([(file, 5, 10), (file, 20, 30)])
    assert advice == [(5, 10), (20, 30)]
    readers.announce([])
    readers.close()


def test_bytes_that_were_just_written_are_cached(file: Location) -> None:
    with FileReader(file) as reader:
        assert reader.is_cached(0)
        assert reader.is_cached(10**6)


def test_above_the_limit_the_file_that_was_not_used_for_longest_is_closed(tmp_path: Path) -> None:
    readers = FileReaders()
    readers._most = 2
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
        assert readers.read(Location.resolve(str(tmp_path / name)), 0, 9) == name.encode()
    assert [Path(path).name for path in readers._open] == ["b", "c"]
    assert readers.bytes_read == 3
    readers.close()
