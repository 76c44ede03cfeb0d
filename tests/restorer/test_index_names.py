"""Index files that get the names that they had."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.format.index_file import HEADER
from spark_mq.io.location import Location
from spark_mq.restorer.new_store import restore_index_names


def write_index(folder: Path, files: dict[str, int]) -> None:
    (folder / "index").mkdir()
    for name, begin in files.items():
        (folder / "index" / name).write_bytes(HEADER.pack(1, 1, begin, begin, 0, 1))


def begins(folder: Path) -> dict[str, int]:
    return {path.name: HEADER.unpack(path.read_bytes())[2] for path in sorted((folder / "index").iterdir())}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({10: "20250101000000005", 20: "20250101000000010"}, {"20250101000000005": 10, "20250101000000010": 20}),
        # the new name of the first file is the old name of the second one
        ({10: "20250101000000002", 20: "20250101000000009"}, {"20250101000000002": 10, "20250101000000009": 20}),
        ({20: "20250101000000009"}, {"20250101000000001": 10, "20250101000000009": 20}),
        # another order, or two files of one name
        ({10: "20250101000000007"}, {"20250101000000001": 10, "20250101000000002": 20}),
        ({10: "20250101000000002"}, {"20250101000000001": 10, "20250101000000002": 20}),
        ({}, {"20250101000000001": 10, "20250101000000002": 20}),
    ],
)
def test_files_get_the_names_that_keep_their_order(
    tmp_path: Path, names: dict[int, str], expected: dict[str, int]
) -> None:
    write_index(tmp_path, {"20250101000000001": 10, "20250101000000002": 20})
    old = begins(tmp_path)
    count = restore_index_names(Location.resolve(str(tmp_path)), names)
    assert begins(tmp_path) == expected
    assert count == len(set(expected) - set(old)) + sum(
        old.get(name, begin) != begin for name, begin in expected.items()
    )
