from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_mq.format.kernels import resync
from spark_mq.format.kernels.frames import ScanStatus
from spark_mq.format.kernels.resync import ResyncCandidates
from spark_mq.format.record import MAX_RECORD_SIZE, Record, encode_blank
from spark_mq.testing.plain_log import plausible_frames
from spark_mq.testing.strategies import hostile_segments
from tests.support.kernels import WITHOUT_JIT, array, examples

BASE = 1 << 20
MOST = 400
"""The largest record that these tests allow."""


@pytest.fixture(autouse=True)
def small_records() -> Iterator[None]:
    with mock.patch.object(resync, "MAX_RECORD_SIZE", MOST):
        yield


def log_of(*bodies: bytes, base: int = BASE) -> tuple[bytes, list[int]]:
    """Records with these bodies, and where each begins."""
    data, starts = b"", []
    for body in bodies:
        starts.append(len(data))
        data += Record(b"T", body=body, commit_log_offset=base + len(data)).encode()
    return data, starts


PLAIN, STARTS = log_of(*(bytes(20 * (index % 4)) for index in range(20)))
SEGMENT = PLAIN + encode_blank(100)


def due(data: bytes, window: range, chunk: int | None = None, base: int = BASE) -> tuple[set[int], bool]:
    """The indices behind the window at which the hop can be due, and whether it can be searching."""
    hops = ResyncCandidates(base + window.start)
    position = window.start
    while position < window.stop:
        buffer = data[position : None if chunk is None else position + chunk]
        reached, found = hops.follow(array(buffer), window.stop - position, base + position, len(data) - position)
        assert found == ScanStatus.STOP or (chunk is not None and found == ScanStatus.MORE)
        position += reached
        chunk = None if reached == 0 else chunk
    offsets, is_searching = hops.after(base + window.stop)
    return {offset - base for offset in offsets}, is_searching


@pytest.mark.parametrize("chunk", [None, 150, 500])
def test_at_every_position_of_a_sound_log_the_next_record_is_told(chunk: int | None) -> None:
    for position in range(MOST + 200, STARTS[-1] + 1, 7 if WITHOUT_JIT else 1):
        following = next(start for start in STARTS if start >= position)
        assert due(SEGMENT, range(position - MOST - 200, position), chunk) == ({following}, False), position


def test_after_the_blank_is_the_end_of_the_segment() -> None:
    assert due(SEGMENT, range(len(PLAIN) - MOST - 1, len(PLAIN) + 1)) == ({len(SEGMENT)}, False)


def test_the_blank_itself_is_one_of_the_candidates() -> None:
    assert due(SEGMENT, range(len(PLAIN) - MOST - 200, len(PLAIN))) == ({len(PLAIN)}, False)


def test_bytes_without_a_frame_leave_a_search() -> None:
    assert due(bytes(1000), range(100, 900)) == (set(), True)


def test_a_record_from_before_the_window_can_reach_over_all_that_is_in_it() -> None:
    """The window is as long as the largest record: what lies in it may be a body, and damage behind it."""
    assert due(SEGMENT, range(STARTS[5], STARTS[5] + MOST))[1]


def log_with_a_body(fakes: tuple[bytes, ...], padding: bytes) -> tuple[bytes, int, list[int], int]:
    """A log, a record in it that holds records with the bodies `fakes`, where those lie, and where it ends."""
    data, _ = log_of(*[b""] * 6)
    holder = len(data)
    held, starts = log_of(*fakes, base=BASE + holder + 88)
    data += Record(b"T", body=held + padding, commit_log_offset=BASE + holder).encode()
    end = len(data)
    data += Record(b"T", commit_log_offset=BASE + end).encode() + encode_blank(200)
    return data, holder, [holder + 88 + start for start in (*starts, len(held))], end


def test_a_whole_record_in_a_body_leaves_two_candidates() -> None:
    data, holder, (first, second, fake_end), end = log_with_a_body((b"", b""), b"padding")
    start = holder - MOST + 50
    assert due(data, range(start, first + 10)) == ({end, second}, False)
    assert due(data, range(start, second + 1)) == ({end, fake_end}, False)


def test_a_record_that_no_earlier_one_reaches_over_hides_what_is_in_its_body() -> None:
    data, holder, (first, second, _), end = log_with_a_body((b"", b""), b"padding")
    assert due(data, range(holder - MOST, first + 10)) == ({end}, False)
    assert due(data, range(holder - MOST, second + 1)) == ({end}, False)


def test_fakes_that_lead_to_the_true_record_do_no_harm() -> None:
    data, holder, _, end = log_with_a_body((b"fake" * 10,), b"")
    window = range(holder - MOST + 50, end + 1)
    assert due(data, window) == ({end + Record(b"T").size}, False)


def test_damage_where_a_record_must_begin_is_where_the_hop_stands() -> None:
    damaged = bytearray(SEGMENT)
    damaged[STARTS[10] + 4] ^= 0xFF
    window = range(STARTS[10] - MOST - 200, STARTS[10])
    assert due(bytes(damaged), window) == ({STARTS[10]}, False)
    assert due(bytes(damaged), range(window.start, window.stop + 1)) == (set(), True)


def test_more_places_than_are_followed_are_said_to_be_too_many() -> None:
    """Heads of records of many lengths, all of which end in zeros."""
    data = b"".join(
        Record(b"", body=bytes(9000 + index), commit_log_offset=BASE + 88 * index).encode()[:88] for index in range(100)
    )
    data += bytes(12_000)
    with mock.patch.object(resync, "MAX_RECORD_SIZE", MAX_RECORD_SIZE):
        assert ResyncCandidates(BASE).follow(array(data), 88 * 60, BASE, len(data)) == (88 * 60, ScanStatus.STOP)
        assert ResyncCandidates(BASE).follow(array(data), 8800, BASE, len(data))[1] == ScanStatus.FULL


def test_many_fakes_that_end_together_are_one_place() -> None:
    data = b"".join(
        Record(b"", body=bytes(20_000 - 91 - at), commit_log_offset=BASE + at).encode()[:88]
        for at in range(0, 8800, 88)
    ).ljust(20_300, b"\0")
    with mock.patch.object(resync, "MAX_RECORD_SIZE", MAX_RECORD_SIZE):
        hops = ResyncCandidates(BASE)
    assert hops.follow(array(data), 8800, BASE, len(data)) == (8800, ScanStatus.STOP)
    assert hops.after(BASE + 8800)[0] == {BASE + 20_000, BASE + MAX_RECORD_SIZE - 1}


@settings(max_examples=examples(300))
@given(hostile_segments(2500, MOST), st.integers(0, 2000), st.integers(0, 300), st.sampled_from([None, 200, 700]))
def test_all_places_are_those_of_hops_from_wherever_one_can_be(
    segment: bytes, start: int, room: int, chunk: int | None
) -> None:
    """The proof, tried out: a plain hop from each place at which one can be due when the window begins."""
    window = range(start, min(start + MOST + room, len(segment) - 8))
    assume(len(window) >= MOST)
    frames = plausible_frames(segment, BASE)
    assume(all(end - frame <= MOST or end == len(segment) for frame, end in frames.items()))
    starts = [*frames, len(segment)]
    ends: set[int] = set()
    for place in range(window.start, window.start + MOST):
        end = place
        while end < window.stop and (frame := starts[bisect_left(starts, end)]) < window.stop:
            end = frames[frame]
        ends.add(end)
    standing = {end for end in ends if end >= window.stop}
    assert due(segment, window, chunk) == (standing, ends != standing)
