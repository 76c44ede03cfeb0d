"""CRCs: against zlib, and against records that a broker wrote with a CRC of their own."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.kernels.crc import crc32, wrong_body_crcs, wrong_property_crcs
from spark_mq.format.kernels.frames import Frames, new_frames, scan_records
from spark_mq.format.record import (
    BODY_CRC_AT,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    Record,
    decode_record,
    is_body_crc_wrong,
    is_property_crc_wrong,
)
from spark_mq.testing.strategies import records
from tests.support.kernels import WITHOUT_JIT, array, examples, frames_of
from tests.support.stores import OWN_STORES, RealStore, Unpack, segment_files, stores_in

STORES = stores_in(OWN_STORES)
CRC_STORE = next(store for store in STORES if store.name.startswith("crc-"))


@settings(max_examples=examples(500))
@given(st.binary(max_size=400), st.integers(0, 100), st.integers(0, 400))
def test_the_crc_is_that_of_zlib(data: bytes, start: int, length: int) -> None:
    start = min(start, len(data))
    length = min(length, len(data) - start)
    assert crc32(array(data), start, length) == zlib.crc32(data[start : start + length])


def test_the_crc_of_many_bytes_is_that_of_zlib() -> None:
    data = np.random.default_rng(1).integers(0, 256, 100_003, np.uint8)
    assert crc32(data, 2, data.size - 2) == zlib.crc32(data[2:].tobytes())


def property_crc(record: bytes) -> bytes:
    """The last property of a record, whose other bytes are `record` (`MessageDecoder.createCrc32`@5.3.3)."""
    digits = str(zlib.crc32(record) & 0x7FFFFFFF)[::-1]
    return b"__CRC32#\1" + digits.ljust(10, "0").encode() + b"\2"


def with_property_crc(record: Record) -> bytes:
    """The record with 20 more bytes of properties."""
    properties = record.properties + b"\2" * (record.properties[-1:] not in (b"", b"\2"))
    whole = Record(**{**vars(record), "properties": properties + bytes(20)}).encode()
    return whole[:-20] + property_crc(whole[:-20])


def scanned(file: Path) -> tuple[bytes, Frames]:
    data, base = file.read_bytes(), int(file.name)
    frames = new_frames(len(data) // MIN_RECORD_SIZE + 1)
    count, _, _ = scan_records(array(data), 0, len(data), base, len(data), frames)
    return data, frames[:count]


@pytest.mark.parametrize("store", [store for store in STORES if not store.name.startswith("stale-")], ids=str)
def test_every_record_of_a_broker_has_the_crcs_that_it_says(store: RealStore, unpacked: Unpack) -> None:
    for file in segment_files(unpacked(store)):
        data, frames = scanned(file)
        assert not wrong_body_crcs(array(data), frames).any()
        assert not wrong_property_crcs(array(data), frames).any()


def test_a_flipped_bit_anywhere_in_a_broker_s_record_shows_in_its_property_crc(unpacked: Unpack) -> None:
    """All of it but the last property's own name and separators: without them there is no CRC to compare with."""
    data, frames = scanned(segment_files(unpacked(CRC_STORE))[0])
    frame = frames[np.flatnonzero(frames.body_length > 20)[0]]
    start, stop = int(frame.position), int(frame.position + frame.store_size)
    one = frames[frames.position == start]
    for place in range(start, stop):
        for bit in (place % 8,) if WITHOUT_JIT else range(8):
            flipped = bytearray(data[:stop])
            flipped[place] ^= 1 << bit
            is_body = frame.body_start <= place < frame.body_start + frame.body_length
            is_stored_crc = start + 8 <= place < start + 12
            assert wrong_body_crcs(array(bytes(flipped)), one)[0] == (is_body or is_stored_crc)
            is_mark = place >= stop - 21 and not stop - 11 <= place < stop - 1
            assert wrong_property_crcs(array(bytes(flipped)), one)[0] == (not is_mark)


