"""A reader of the last segment that skips records, or knows a place, is where a reader is that read the records."""

from __future__ import annotations

import tempfile
import time as clock
from pathlib import Path
from random import Random
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.io.location import Location
from spark_mq.store import settled_files
from spark_mq.store.log.commit_log import CommitLog, SegmentSource
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.splits import plan_splits
from spark_mq.testing import LogWriter
from tests.support.kernels import examples
from tests.support.readers import by_hopping, one_split

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


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(steps, min_size=1, max_size=3), st.randoms())
def test_places_that_a_process_knows_change_no_split(logs: list[list[tuple[str, int]]], random: Random) -> None:
    """A segment is rewritten; each time all splits are read in any order, several times."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(settled_files, "_SETTLED_NANOS", -(1 << 62)):
        store = Path(folder) / "store"
        for number, changes in enumerate([*logs, logs[0]]):
            written = CommitLog.open(log_of(changes).write(Path(folder) / str(number)))
            (store / "commitlog").mkdir(parents=True, exist_ok=True)
            clock.sleep(0.02)  # so that the change has a time of its own
            with (store / "commitlog" / f"{0:020d}").open("r+b" if number else "wb") as stream:
                stream.write(Path(written.segments[0].location.path).read_bytes())
            log = CommitLog.open(Location.resolve(str(store)))
            splits, expected = plan_splits(log, 1 << 10), by_hopping(log)
            for _ in range(3):
                random.shuffle(splits)
                parts = [part for split in splits for part in one_split(split, f"{number} {random.random()}")]
                assert sorted(parts) == sorted(expected)


def test_a_worker_that_reads_a_log_again_skips_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(settled_files, "_SETTLED_NANOS", -(1 << 62)):
        log = CommitLog.open(log_of([("message", 9)] * 30).write(Path(folder) / "store"))
        skipped = []
        skip = LiveReader._skip_sound

        def counted(reader: LiveReader, start: int) -> bool:
            skipped.append(start)
            return skip(reader, start)

        with mock.patch.object(LiveReader, "_skip_sound", counted):
            for repetition in range(2):
                skipped.clear()
                for split in reversed(plan_splits(log, 4 << 10)):
                    _ = one_split(split, f"{repetition} {split.start}")
                assert bool(skipped) == (repetition == 0)
