"""Records that are read by units, from a segment that is not as the units say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from spark_mq.errors import StoreChangedError
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.segment_files import SegmentFile
from spark_mq.store.queue import unit_reader as unit_records
from spark_mq.store.queue.unit_reader import read_chunk, records_of_units
from spark_mq.testing import LogWriter

LOG = LogWriter(1 << 16)
OFFSETS = np.array([LOG.append(number, b"x" * (number * 37 % 500)) for number in range(50)])
SIZES = np.diff([*OFFSETS, LOG.next_offset])
CHOSEN = np.flatnonzero(np.arange(50) % 3)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the kernel reads, or the way that is left if the kernel gives up."""
    if request.param == "call by call":
        monkeypatch.setattr(unit_records, "read_ranges", lambda *_: False)


WAYS = pytest.mark.parametrize("way", ["by the kernel", "call by call"], indirect=True)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordLookup]:
    store, files = LOG.write(tmp_path / "store"), FileReaders()
    yield RecordLookup(store, files)
    files.close()


def content(segment: SegmentFile, gap: int) -> list[bytes] | None:
    found = read_chunk(segment, OFFSETS[CHOSEN], SIZES[CHOSEN], gap)
    if found is None:
        return None
    places = zip(found.frames.position.tolist(), found.frames.store_size.tolist(), strict=True)
    return [found.buffer[at : at + size].tobytes() for at, size in places]


@WAYS
@pytest.mark.parametrize("gap", [0, 300, 1 << 20])
@pytest.mark.usefixtures("way")
def test_records_are_those_of_the_log(gap: int, records: RecordLookup) -> None:
    expected = [bytes(LOG.segments[0][OFFSETS[at] : OFFSETS[at] + SIZES[at]]) for at in CHOSEN.tolist()]
    assert content(records.segments[0], gap) == expected


@pytest.mark.parametrize("chunk", [1, 700, 1 << 20])
def test_units_are_of_any_segments(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in chunks, each of which has more than `chunk` bytes only because of its last record."""
    monkeypatch.setattr(unit_records, "_CHUNK_BYTES", chunk)
    log = LogWriter(4096)
    offsets = np.array([log.append(number, b"x" * (number * 37 % 500)) for number in range(50)])
    data = {base: bytes(segment) for base, segment in log.segments.items()}
    sizes = np.array([int.from_bytes(data[at // 4096 * 4096][at % 4096 :][:4], "big") for at in offsets.tolist()])
    found = np.full(50, -1)
    with closing(FileReaders()) as files:
        for records, which in records_of_units(RecordLookup(log.write(tmp_path), files), offsets, sizes, 0):
            found[which] = [
                int.from_bytes(records.buffer[at + 28 :][:8].tobytes(), "big") for at in records.frames.position
            ]
            assert sizes[which][:-1].sum() <= 2 * chunk
    assert found.tolist() == offsets.tolist()
    assert len(log.segments) > 3


@WAYS
@pytest.mark.parametrize("lost", [1, 5_000, 1 << 16])
@pytest.mark.usefixtures("way")
def test_a_segment_that_became_shorter_has_no_records(lost: int, records: RecordLookup) -> None:
    """Not even those before its end: the caller then scans the part, which finds them."""
    segment = records.segments[0]
    os.truncate(segment.location.path, LOG.next_offset - min(lost, LOG.next_offset))
    assert content(segment, 0) is None
    with pytest.raises(StoreChangedError, match="became shorter since the store was opened: read again"):
        _ = list(records_of_units(records, OFFSETS[CHOSEN], SIZES[CHOSEN], 0))


@WAYS
@pytest.mark.usefixtures("way")
def test_an_error_of_the_operating_system_is_an_error(records: RecordLookup) -> None:
    segment = records.segments[0]
    os.remove(segment.location.path)
    os.mkdir(segment.location.path)
    with pytest.raises(OSError, match="is a folder, not a file"):
        content(segment, 0)


@WAYS
@pytest.mark.usefixtures("way")
def test_files_are_closed(records: RecordLookup) -> None:
    """Also after an error: a process may open only so many."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        assert content(records.segments[0], 0)
    os.truncate(records.segments[0].location.path, 10)
    for _ in range(50):
        assert content(records.segments[0], 0) is None
    assert len(os.listdir("/proc/self/fd")) == before