@settings(max_examples=examples(200))
@given(st.lists(records(), max_size=4), st.booleans(), st.integers(0, 1 << 30))
def test_crcs_of_any_record(parts: list[Record], with_crc: bool, damage: int) -> None:
    data, starts = b"", []
    for part in parts:
        starts.append(len(data))
        record = Record(**{**vars(part), "commit_log_offset": len(data)})
        data += with_property_crc(record) if with_crc else record.encode()
    frames = frames_of(data)
    assert not wrong_body_crcs(array(data), frames).any()
    assert not wrong_property_crcs(array(data), frames).any()
    bodies = [place for frame in frames for place in range(frame.body_start, frame.body_start + frame.body_length)]
    if not bodies:
        return
    place = bodies[damage % len(bodies)]
    flipped = array(data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :])
    hit = np.searchsorted(starts, place, side="right") - 1
    assert np.flatnonzero(wrong_body_crcs(flipped, frames)).tolist() == [hit]
    assert np.flatnonzero(wrong_property_crcs(flipped, frames)).tolist() == ([hit] if with_crc else [])


@pytest.mark.parametrize(
    ("properties", "is_wrong"),
    [
        (b"", False),
        (b"__CRC32#\x010000000000\2", True),
        (b"TAGS\1a\2__CRC32#\x010000000000\2", True),
        (b"TAGS\1a\2__CRC32#\x01000000000x\2", True),
        (b"TAGS\1a\2__CRC32#\x019999999999\2", True),
        # No property CRC: another name, not the last, not ten digits, no separator.
        (b"TAGS\1a\2my__CRC32#\x010000000000\2", False),
        (b"__CRC32#\x010000000000\2TAGS\1a\2", False),
        (b"TAGS\1a\2__CRC32#\x01000000000\2", False),
        (b"TAGS\1a\2__CRC32#\x0100000000000", False),
        (b"_CRC32#\x010000000000\2", False),
    ],
)
def test_only_a_last_property_of_that_name_is_a_crc(properties: bytes, is_wrong: bool) -> None:
    data = Record(b"T", properties=properties).encode()
    assert wrong_property_crcs(array(data), frames_of(data)).tolist() == [is_wrong]
    assert is_property_crc_wrong(data, properties) == is_wrong


CRC_PIECES = st.sampled_from([b"__CRC32#\1", b"\2", b"\1", b"TAGS\1a", b"0123456789", b"0000000000", b"x", b"\xb2"])


@settings(max_examples=examples(500))
@given(st.lists(CRC_PIECES, max_size=6).map(b"".join), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 22))
def test_the_plain_rules_of_both_crcs_are_those_of_the_kernels(
    properties: bytes, is_long: bool, with_crc: bool, has_body: bool, change: int
) -> None:
    record = Record(b"T" * (1 + 299 * is_long), magic=MAGIC_V2, body=b"body" * has_body, properties=properties)
    data = bytearray(with_property_crc(record) if with_crc else record.encode())
    in_properties = len(decode_record(bytes(data)).properties)
    if change:
        data[-change if change <= in_properties else BODY_CRC_AT + 3] ^= 1
    whole = bytes(data)
    frames = frames_of(whole)
    decoded = decode_record(whole)
    assert [is_property_crc_wrong(whole, decoded.properties)] == wrong_property_crcs(array(whole), frames).tolist()
    assert [is_body_crc_wrong(decoded)] == wrong_body_crcs(array(whole), frames).tolist()


def test_without_a_body_its_crc_does_not_count() -> None:
    data = Record(b"T", body_crc=77).encode()
    assert not wrong_body_crcs(array(data), frames_of(data)).any()


def test_no_records_have_no_wrong_crcs() -> None:
    nothing = frames_of(b"")
    assert wrong_body_crcs(array(b""), nothing).size == wrong_property_crcs(array(b""), nothing).size == 0
