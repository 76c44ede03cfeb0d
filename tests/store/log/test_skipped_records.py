"""A reader that skips records is where one is that reads them; splits of a log whose end is known are the log."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.store.log.commit_log import CommitLog, SegmentSource, plan_splits
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import RecordChunk
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.testing import LogWriter
from tests.support.kernels import examples
from tests.support.readers import by_hopping, one_split, with_known_end

SEGMENT_SIZE = 16 << 10
NOW = 1_700_000_000_000

steps = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.integers(0, 10)),
        st.tuples(st.just("clock set back"), st.integers(1, 10)),
        st.tuples(st.just("stale message"), st.integers(1, 10)),
        st.tuples(st.just("damage"), st.integers(1, 200)),
    ),
    min_size=1,
    max_size=12,
)


def log_of(changes: list[tuple[str, int]]) -> LogWriter:
    writer, time = LogWriter(SEGMENT_SIZE), NOW
    for kind, size in changes:
        time += -size if kind == "clock set back" else size
        if kind == "damage":
            writer.append_bytes(b"\x07" * size)
        elif kind == "stale message":
            writer.append(NOW - 1000, b"old", queue_offset=0)
        else:
            writer.append(time, b"x" * (40 * size))
    return writer


def shown(part: RecordChunk | CorruptRange) -> object:
    """What a reader gave, without the bytes of its buffer around the records."""
    if isinstance(part, CorruptRange):
        return part
    frames = part.frames
    records = [part.buffer[frame.position : frame.position + frame.store_size].tobytes() for frame in frames]
    return part.base, [str(frame) for frame in frames], records


@settings(max_examples=examples(150), deadline=None)
@given(steps, st.integers(0, SEGMENT_SIZE), st.booleans())
def test_skipped_records_leave_the_reader_as_read_ones(
    changes: list[tuple[str, int]], start: int, ends_with_damage: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = log_of([*changes, ("damage", 50)] if ends_with_damage else changes)
        (segment,) = CommitLog.open(writer.write(Path(folder) / "store")).segments
        with SegmentSource(segment) as one, SegmentSource(segment) as other:
            skipping, reading = LiveReader(one), LiveReader(other)
            skipping.skip(start)
            for _ in reading.read(start):
                pass
            states = [(reader.position, reader.newest, reader.ended) for reader in (skipping, reading)]
            assert states[0] == states[1]
            left = [[shown(part) for part in reader.read(SEGMENT_SIZE)] for reader in (skipping, reading)]
            assert left[0] == left[1]


@settings(max_examples=examples(150), deadline=None)
@given(steps, st.randoms())
def test_the_splits_of_a_log_whose_end_is_known_are_the_live_log(
    changes: list[tuple[str, int]], random: Random
) -> None:
    """Each split is read by itself, in any order, also those of the last segment."""
    with tempfile.TemporaryDirectory() as folder:
        log = CommitLog.open(log_of(changes).write(Path(folder) / "store"))
        known = with_known_end(log)
        for split_size in (1 << 10, 3000):
            splits = plan_splits(known, split_size)
            random.shuffle(splits)
            parts = [part for split in splits for part in one_split(split)]
            assert sorted(parts) == sorted(by_hopping(log))
