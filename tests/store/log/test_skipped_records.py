"""A reader of the last segment that skips records is where a reader is that read them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.segment_source import SegmentSource
from tests.support.kernels import examples
from tests.support.log_writer import LogWriter

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


@settings(max_examples=examples(150), deadline=None)
@given(steps, st.integers(0, SEGMENT_SIZE), st.booleans())
def test_skipped_records_leave_the_reader_as_read_ones(
    changes: list[tuple[str, int]], start: int, ends_with_damage: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = log_of([*changes, ("damage", 50)] if ends_with_damage else changes)
        (segment,) = CommitLog.open(writer.write(Path(folder) / "store")).segments
        skipping, reading = (LiveReader(SegmentSource(segment)) for _ in range(2))
        try:
            skipping.skip(start)
            for _ in reading.read(start):
                pass
            states = [(reader.position, reader.newest, reader.ended) for reader in (skipping, reading)]
            assert states[0] == states[1]
            left = [[str(part) for part in reader.read(SEGMENT_SIZE)] for reader in (skipping, reading)]
            assert left[0] == left[1]
        finally:
            skipping.close()
            reading.close()
