"""Which staged segments count for a log that grew, expired, or was written over, and if files are lost. No Spark."""

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
from spark_mq.indexer.manifest import MANIFEST, STAGED, Manifest, StagedSegment, segments_now
from spark_mq.indexer.rebuild_plan import StagingSettings
from spark_mq.indexer.staged_files import RUN_SCHEMA, STAGED_ENTRY_SIZE, SplitRow, StagedEntriesWriter, StagedUnits
from spark_mq.io.location import Location
from spark_mq.job.output_committer import WORK_FOLDER, OutputCommitter
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.testing import LogWriter
from tests.support.stores import tree_of

SIZE = 100
SETTINGS = StagingSettings(
    6_000_000, "1s 5s", version="1", store="/store", trees=("consumequeue", "index"), replace=False
)

Version = tuple[int, int]
"""A segment's number, and how often it was changed."""


def segments(versions: list[Version], first: int = 0) -> list[StagedSegment]:
    """A log of these segments; the last one is still appended to."""
    made = [StagedSegment(number * SIZE, SIZE, 1000 + changes) for number, changes in versions if number >= first]
    return [*made[:-1], replace(made[-1], mtime_ns=None)]


def split_row(segment: StagedSegment, messages: int) -> SplitRow:
    """A row of a segment that is one split and staged nothing; the number of messages tells rows apart."""
    return SplitRow(segment.base, 0, 0, messages=messages)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list[StagedSegment], bool]]:
    """The log at each of several jobs, and whether the job read a segment again: it grows, is cut, and expires."""
    versions = [(0, 0)]
    first, changes, history = 0, 0, []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):  # a recovery cuts the log within a segment, and what comes is written over the rest
            changes += 1
            kept = draw(st.integers(first, versions[-1][0]))
            versions = [*versions[:kept], (kept, changes)]
        for _ in range(draw(st.integers(0, 3))):
            versions.append((len(versions), changes))
        first = draw(st.integers(first, versions[-1][0]))
        history.append((segments(versions, first), draw(st.booleans())))
    return history


@given(histories())
def test_each_job_reads_what_may_have_changed_and_nothing_else(history: list[tuple[list[StagedSegment], bool]]) -> None:
    manifest = Manifest(SETTINGS)
    read_as: dict[int, StagedSegment] = {}
    for number, (log, is_read_again) in enumerate(history):
        fitting = manifest.fitting(log)
        for segment in log:
            was_read = read_as.get(segment.base)
            assert (segment.base in fitting.bases) == (was_read is not None and was_read == segment != log[-1])
        expired = sorted(base for base in fitting.bases if base < log[0].base)
        assert expired == [log[0].base - SIZE * back for back in range(len(expired), 0, -1)]
        assert all(read_as[base].mtime_ns is not None for base in expired)
        missing = [segment for segment in log if segment.base not in fitting.bases]
        manifest = fitting.with_staged(missing, [split_row(segment, number) for segment in missing])
        if is_read_again:
            manifest = manifest.with_staged([log[0]], [split_row(log[0], -number)])
        read_as = {base: one for base, one in read_as.items() if base in fitting.bases} | {s.base: s for s in missing}
        assert sorted(segment.base for segment in manifest.segments) == sorted(read_as)
        assert sorted(split.segment for split in manifest.splits) == sorted(read_as)
        if is_read_again:
            assert [split.messages for split in manifest.splits if split.segment == log[0].base] == [-number]


def test_it_can_be_read_again(tmp_path: Path) -> None:
    folder = Location.resolve(str(tmp_path))
    staged = segments([(0, 0), (1, 0)])
    damage = CorruptRange("/store/commitlog/0", 3, 4, "BAD_CRC", "\udc80 a reason")
    rows = [split_row(staged[0], 7), replace(split_row(staged[1], 8), corrupt=(damage,))]
    manifest = Manifest(SETTINGS).with_staged(staged, rows)
    manifest.save(folder)
    assert Manifest.load(folder) == manifest


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"settings": 1}', b"\xff\xfe", b'{"settings": {}, "segments": [], "splits": []}']
)
def test_what_is_no_manifest_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    assert Manifest.load(Location.resolve(str(tmp_path))) is None


def test_only_what_decides_about_staged_rows_is_compared() -> None:
    assert SETTINGS.stage_the_same_as(replace(SETTINGS, replace=True))
    for other in (
        replace(SETTINGS, version="2"),
        replace(SETTINGS, store="/other"),
        replace(SETTINGS, trees=("index",)),
        replace(SETTINGS, queue_file_size=2000),
        replace(SETTINGS, delay_levels="1s"),
    ):
        assert not SETTINGS.stage_the_same_as(other)


def test_the_segments_of_a_log(tmp_path: Path) -> None:
    writer = LogWriter(4096)
    for number in range(60):
        writer.append(1000 + number, bytes(100))
    store = writer.write(tmp_path)
    first, *_, last = segments_now(store, CommitLog.open(store))
    assert (first.base, first.size) == (0, 4096)
    assert first.mtime_ns == (tmp_path / "commitlog" / f"{0:020d}").stat().st_mtime_ns
    assert last.mtime_ns is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a job that staged two segments of two splits each; one split has no units, and one no entry."""
    folder = tmp_path / WORK_FOLDER
    (folder / STAGED).mkdir(parents=True)
    manifest = Manifest(SETTINGS)
    staged: dict[int, list[tuple[tuple[int, ...], int]]] = {0: [((3, 2), 5), ((), 7)], 100: [((1,), 0), ((4,), 2)]}
    for segment, splits in staged.items():
        rows = [staged_row(folder, segment, runs, entries) for runs, entries in splits]
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


def staged_row(folder: Path, segment: int, counts: tuple[int, ...], entries: int) -> SplitRow:
    units = units_of(folder / STAGED, counts) if counts else None
    with StagedEntriesWriter(location(folder) / STAGED) as writer:
        writer.add(np.zeros(entries * STAGED_ENTRY_SIZE, np.uint8))
    row = SplitRow(segment, 0, 0, entries_file=writer.staged.location.name, index_entries=entries)
    if units is not None:
        row.units_file, row.units, row.runs, row.units_size = units.location.name, units.units, units.runs, units.size
    return row


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
