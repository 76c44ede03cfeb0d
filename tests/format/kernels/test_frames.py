from __future__ import annotations

import struct
from dataclasses import replace
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import CorruptLogError
from spark_mq.format.kernels.frames import (
    CORRUPTION_REASONS,
    Frame,
    Frames,
    ScanStatus,
    find_frame,
    new_frames,
    read_frame,
    read_frames_at,
    scan_records,
)
from spark_mq.format.kernels.kernel import FRAME_DTYPE
from spark_mq.format.record import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_BLANK_SIZE,
    MAX_RECORD_SIZE,
    MIN_RECORD_SIZE,
    Record,
    decode_record,
    encode_blank,
    is_blank,
)
from spark_mq.testing.strategies import records
from tests.support.kernels import array, examples, frames_of
from tests.support.stores import RealStore, Unpack, segment_files, usual_stores

BASE = 1 << 30


def judge(data: bytes, position: int, base: int) -> ScanStatus:
    """What lies at a position of a whole segment, in plain Python."""
    if len(data) - position < BLANK_SIZE:
        return ScanStatus.BAD_SIZE
    size, magic = struct.unpack_from(">ii", data, position)
    if magic == MAGIC_BLANK:
        return ScanStatus.BLANK if size == len(data) - position <= MAX_BLANK_SIZE else ScanStatus.BAD_SIZE
    if size == magic == 0:
        return ScanStatus.ZEROS
    if magic not in (MAGIC_V1, MAGIC_V2):
        return ScanStatus.BAD_MAGIC
    if not MIN_RECORD_SIZE <= size <= min(MAX_RECORD_SIZE, len(data) - position):
        return ScanStatus.BAD_SIZE
    try:
        decode_record(data, position, base + position)
    except CorruptLogError as error:
        return ScanStatus.BAD_OFFSET if "its own offset is" in str(error) else ScanStatus.BAD_LENGTHS
    return ScanStatus.RECORD


def found_at(data: bytes, position: int, base: int, end: int | None = None) -> ScanStatus:
    frame = new_frames(1)
    return ScanStatus(read_frame(array(data), position, base, len(data) if end is None else end, frame[0]))


def segment_of(count: int, base: int = BASE) -> bytes:
    """A segment with `count` varied records, a blank, and zeros in the blank."""
    data = b""
    for index in range(count):
        data += Record(
            b"Topic" * (index % 3),
            body=bytes(index % 7),
            properties=b"KEYS\1k\2" * (index % 2),
            magic=MAGIC_V2 if index % 2 else MAGIC_V1,
            born_host=bytes(20 if index % 3 == 0 else 8),
            store_host=bytes(20 if index % 4 == 0 else 8),
            commit_log_offset=base + len(data),
        ).encode()
    return data + encode_blank(50)


SEGMENT = segment_of(9)

flips = st.lists(st.tuples(st.integers(0, len(SEGMENT) - 1), st.integers(1, 255)), min_size=1, max_size=3)


