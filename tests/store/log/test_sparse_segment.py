"""Holes of a sparse segment are not read when the next record is searched for."""

from __future__ import annotations

from pathlib import Path

from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import Segment, SegmentSource
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.testing import LogWriter

SIZE, HOLE = 64 << 20, 48 << 20


def test_a_record_after_a_hole_is_found_without_a_read_of_the_hole(tmp_path: Path) -> None:
    """Its first two bytes are zeros, and in the hole."""
    writer = LogWriter(SIZE)
    writer.append(1_700_000_000_000, b"before")
    record = bytes(writer.segments[0])
    at = HOLE - 2
    moved = record[:28] + at.to_bytes(8, "big") + record[36:]
    assert record[:2] == b"\0\0"
    file = tmp_path / f"{0:020d}"
    with file.open("wb") as out:
        out.write(record)
        out.seek(HOLE)
        out.write(moved[2:])
        out.truncate(SIZE)
    location = Location.resolve(str(file))
    with SegmentSource(Segment(location, 0, SIZE, data_end=at + len(moved), is_last=False)) as source:
        parts = list(RecordReader(source, 0).read(SIZE))
        assert source.allocated is not None
        is_sparse = source.allocated < 1 << 20
        assert not is_sparse or source.bytes_read < HOLE // 2
    found = [
        (part.commit_log_offset, part.length)
        if isinstance(part, CorruptRange)
        else part.base + int(part.frames[0].position)
        for part in parts
    ]
    assert isinstance(parts[0], RecordChunk)
    assert found == [0, (len(record), at - len(record)), at]
