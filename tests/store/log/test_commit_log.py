from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import StoreNotFoundError
from spark_mq.io.location import Location
from spark_mq.store.log import segment_files as data_end
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import MISSING, find_data_end
from spark_mq.testing import LogWriter, write_store
from tests.support.kernels import examples
from tests.support.readers import by_hopping, by_splits, offsets_of
from tests.support.stores import RealStore, usual_stores

SIZE = 4096
DATA = b"\1" * SIZE


def listed(log: CommitLog) -> list[tuple[int, int, int, bool]]:
    return [(segment.base, segment.size, segment.data_end, segment.is_last) for segment in log.segments]


def test_a_missing_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="does not exist: give the broker's store directory"):
        CommitLog.open(Location.resolve(str(tmp_path / "nowhere")))


def test_a_folder_without_a_commit_log_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="has no commitlog folder"):
        CommitLog.open(Location.resolve(str(tmp_path)))


def test_an_empty_commit_log_has_no_segments(tmp_path: Path) -> None:
    assert CommitLog.open(write_store(tmp_path, {})).segments == ()


def test_a_store_that_was_never_written_to_has_no_segments(tmp_path: Path) -> None:
    assert CommitLog.open(write_store(tmp_path, {0: b"", SIZE: b""}, SIZE)).segments == ()


@pytest.mark.parametrize("preallocated", [0, 1, 2])
def test_files_made_beforehand_are_left_out(preallocated: int, tmp_path: Path) -> None:
    segments = {0: DATA, SIZE: DATA[:100], **{SIZE * (2 + number): b"" for number in range(preallocated)}}
    log = CommitLog.open(write_store(tmp_path, segments, SIZE))
    assert listed(log) == [(0, SIZE, SIZE, False), (SIZE, SIZE, 100, True)]


def test_a_full_segment_before_a_new_file_is_the_last(tmp_path: Path) -> None:
    log = CommitLog.open(write_store(tmp_path, {0: DATA, SIZE: b""}, SIZE))
    assert listed(log) == [(0, SIZE, SIZE, True)]


def test_a_file_of_zeros_in_the_middle_is_a_segment(tmp_path: Path) -> None:
    log = CommitLog.open(write_store(tmp_path, {0: DATA, SIZE: b"", 2 * SIZE: DATA}, SIZE))
    assert [segment.base for segment in log.segments] == [0, SIZE, 2 * SIZE]


def test_segments_need_not_begin_at_zero(tmp_path: Path) -> None:
    log = CommitLog.open(write_store(tmp_path, {5 * SIZE: DATA, 6 * SIZE: DATA[:9]}, SIZE))
    assert listed(log) == [(5 * SIZE, SIZE, SIZE, False), (6 * SIZE, SIZE, 9, True)]
    assert log.gaps == []


def test_a_missing_segment_is_a_gap(tmp_path: Path) -> None:
    log = CommitLog.open(write_store(tmp_path, {0: DATA, 3 * SIZE: DATA}, SIZE))
    (gap,) = log.gaps
    assert (gap.commit_log_offset, gap.length, gap.code) == (SIZE, 2 * SIZE, MISSING)
    assert gap.file == str(tmp_path / "commitlog" / f"{SIZE:020d}")
    assert f"{2 * SIZE} bytes from commit log offset {SIZE}" in gap.describe()


def test_a_cut_file_in_the_middle_leaves_a_gap(tmp_path: Path) -> None:
    log = CommitLog.open(write_store(tmp_path, {0: DATA[:1000], SIZE: DATA}))
    assert listed(log)[0] == (0, 1000, 1000, False)
    assert [(gap.commit_log_offset, gap.length) for gap in log.gaps] == [(1000, SIZE - 1000)]


def test_the_records_of_a_cut_segment_and_of_those_behind_it_are_read(tmp_path: Path) -> None:
    writer = LogWriter(SIZE)
    for number in range(80):
        writer.append(1000 + number, bytes(20))
    segments = {base: bytes(data).ljust(SIZE, b"\0") for base, data in writer.segments.items()}
    cut = writer.offsets[5] + 50
    segments[0] = segments[0][:cut]
    log = CommitLog.open(write_store(tmp_path, segments))
    parts = by_hopping(log)
    assert offsets_of(parts) == [offset for offset in writer.offsets if offset < cut - 50 or offset >= SIZE]
    assert [part[:3] for part in parts if part[0] != "RECORD"] == [("BAD_SIZE", writer.offsets[5], 50)]
    assert by_splits(log, 1000) == parts


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_real_store_s_segments_lie_between_the_broker_s_offsets(store: RealStore, tmp_path: Path) -> None:
    log = CommitLog.open(Location.resolve(str(store.unpack(tmp_path))))
    (fact,) = store.facts("store")
    size = fact["mappedFileSizeCommitLog"]
    assert log.segments[0].base == fact["minPhyOffset"]
    assert {segment.size for segment in log.segments} == {size}
    assert log.segments[-1].base == (fact["maxPhyOffset"] - 1) // size * size
    assert log.segments[-1].base + log.segments[-1].data_end >= fact["maxPhyOffset"] - 2
    assert log.gaps == []


def write_sparse(path: Path, size: int, pieces: list[tuple[int, bytes]]) -> bytes:
    """A sparse file with these pieces; returns its content."""
    with open(path, "wb") as file:
        file.truncate(size)
        for place, data in pieces:
            file.seek(place)
            file.write(data[: max(size - place, 0)])
    return path.read_bytes()


@settings(max_examples=examples(100))
@given(
    st.integers(0, 40_000),
    st.lists(
        st.tuples(st.integers(0, 40_000), st.sampled_from([b"\1", b"\0" * 50, b"\0\0\7", b"x" * 5000])), max_size=4
    ),
    st.sampled_from([7, 1000, 4096]),
)
def test_behind_the_data_end_are_only_zeros(size: int, pieces: list[tuple[int, bytes]], block: int) -> None:
    with tempfile.NamedTemporaryFile() as file, mock.patch.object(data_end, "_ZERO_BLOCK", bytes(block)):
        content = write_sparse(Path(file.name), size, [piece for piece in pieces if piece[0] < size])
        assert len(content) == size
        assert find_data_end(Location.resolve(file.name), size) == len(content.rstrip(b"\0"))


def test_the_data_end_of_a_large_sparse_file_is_found_without_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, size = tmp_path / "sparse", 1 << 40
    try:
        with open(file, "wb") as stream:
            stream.write(b"data")
            stream.truncate(size)
    except OSError:
        pytest.skip("the filesystem has no file of 1 TiB")
    if os.stat(file).st_blocks > 100:
        pytest.skip("the filesystem has no holes")
    assert find_data_end(Location.resolve(str(file)), size) == 4
    monkeypatch.delattr(os, "SEEK_DATA")
    write_sparse(tmp_path / "small", 10_000_000, [(5, b"data")])
    assert find_data_end(Location.resolve(str(tmp_path / "small")), 10_000_000) == 9
