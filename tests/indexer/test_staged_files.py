"""A manifest counts only while every staged file is as it says, and goes first when the folder is cleared. No Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_mq.indexer.index.staged_entries import EntryBatch, StagedEntriesWriter
from spark_mq.indexer.manifest import MANIFEST, Manifest, StagedSegment
from spark_mq.indexer.settings import StagingSettings
from spark_mq.indexer.staged_files import INDEX_ENTRIES, StagedFile, parquet_files
from spark_mq.io.location import Location
from spark_mq.job.output_committer import WORK_FOLDER, OutputCommitter
from tests.support.stores import tree_of

SETTINGS = StagingSettings("1", "/store", ("consumequeue", "index"), 6_000_000, "1s 5s", replace=False)
ROUNDS = ("dispatch-a", "dispatch-b")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a job that staged two rounds of three files and two blobs each."""
    folder = tmp_path / WORK_FOLDER
    manifest = Manifest(SETTINGS)
    (folder / INDEX_ENTRIES).mkdir(parents=True)
    for number, name in enumerate(ROUNDS):
        (folder / name).mkdir()
        for part in range(3):
            pq.write_table(pa.table({"a": list(range(part + 1))}), folder / name / f"part-{part}.parquet")
        (folder / name / "_SUCCESS").touch()
        files = [*parquet_files(location(folder), name), write_blob(folder, 5), write_blob(folder, 7)]
        manifest = manifest.with_round(name, [StagedSegment(100 * number, 100, 1)], files)
    (folder / "consumequeue" / "T" / "0").mkdir(parents=True)
    (folder / "consumequeue" / "T" / "0" / ("0" * 20)).write_bytes(b"units")
    manifest.save(location(folder))
    assert Manifest.load(location(folder)) == manifest
    assert [file.rows for file in manifest.rounds[0].files] == [1, 2, 3, 5, 7]
    return folder


def location(folder: Path) -> Location:
    return Location.resolve(str(folder))


def write_blob(folder: Path, count: int) -> StagedFile:
    with StagedEntriesWriter(location(folder) / INDEX_ENTRIES) as writer:
        writer.add(EntryBatch(np.zeros(count, np.int32), np.zeros(count, np.int64), np.zeros(count, np.int64)))
    file = Path(writer.staged.location.path)
    return StagedFile(f"{INDEX_ENTRIES}/{file.name}", file.stat().st_size, writer.staged.count)


def staged(folder: Path) -> list[Path]:
    return sorted([*folder.rglob("*.parquet"), *(folder / INDEX_ENTRIES).iterdir()])


def remove(file: Path) -> None:
    file.unlink()


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("change", [remove, shorten, empty])
def test_a_file_that_is_not_as_it_was(folder: Path, change: Callable[[Path], None]) -> None:
    for file in staged(folder):
        content = file.read_bytes()
        change(file)
        assert Manifest.load(location(folder)) is None, file
        file.write_bytes(content)
    assert Manifest.load(location(folder)) is not None


def test_a_parquet_file_of_the_same_size_with_other_rows(folder: Path) -> None:
    file = folder / ROUNDS[0] / "part-1.parquet"
    size = file.stat().st_size
    pq.write_table(pa.table({"a": [1]}), file)
    file.write_bytes(b"PAR1" + bytes(size - file.stat().st_size) + file.read_bytes()[4:])
    assert file.stat().st_size == size
    assert Manifest.load(location(folder)) is None


def test_a_parquet_file_that_is_zeros(folder: Path) -> None:
    """What a machine that lost its power can leave."""
    file = folder / ROUNDS[1] / "part-2.parquet"
    file.write_bytes(bytes(file.stat().st_size))
    assert Manifest.load(location(folder)) is None


def test_a_parquet_file_too_many(folder: Path) -> None:
    """Spark reads a folder whole."""
    (folder / ROUNDS[0] / "part-9.parquet").write_bytes((folder / ROUNDS[0] / "part-0.parquet").read_bytes())
    assert Manifest.load(location(folder)) is None


def test_a_manifest_of_an_older_form(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"files"', '"none"'))
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
            assert len(staged(folder)) == 10
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
    (folder / "dispatch-c").mkdir()
    (folder / "dispatch-c" / "part-0.parquet").write_bytes(b"half")
    (folder / INDEX_ENTRIES / "stray").write_bytes(b"half")
    OutputCommitter(location(folder.parent), SETTINGS.trees).remove_staged(manifest.unlisted(location(folder)))
    assert tree_of(folder) == before
