"""Chunks of records: those that damage separates, joined, and the search for the next record after a hole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.format.record import MAGIC_AT
from spark_mq.io.location import Location
from spark_mq.store.log import record_reader as module
from spark_mq.store.log.commit_log import CommitLog, Segment, SegmentSource, Split, plan_splits
from spark_mq.store.log.record_reader import CHUNK_SIZE, RecordChunk, RecordReader, joined_chunks
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.log.split_reader import read_split
from spark_mq.testing import LogWriter
from tests.support.kernels import examples
from tests.support.readers import by_hopping

SEGMENT = 16 << 10
RECORDS = st.lists(st.tuples(st.integers(0, 900), st.booleans()), min_size=20, max_size=80)
"""For each record the size of its body, and whether it is damaged."""


def splits_of(folder: Path, records: list[tuple[int, bool]]) -> list[Split]:
    writer = LogWriter(SEGMENT)
    for number, (size, is_damaged) in enumerate(records):
        properties = f"KEYS\1k{number}\2UNIQ_KEY\1u{number}\2".encode()
        offset = writer.append(1_700_000_000_000 + number, bytes([number]) * size, properties=properties)
        if is_damaged:
            base = max(writer.segments)
            writer.segments[base][offset - base + MAGIC_AT] ^= 1
    return plan_splits(CommitLog.open(writer.write(folder / "store")), 4 << 10)


def rows(chunk: RecordChunk) -> list[dict[str, object]]:
    """All columns of the records of a chunk, and the commit log offsets that its base tells."""
    batch = MessageColumns(chunk.buffer, chunk.frames).record_batch(list(ALL_MESSAGE_FIELDS))
    places = pa.array(chunk.frames.position + chunk.base)
    found: list[dict[str, object]] = batch.append_column("place", places).to_pylist()
    return found


@settings(max_examples=examples(60), deadline=None)
@given(RECORDS, st.sampled_from([1500, 4 << 10, 4 << 20]), st.sampled_from([1, 700, 256 << 10]))
def test_joined_chunks_have_the_records_and_the_damage_of_the_splits(
    records: list[tuple[int, bool]], most: int, small: int
) -> None:
    """With small numbers, a joined chunk is full, or no chunk is small enough to be joined."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_SIZE", most)
        patch.setattr(module, "_SMALL", min(small, most))
        for split in splits_of(Path(name), records):
            expected: list[dict[str, object]] = []
            damage: list[CorruptRange] = []
            for part in read_split(split):
                if isinstance(part, CorruptRange):
                    damage.append(part)
                else:
                    expected += rows(part)
            found: list[dict[str, object]] = []
            found_damage: list[CorruptRange] = []
            for joined in joined_chunks(read_split(split)):
                if isinstance(joined, list):
                    found_damage += joined
                else:
                    found += rows(joined)
            assert found == expected
            assert found_damage == damage


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 2), st.booleans()), min_size=5, max_size=60),
    st.sampled_from([400, 1500]),
    st.sampled_from([0, 3]),
)
def test_where_the_log_ends_does_not_depend_on_the_size_of_chunks(
    records: list[tuple[int, int, bool]], most: int, every: int
) -> None:
    """Records with a step of the clock, a queue offset and damage: what follows damage can be live, or an old tail."""
    writer, time, offsets = LogWriter(64 << 10), 1_700_000_000_000, [0, 0, 0]
    for number, (step, queue, is_damaged) in enumerate(records):
        time += step
        offsets[queue] += every == 0 or number % every > 0
        offset = writer.append(time, b"x" * (number % 50), queue_id=queue, queue_offset=offsets[queue])
        if is_damaged:
            writer.segments[0][offset + MAGIC_AT] ^= 1
    with tempfile.TemporaryDirectory() as name:
        log = CommitLog.open(writer.write(Path(name) / "store"))
        expected = by_hopping(log)
        for size, small in ((CHUNK_SIZE, 0), (most, most)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, "CHUNK_SIZE", size)
                patch.setattr(module, "_SMALL", small)
                assert by_hopping(log) == expected


def test_chunks_with_damage_between_them_are_one_chunk(tmp_path: Path) -> None:
    records = [(50, number % 3 == 1) for number in range(40)]

    def parts(split: Split) -> Iterator[str]:
        for part in joined_chunks(read_split(split)):
            yield f"{len(part)} ranges" if isinstance(part, list) else f"{part.frames.size} records"

    (only,) = [split for split in splits_of(tmp_path, records) if split.start == 0]
    whole = Split(only.segment, 0, only.segment.size)
    assert list(parts(whole)) == ["13 ranges", "27 records"]


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
