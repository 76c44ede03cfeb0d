from __future__ import annotations

import pytest

from spark_mq.format.record import Record, encode_blank
from spark_mq.format.split_start import UNDECIDED, first_record
from tests.hostile import array

BASE = 1 << 20


def log_of(*bodies: bytes, base: int = BASE) -> tuple[bytes, list[int]]:
    """Records with these bodies, and where each begins."""
    data, starts = b"", []
    for body in bodies:
        starts.append(len(data))
        data += Record(b"T", body=body, commit_log_offset=base + len(data)).encode()
    return data, starts


PLAIN, STARTS = log_of(*(bytes(20 * (index % 4)) for index in range(20)))
SEGMENT = PLAIN + encode_blank(100)


def first(data: bytes, split_start: int, base: int = BASE) -> int:
    return int(first_record(array(data), split_start, base, len(data)))


def test_at_every_position_the_next_record_is_found() -> None:
    for split_start in range(STARTS[1], STARTS[-1] + 1):
        assert first(SEGMENT, split_start) == next(start for start in STARTS if start >= split_start), split_start


def test_behind_the_last_record_the_filler_is_next() -> None:
    assert first(SEGMENT, STARTS[-1] + 1) == len(PLAIN)


def test_behind_the_filler_is_the_end_of_the_segment() -> None:
    assert first(SEGMENT, len(PLAIN) + 1) == len(SEGMENT)


def test_without_a_record_before_the_split_nothing_is_decided() -> None:
    assert first(bytes(500) + SEGMENT, 300, BASE - 500) == UNDECIDED


def test_a_whole_record_in_a_body_leaves_it_undecided() -> None:
    """The split begins inside the body: the fake's hop and the true one's arrive at different places."""
    at = 88
    fakes, _ = log_of(b"", b"", base=BASE + at)
    data, starts = log_of(fakes + b"padding", b"next")
    assert first(data, at + 10) in (UNDECIDED, starts[1])


def test_fakes_that_arrive_at_the_true_record_do_no_harm() -> None:
    fakes, _ = log_of(b"fake" * 10, base=BASE + 88)
    data, starts = log_of(fakes, b"next", b"last")
    assert first(data, starts[1] + 1) == starts[2]


def test_damage_where_a_record_must_begin_is_the_split_s() -> None:
    damaged = bytearray(SEGMENT)
    damaged[STARTS[5] + 4] ^= 0xFF
    assert first(bytes(damaged), STARTS[5] - 1) == STARTS[5]


def test_damage_before_the_split_is_not_its_own() -> None:
    damaged = bytearray(SEGMENT)
    damaged[STARTS[5] + 4] ^= 0xFF
    assert first(bytes(damaged), STARTS[5] + 1) == STARTS[6]


@pytest.mark.parametrize("length", [10, 50, 90, 95])
def test_a_buffer_that_ends_before_the_answer_decides_nothing(length: int) -> None:
    data = SEGMENT[: STARTS[3] + length]
    answer = int(first_record(array(data), STARTS[3] + 1, BASE, len(SEGMENT)))
    assert answer in (UNDECIDED, STARTS[4])
