"""A store is read while a broker appends to it: every read gives whole, right messages, and a prefix of the log."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_mq.format.message_schema import MESSAGE_SCHEMA
from spark_mq.io.location import Location
from spark_mq.source.messages import MessagesReader
from spark_mq.source.options import parse_options
from spark_mq.store.log.commit_log import CommitLog, SegmentSource
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.segment_files import CorruptRange
from tests.broker import harness
from tests.support.soak import SOAKS, cases

pytestmark = pytest.mark.broker

SEGMENT_SIZE = 1 << 20
SETTINGS = {
    "autoCreateTopicEnable": "false",
    "timerWheelEnable": "false",  # no message waits, and flushing the wheel takes a quarter of a core
    "mappedFileSizeCommitLog": str(SEGMENT_SIZE),
    "mappedFileSizeConsumeQueue": "60000",
    "messageIndexEnable": "false",
}
READS = 50 if SOAKS else 5
MESSAGES = 40_000
"""Of each sender: every read takes all that is there, so the log must stay small."""

LOOKS = 40
"""Looks at the last segment between two reads: they are so quick that some of them meet the broker writing."""


def read(store: Path, split_size: str) -> pa.Table:
    """All messages, as the data source's reader gives them without Spark."""
    options = parse_options({"path": str(store), "checkCrc": "true", "splitSize": split_size})
    reader = MessagesReader(options, MESSAGE_SCHEMA.names)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches)


@dataclass(frozen=True)
class Look:
    """The last record of the log, at some time."""

    commit_log_offset: int
    content: bytes


def look(store: Location) -> Look | None:
    """Read the last segment, and keep its last record."""
    last = None
    segment = CommitLog.open(store).segments[-1]
    with SegmentSource(segment) as source:
        for part in LiveReader(source).read(segment.data_end):
            assert not isinstance(part, CorruptRange), part.describe()
            position, size = int(part.frames[-1].position), int(part.frames[-1].store_size)
            last = Look(part.base + position, part.buffer[position : position + size].tobytes())
    return last


def assert_contiguous(messages: pa.Table) -> None:
    """Each message lies behind the one before it, or begins the next segment."""
    offsets, sizes = (messages[name].combine_chunks() for name in ("commit_log_offset", "store_size"))
    ends = pc.add(offsets, sizes.cast(pa.int64()))
    expected = ends[:-1].to_pylist()
    for end, offset in zip(expected, offsets[1:].to_pylist(), strict=True):
        assert offset in (end, -(-end // SEGMENT_SIZE) * SEGMENT_SIZE)
    assert offsets[0].as_py() == 0


@pytest.mark.parametrize("version", cases(harness.VERSIONS[:1], harness.VERSIONS))
def test_a_store_is_read_while_a_broker_appends_to_it(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    location = Location.resolve(str(store))
    looks: list[Look | None] = []
    with harness.Broker(version, store, SETTINGS) as broker:
        harness.send(broker, "sequence", seed=1, count=3)
        batches = harness.Sender(broker, "burst", seed=2, count=MESSAGES)
        singles = harness.Sender(broker, "sequence", seed=3, count=MESSAGES, body=700)
        first = read(store, "128m")
        while read(store, "128m").num_rows == first.num_rows:
            assert batches.is_sending or singles.is_sending, "nothing is sent"
            time.sleep(0.1)
        before = first
        for number in range(READS):
            messages = read(store, ("64k", "300k", "128m")[number % 3])
            assert before.equals(messages.slice(0, before.num_rows)), f"read {number} goes not on from the one before"
            before = messages
            looks += [look(location) for _ in range(LOOKS)]
        broker.stop()
        for sender in (batches, singles):
            with contextlib.suppress(harness.HarnessError):  # the broker is gone
                sender.wait()
    final = read(store, "128m")
    assert before.equals(final.slice(0, before.num_rows))
    assert first.num_rows < before.num_rows <= final.num_rows
    assert final["_corrupt_record"].null_count == final.num_rows
    assert_contiguous(final)
    for last in looks:
        if last is not None:
            base = last.commit_log_offset // SEGMENT_SIZE * SEGMENT_SIZE
            with (store / "commitlog" / f"{base:020d}").open("rb") as segment:
                segment.seek(last.commit_log_offset - base)
                assert segment.read(len(last.content)) == last.content