def flipped(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    result = bytearray(data)
    for position, mask in changes:
        result[position] ^= mask
    return bytes(result)


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_frames_of_real_segments_are_the_decoded_records(store: RealStore, unpacked: Unpack) -> None:
    facts = store.facts("msg")
    for file in segment_files(unpacked(store)):
        base, data = int(file.name), file.read_bytes()
        frames = new_frames(len(data) // MIN_RECORD_SIZE + 1)
        count, _, _ = scan_records(array(data), 0, len(data), base, len(data), frames)
        wanted = [fact for fact in facts if base <= fact["offset"] < base + len(data)]
        for frame, fact in zip(frames[:count], wanted, strict=False):
            record = decode_record(data, int(frame.position), base + int(frame.position))
            assert (base + frame.position, frame.store_size) == (fact["offset"], fact["size"])
            body, topic, properties = (
                data[start : start + length]
                for start, length in (
                    (frame.body_start, frame.body_length),
                    (frame.topic_start, frame.topic_length),
                    (frame.properties_start, frame.properties_length),
                )
            )
            assert (body, topic, properties) == (record.body, record.topic, record.properties)
            assert data[frame.store_host_at :].startswith(record.store_host)
            assert struct.unpack_from(">q", data, frame.store_timestamp_at)[0] == record.store_timestamp
            assert struct.unpack_from(">i", data, frame.after_hosts_at)[0] == record.reconsume_times
        assert count >= len(wanted)


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_real_segment_ends_with_its_blank(store: RealStore, unpacked: Unpack) -> None:
    files = {int(file.name): file.read_bytes() for file in segment_files(unpacked(store))}
    for fact in store.facts("blank"):
        base = max(start for start in files if start <= fact["offset"])
        data = files[base]
        frames = new_frames(len(data) // MIN_RECORD_SIZE + 1)
        _, position, found = scan_records(array(data), 0, len(data), base, len(data), frames)
        assert (base + position, ScanStatus(found)) == (fact["offset"], ScanStatus.BLANK)


@settings(max_examples=examples(1000))
@given(flips)
def test_every_position_of_a_damaged_segment_is_judged_as_by_the_decoder(changes: list[tuple[int, int]]) -> None:
    data = flipped(SEGMENT, changes)
    for position in {0, *range(0, len(data), 97), *(int(frame.position) for frame in FRAMES), *_near(changes)}:
        assert found_at(data, position, BASE) == judge(data, position, BASE), position


FRAMES = frames_of(SEGMENT[:-50], BASE)


def _near(changes: list[tuple[int, int]]) -> set[int]:
    return {max(place - at, 0) for place, _ in changes for at in (0, 3, 4, 7, 28, 35)}


def test_every_position_of_a_sound_segment_is_judged_as_by_the_decoder() -> None:
    for position in range(len(SEGMENT) + 1):
        assert found_at(SEGMENT, position, BASE) == judge(SEGMENT, position, BASE), position


@settings(max_examples=examples(300))
@given(flips)
def test_the_hop_ends_where_the_decoder_refuses(changes: list[tuple[int, int]]) -> None:
    data = flipped(SEGMENT, changes)
    position, count = 0, 0
    while judge(data, position, BASE) == ScanStatus.RECORD:
        position += decode_record(data, position).size
        count += 1
    frames = new_frames(100)
    assert scan_records(array(data), 0, len(data), BASE, len(data), frames) == (
        count,
        position,
        judge(data, position, BASE),
    )


@settings(max_examples=examples(200))
@given(flips, st.integers(0, len(SEGMENT) - 1))
def test_the_next_frame_is_the_first_that_the_decoder_takes(changes: list[tuple[int, int]], start: int) -> None:
    data = flipped(SEGMENT, changes)
    positions = range(start, len(data) - BLANK_SIZE + 1)
    judged = ((position, judge(data, position, BASE)) for position in positions)
    expected = next(
        (pair for pair in judged if pair[1] in (ScanStatus.RECORD, ScanStatus.BLANK)),
        (start + len(positions), ScanStatus.MORE),
    )
    position, found = find_frame(array(data), start, len(data), BASE, len(data), new_frames(1))
    assert (position, ScanStatus(found)) == expected


@settings(max_examples=examples(200))
@given(flips, st.integers(0, len(SEGMENT)))
def test_a_cut_buffer_gives_the_same_answer_or_none(changes: list[tuple[int, int]], length: int) -> None:
    data = flipped(SEGMENT, changes)
    for position in range(0, length, 31):
        found = found_at(data[:length], position, BASE, len(data))
        assert found in (judge(data, position, BASE), ScanStatus.MORE)


def test_a_record_cut_anywhere_needs_more_bytes() -> None:
    record = Record(b"Topic", body=b"body", properties=b"a\1b\2", commit_log_offset=BASE).encode()
    for length in range(len(record)):
        assert found_at(record[:length], 0, BASE, len(record)) == ScanStatus.MORE, length


@given(records(BASE))
def test_the_shortest_buffer_for_a_record_is_the_record(record: Record) -> None:
    data = record.encode()
    assert found_at(data, 0, BASE) == ScanStatus.RECORD
    assert found_at(data[:-1], 0, BASE, len(data)) == ScanStatus.MORE


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(-300, 300))
def test_any_bytes_are_judged(data: bytes, position: int, more: int) -> None:
    position = min(position, len(data))
    assert found_at(data, position, BASE, max(len(data) + more, position)) in ScanStatus


@pytest.mark.parametrize(
    ("size", "end", "found"),
    [
        (8, 8, ScanStatus.BLANK),
        (100, 100, ScanStatus.BLANK),
        (8, 9, ScanStatus.BAD_SIZE),
        (9, 8, ScanStatus.BAD_SIZE),
        (0, 8, ScanStatus.BAD_SIZE),
        (MAX_BLANK_SIZE, MAX_BLANK_SIZE, ScanStatus.BLANK),
        (MAX_BLANK_SIZE + 1, MAX_BLANK_SIZE + 1, ScanStatus.BAD_SIZE),
    ],
)
def test_a_blank_reaches_exactly_to_the_end_and_not_far(size: int, end: int, found: ScanStatus) -> None:
    head = struct.pack(">ii", size, MAGIC_BLANK)
    assert found_at(head, 0, BASE, end) == found
    assert is_blank(head, end) == (found == ScanStatus.BLANK)


@settings(max_examples=examples(300))
@given(
    st.binary(max_size=12) | st.builds(struct.pack, st.just(">ii"), st.integers(0, 40), st.just(MAGIC_BLANK)),
    st.integers(0, 40),
)
def test_the_plain_rule_of_a_blank_is_that_of_the_kernel(head: bytes, end: int) -> None:
    assert is_blank(head, end) == (found_at(head[:8], 0, BASE, end) == ScanStatus.BLANK)


def test_a_full_frame_array_ends_the_hop() -> None:
    frames = new_frames(4)
    count, position, found = scan_records(array(SEGMENT), 0, len(SEGMENT), BASE, len(SEGMENT), frames)
    assert (count, position, ScanStatus(found)) == (4, int(FRAMES[4].position), ScanStatus.FULL)


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_the_hop_stops_behind_the_record_that_starts_before_the_stop(behind: int) -> None:
    stop = int(FRAMES[3].position) + behind
    count, position, found = scan_records(array(SEGMENT), 0, stop, BASE, len(SEGMENT), new_frames(100))
    expected = 4 if behind else 3
    assert (count, position, ScanStatus(found)) == (expected, int(FRAMES[expected].position), ScanStatus.STOP)


def test_no_frame_before_the_stop_is_said_so() -> None:
    stop = int(FRAMES[1].position)
    scratch = new_frames(1)
    assert find_frame(array(SEGMENT), 1, stop, BASE, len(SEGMENT), scratch) == (stop, ScanStatus.STOP)


@pytest.mark.parametrize("before", [0, 1, 59, 60, 61, 63, 64, 65, 127, 128, 300])
@pytest.mark.parametrize("behind", [0, 1, 200])
def test_a_record_among_other_bytes_is_found_wherever_it_lies(before: int, behind: int) -> None:
    """Searching looks at many positions at once."""
    for junk in (b"\0", b"\xda", b"\xda\xa3", MAGIC_V1.to_bytes(4, "big", signed=True)):
        record = Record(b"T", commit_log_offset=BASE + before).encode()
        data = (junk * 300)[:before] + record + junk * behind
        scratch = new_frames(1)
        assert find_frame(array(data), 0, len(data), BASE, len(data), scratch) == (before, ScanStatus.RECORD)


def test_no_frame_is_found_in_any_number_of_bytes_without_one() -> None:
    for length in range(200):
        for junk in (b"\0", b"\xda\xa3"):
            data = (junk * 200)[:length]
            reached = max(length - BLANK_SIZE + 1, 0)
            found = find_frame(array(data), 0, length, BASE, 1000, new_frames(1))
            assert found == ((reached, ScanStatus.MORE) if length else (0, ScanStatus.STOP))


def test_a_record_of_another_place_is_none() -> None:
    record = Record(b"T", commit_log_offset=BASE)
    assert found_at(replace(record, commit_log_offset=BASE + 1).encode(), 0, BASE) == ScanStatus.BAD_OFFSET


def test_a_log_beyond_two_gib_is_scanned() -> None:
    base = 1 << 40
    data = segment_of(3, base)
    frames = new_frames(10)
    count, _, found = scan_records(array(data), 0, len(data), base, len(data), frames)
    assert (count, ScanStatus(found)) == (3, ScanStatus.BLANK)


def test_every_corrupt_finding_has_a_reason() -> None:
    corrupt = {found for found in ScanStatus if found.name.startswith("BAD_")} | {ScanStatus.ZEROS}
    assert set(CORRUPTION_REASONS) == corrupt


def test_the_type_of_frames_has_the_fields_of_the_array() -> None:
    types = {np.dtype(np.int32): "_Int32", np.dtype(np.int64): "_Int64"}
    fields = {name: types[FRAME_DTYPE[name]] for name in FRAME_DTYPE.names or ()}
    assert {name: hint.__name__ for name, hint in get_type_hints(Frame).items()} == fields
    assert get_type_hints(Frames) == {"size": int, **get_type_hints(Frame)}


@given(st.lists(records(), min_size=1, max_size=5), st.data())
def test_frames_at_known_positions_are_those_of_a_scan(some: list[Record], data: st.DataObject) -> None:
    """Up to the first position that has no record of the known size."""
    encoded: list[bytes] = []
    for record in some:
        encoded.append(replace(record, commit_log_offset=BASE + sum(map(len, encoded))).encode())
    buffer = array(b"".join(encoded))
    scanned = frames_of(buffer.tobytes(), BASE)
    positions, sizes = scanned.position.copy(), scanned.store_size.astype(np.int64)
    found = new_frames(len(some))
    assert read_frames_at(buffer, positions, positions + BASE, sizes, found) == len(some)
    assert found.tolist() == scanned.tolist()  # type: ignore[attr-defined]
    wrong = data.draw(st.integers(0, len(some) - 1))
    offsets = positions + BASE
    data.draw(st.sampled_from([positions, offsets, sizes]))[wrong] += 1
    assert read_frames_at(buffer, positions, offsets, sizes, new_frames(len(some))) == wrong
