from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.array_types import Bytes
from spark_mq.format.dispatch import record_keys
from spark_mq.format.kernels.crc import wrong_body_crcs, wrong_property_crcs
from spark_mq.format.kernels.dispatch import has_unit
from spark_mq.format.kernels.encode import MAX_LEFT_OUT_SIZE, MIN_GAP_SIZE, fill_gaps
from spark_mq.format.kernels.frames import ScanStatus, new_frames, scan_records
from spark_mq.format.record import Record, decode_record
from spark_mq.format.system_topic import LEFT_OUT_TOPIC
from tests.support.kernels import WITHOUT_JIT, examples

BASE = 1 << 40
STORE_TIMESTAMP = 1_700_000_000_123


def one_gap(size: int) -> list[Record]:
    """The records that fill a gap of `size` bytes; the bytes around it, and damage in it, are checked."""
    buffer = np.full(size + 20, 0xAA, np.uint8)
    start = BASE + 10
    fill_gaps(buffer, BASE, np.array([start]), np.array([start + size]), np.array([STORE_TIMESTAMP]))
    assert buffer[:10].tobytes() == buffer[-10:].tobytes() == b"\xaa" * 10
    return left_out_records(buffer, 10, 10 + size)


def left_out_records(buffer: Bytes, start: int, stop: int) -> list[Record]:
    """The records from `start` to `stop`, which are sound, and of which no queue and no index has anything."""
    frames = new_frames(1000)
    count, position, status = scan_records(buffer, start, stop, BASE, buffer.size, frames)
    assert (position, status) == (stop, ScanStatus.STOP)
    found = frames[:count]
    assert not wrong_body_crcs(buffer, found).any()
    assert not wrong_property_crcs(buffer, found).any()
    assert not has_unit(found).any()
    records = [decode_record(buffer.tobytes(), frame.position, BASE + int(frame.position)) for frame in found]
    assert not any(record_keys(record) for record in records)
    assert not any(record.body.strip(b"\0") for record in records)
    assert {record.store_timestamp for record in records} <= {STORE_TIMESTAMP}
    return records


def test_a_gap_of_any_size_that_a_message_leaves_is_one_sound_record() -> None:
    for size in range(MIN_GAP_SIZE, 401):
        (record,) = one_gap(size)
        assert record.size == size
        assert record.topic == LEFT_OUT_TOPIC.encode()[: size - 91]


@pytest.mark.skipif(WITHOUT_JIT, reason="a loop over 4 MiB in plain Python takes minutes")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("more", [-1, 0, 1, 91, 92, 93, 200])
def test_a_large_gap_has_several_records(times: int, more: int) -> None:
    records = one_gap(times * MAX_LEFT_OUT_SIZE + more)
    assert len(records) == times + (more > 0)
    assert all(MIN_GAP_SIZE <= record.size <= MAX_LEFT_OUT_SIZE for record in records)


@settings(max_examples=examples(100))
@given(st.lists(st.integers(92, 600), min_size=2, max_size=40))
def test_every_second_message_can_be_left_out(sizes: list[int]) -> None:
    ends = np.cumsum([0, *sizes])
    kept = {}
    buffer = np.full(int(ends[-1]), 0xAA, np.uint8)
    for start, stop in list(pairwise(ends.tolist()))[::2]:
        body = bytes(stop - start - 92)
        kept[start] = Record(b"T", body=body, commit_log_offset=BASE + start, store_timestamp=STORE_TIMESTAMP)
        buffer[start:stop] = np.frombuffer(kept[start].encode(), np.uint8)
    starts, stops = ends[:-1][1::2] + BASE, ends[1:][1::2] + BASE
    fill_gaps(buffer, BASE, starts, stops, np.full(starts.size, STORE_TIMESTAMP))
    for start, stop in pairwise(ends.tolist()):
        if start in kept:
            assert buffer[start:stop].tobytes() == kept[start].encode()
        else:
            assert len(left_out_records(buffer, start, stop)) == 1


@pytest.mark.parametrize(
    ("start", "stop", "said"),
    [
        (0, 91, "the gap from 0 to 91 is smaller than 92 bytes"),
        (0, 1001, "a gap is not between 0 and 1000"),
        (-1, 100, "a gap is not between 0 and 1000"),
    ],
)
def test_a_gap_that_cannot_be_filled_is_an_error(start: int, stop: int, said: str) -> None:
    buffer = np.zeros(1000, np.uint8)
    with pytest.raises(ValueError, match=said):
        fill_gaps(buffer, 0, np.array([start]), np.array([stop]), np.array([0]))
    assert not buffer.any()
