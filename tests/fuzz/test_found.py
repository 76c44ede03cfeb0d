"""The fuzz targets with the bytes with which their fuzzing begins, and those that once made a decoder fail."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

FOUND = sorted(path for path in (Path(__file__).parent / "found").rglob("*") if path.is_file())
_SEEDS = 10


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    target = TARGETS[name]
    seeds = list(islice(target.seeds(), _SEEDS))
    assert all(len(seed) <= target.max_len for seed in seeds)
    # The first seed is sound: else the fuzzer would try only what a decoder refuses at once.
    target.decode(seeds[0])
    for seed in [b"", *seeds, *(seed[: len(seed) // 2] for seed in seeds)]:
        target.run(seed)


@pytest.mark.parametrize("file", FOUND, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_found(file: Path) -> None:
    TARGETS[file.parent.name].run(file.read_bytes())
