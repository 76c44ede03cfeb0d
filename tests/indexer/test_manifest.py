"""Which staged segments still count for a log that grew, expired, or was written over. No Spark here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.indexer.manifest import MANIFEST, Manifest, StagedSegment, segments_now
from spark_mq.indexer.rebuild_plan import StagingSettings
from spark_mq.indexer.staged_files import SplitRow
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.testing import LogWriter

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
    numbers = vars(SplitRow(0, 0, 0))
    nothing: dict[str, Any] = {"corrupt": (), "units_file": None, "entries_file": None, "time_steps_back": False}
    return SplitRow(**{**numbers, **nothing, "segment": segment.base, "messages": messages})


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
def test_each_job_reads_what_may_have_changed_and_nothing_else(
    history: list[tuple[list[StagedSegment], bool]],
) -> None:
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
