"""A manifest counts only while every staged file is as it says, and goes first when the folder is cleared. No Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import StorageError
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE
from spark_mq.indexer.manifest import MANIFEST, STAGED, Manifest, StagedSegment
from spark_mq.indexer.rebuild_plan import StagingSettings
from spark_mq.indexer.staged_files import RUN_SCHEMA, STAGED_ENTRY_SIZE, SplitRow, StagedEntriesWriter, StagedUnits
from spark_mq.io.location import Location
from spark_mq.job.output_committer import WORK_FOLDER, OutputCommitter
from tests.support.stores import tree_of

SETTINGS = StagingSettings(
    6_000_000, "1s 5s", version="1", store="/store", trees=("consumequeue", "index"), replace=False
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a job that staged two segments of two splits each; one split has no units, and one no entry."""
    folder = tmp_path / WORK_FOLDER
    (folder / STAGED).mkdir(parents=True)
    manifest = Manifest(SETTINGS)
    staged: dict[int, list[tuple[tuple[int, ...], int]]] = {0: [((3, 2), 5), ((), 7)], 100: [((1,), 0), ((4,), 2)]}
    for segment, splits in staged.items():
        rows = [split_row(folder, segment, runs, entries) for runs, entries in splits]
        manifest = manifest.with_staged([StagedSegment(segment, 100, 1)], rows)
    (folder / "consumequeue" / "T" / "0").mkdir(parents=True)
    (folder / "consumequeue" / "T" / "0" / ("0" * 20)).write_bytes(b"units")
    manifest.save(location(folder))
    assert Manifest.load(location(folder)) == manifest
    assert len(staged_files(folder)) == 6
    return folder


def location(folder: Path) -> Location:
    return Location.resolve(str(folder))


def units_of(folder: Path, counts: tuple[int, ...]) -> StagedUnits:
    """Staged runs of as many units; the offset of each unit is its number."""
    units = np.zeros(sum(counts), UNIT_DTYPE)
    units["commit_log_offset"] = np.arange(units.size)
    columns: dict[str, Any] = {name: list(range(len(counts))) for name in RUN_SCHEMA.names}
    columns |= {"topic": [f"T{number}" for number in range(len(counts))], "unit_count": list(counts)}
    return StagedUnits.write(location(folder), units, pa.RecordBatch.from_pydict(columns, schema=RUN_SCHEMA))


def split_row(folder: Path, segment: int, counts: tuple[int, ...], entries: int) -> SplitRow:
    units = units_of(folder / STAGED, counts) if counts else None
    with StagedEntriesWriter(location(folder) / STAGED) as writer:
        writer.add(np.zeros(entries * STAGED_ENTRY_SIZE, np.uint8))
    numbers = vars(SplitRow(0, 0, 0))
    names = {"units_file": units and units.location.name, "entries_file": writer.staged.location.name}
    sizes = {} if units is None else {"units": units.units, "runs": units.runs, "units_size": units.size}
    counted = {"segment": segment, "corrupt": (), "index_entries": entries, "unit_size": UNIT_SIZE}
    return SplitRow(**{**numbers, **names, **sizes, **counted})


def staged_files(folder: Path) -> list[Path]:
    return sorted((folder / STAGED).iterdir())


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_the_directory_finds_the_units_of_each_run(tmp_path_factory: pytest.TempPathFactory, counts: list[int]) -> None:
    staged = units_of(tmp_path_factory.mktemp("units"), tuple(counts))
    runs = staged.read_runs()
    assert runs["unit_count"].to_pylist() == counts
    assert runs["first_unit"].to_pylist() == [sum(counts[:number]) for number in range(len(counts))]
    content = Path(staged.location.path).read_bytes()
    units = np.frombuffer(content, UNIT_DTYPE, sum(counts))
    assert units["commit_log_offset"].tolist() == list(range(sum(counts)))
    assert (staged.size, staged.units * UNIT_SIZE < staged.size) == (len(content), True)


def test_a_directory_of_other_runs_is_refused(tmp_path: Path) -> None:
    staged = units_of(tmp_path, (3, 2))
    for other in (replace(staged, runs=1), replace(staged, units=4), replace(staged, size=staged.size - 30)):
        with pytest.raises(StorageError, match="without --resume"):
            other.read_runs()


def remove(file: Path) -> None:
    file.unlink()


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("change", [remove, shorten, empty])
def test_a_file_that_is_not_as_it_was(folder: Path, change: Callable[[Path], None]) -> None:
    for file in staged_files(folder):
        content = file.read_bytes()
        change(file)
        assert Manifest.load(location(folder)) is None, file
        file.write_bytes(content)
    assert Manifest.load(location(folder)) is not None


def test_a_file_that_is_zeros(folder: Path) -> None:
    """What a machine that lost its power can leave."""
    file = next(file for file in staged_files(folder) if file.suffix == ".units")
    file.write_bytes(bytes(file.stat().st_size))
    assert Manifest.load(location(folder)) is None


def test_a_manifest_of_an_older_form(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"splits"', '"rounds"'))
    assert Manifest.load(location(folder)) is None


def test_wherever_the_clearing_ends_nothing_is_believed(folder: Path) -> None:
    """Every removal, one by one: before the first the folder is as it was, after it the manifest is gone."""
    removals = 0
    remaining = len(list(folder.rglob("*")))
    while remaining:
        with pytest.raises(KeyboardInterrupt), stopped_at(2):
            OutputCommitter(location(folder.parent), SETTINGS.trees, MANIFEST).clear()
        assert Manifest.load(location(folder)) is None
        removals += 1
        remaining -= 1
        assert len(list(folder.rglob("*"))) == remaining
        if removals == 1:
            assert len(staged_files(folder)) == 6
    OutputCommitter(location(folder.parent), SETTINGS.trees, MANIFEST).clear()
    assert list(folder.iterdir()) == []


def test_before_the_first_removal_the_folder_is_as_it_was(folder: Path) -> None:
    before = tree_of(folder)
    with pytest.raises(KeyboardInterrupt), stopped_at(1):
        OutputCommitter(location(folder.parent), SETTINGS.trees, MANIFEST).clear()
    assert tree_of(folder) == before
    assert Manifest.load(location(folder)) is not None


def stopped_at(number: int) -> Any:
    """A context in which the n-th removal of a file or a folder ends the job instead."""
    calls = 0

    def counting(function: Callable[..., None]) -> Callable[..., None]:
        def removing(*arguments: Any, **named: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                raise KeyboardInterrupt
            function(*arguments, **named)

        return removing

    return mock.patch.multiple(os, unlink=counting(os.unlink), rmdir=counting(os.rmdir))


def test_what_no_manifest_names_goes_when_a_job_continues(folder: Path) -> None:
    manifest = Manifest.load(location(folder))
    assert manifest is not None
    before = tree_of(folder)
    (folder / STAGED / "stray.units").write_bytes(b"half")
    (folder / STAGED / "stray.entries").write_bytes(b"half")
    manifest.remove_others(location(folder))
    assert tree_of(folder) == before
