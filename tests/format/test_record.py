from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import (
    BORN_HOST_V6_FLAG,
    HOST_V6_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_RECORD_SIZE,
    STORE_HOST_V6_FLAG,
    Record,
    decode_record,
    encode_blank,
    store_timestamp_of,
)
from spark_mq.testing.strategies import records
from tests.support.kernels import examples
from tests.support.stores import RealStore, Unpack, segment_files, usual_stores

V6_HOST = bytes.fromhex("20010db800000001000000000000000a00002a9f")
PLAIN = Record(b"Topic", body=b"body", properties=b"a\1b\2", commit_log_offset=1000)


def changed(at: int, data: bytes, record: Record = PLAIN) -> bytes:
    """The record's bytes, some of them replaced."""
    encoded = record.encode()
    return encoded[:at] + data + encoded[at + len(data) :]


@settings(max_examples=examples(300))
@given(records())
def test_a_decoded_record_is_the_encoded_one(record: Record) -> None:
    decoded = decode_record(record.encode())
    assert record.size == len(record.encode())
    hosts = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
    assert decoded.sys_flag & ~hosts == record.sys_flag & ~hosts
    assert replace(decoded, sys_flag=0, body_crc=None) == replace(record, sys_flag=0)


@given(records(), st.binary(max_size=20), st.binary(max_size=20))
def test_a_record_is_found_between_other_bytes(record: Record, before: bytes, after: bytes) -> None:
    assert decode_record(before + record.encode() + after, len(before)) == decode_record(record.encode())


@pytest.mark.parametrize(("born", "store"), [(8, 8), (20, 8), (8, 20), (20, 20)])
def test_the_hosts_sizes_set_the_ipv6_bits(born: int, store: int) -> None:
    record = Record(b"T", born_host=bytes(born), store_host=bytes(store), sys_flag=BORN_HOST_V6_FLAG)
    sys_flag = decode_record(record.encode()).sys_flag
    assert (bool(sys_flag & BORN_HOST_V6_FLAG), bool(sys_flag & STORE_HOST_V6_FLAG)) == (born == 20, store == 20)


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_every_real_record_is_what_the_broker_says(store: RealStore, unpacked: Unpack) -> None:
    files = {int(file.name): file.read_bytes() for file in segment_files(unpacked(store))}
    for fact in store.facts("msg"):
        base = max(start for start in files if start <= fact["offset"])
        record = decode_record(files[base], fact["offset"] - base, fact["offset"])
        encoded = record.encode()
        assert hashlib.md5(encoded).hexdigest() == fact["recordMd5"]
        assert decode_record(replace(record, body_crc=None).encode()).body_crc == fact["bodyCRC"]
        assert (record.size, record.magic, record.body_crc) == (fact["size"], fact["magic"], fact["bodyCRC"])
        assert (record.topic.decode(), record.queue_id, record.queue_offset) == (
            fact["topic"],
            fact["queueId"],
            fact["queueOffset"],
        )


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_blank_starts_as_the_brokers_does(store: RealStore, unpacked: Unpack) -> None:
    files = {int(file.name): file.read_bytes() for file in segment_files(unpacked(store))}
    for fact in store.facts("blank"):
        base = max(start for start in files if start <= fact["offset"])
        assert files[base][fact["offset"] - base :] == encode_blank(fact["size"])


@pytest.mark.parametrize("size", [0, -1, 90, PLAIN.size + 1, MAX_RECORD_SIZE + 1, 0x7FFFFFFF, -(1 << 31)])
def test_a_wrong_size_is_named(size: int) -> None:
    with pytest.raises(CorruptLogError, match=f"record at 0: size {size} "):
        decode_record(changed(0, struct.pack(">i", size)))


def test_a_size_that_is_too_small_is_named() -> None:
    with pytest.raises(CorruptLogError, match=rf"its parts take {PLAIN.size} bytes, its size is {PLAIN.size - 1}"):
        decode_record(changed(0, struct.pack(">i", PLAIN.size - 1)))


@pytest.mark.parametrize("magic", [0, MAGIC_BLANK, MAGIC_V1 + 1, MAGIC_V2 - 1])
def test_a_wrong_magic_is_named(magic: int) -> None:
    with pytest.raises(CorruptLogError, match=f"magic {magic & 0xFFFFFFFF:#x} is not a record's"):
        decode_record(changed(4, struct.pack(">i", magic)))


def test_a_record_that_lies_elsewhere_is_refused() -> None:
    with pytest.raises(CorruptLogError, match="its own offset is 1000, not 1001"):
        decode_record(PLAIN.encode(), 0, 1001)


def test_the_own_offset_is_not_judged_unasked() -> None:
    assert decode_record(PLAIN.encode()).commit_log_offset == 1000


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("length", [3, 5, 20, 1000, 0x7FFFFFFF, 0, -1, -(1 << 31)])
def test_a_wrong_body_length_is_refused(magic: int, length: int) -> None:
    with pytest.raises(CorruptLogError, match="record at 0"):
        decode_record(changed(84, struct.pack(">i", length), replace(PLAIN, magic=magic)))


@pytest.mark.parametrize("length", [4, 6, 9, 10, 127, -1, -128])
def test_a_wrong_topic_length_is_refused(length: int) -> None:
    with pytest.raises(CorruptLogError, match="record at 0"):
        decode_record(changed(92, struct.pack(">b", length)))


@pytest.mark.parametrize("length", [3, 5, 0x7FFF, 0, -1, -0x8000])
def test_a_wrong_properties_length_is_refused(length: int) -> None:
    with pytest.raises(CorruptLogError, match="its parts take"):
        decode_record(changed(98, struct.pack(">h", length)))


@pytest.mark.parametrize("length", [0, -1, -(1 << 31)])
def test_a_body_length_that_is_not_positive_is_no_body(length: int) -> None:
    assert decode_record(changed(84, struct.pack(">i", length), replace(PLAIN, body=b""))).body == b""


@pytest.mark.parametrize("length", [0, -1, -0x8000])
def test_a_properties_length_that_is_not_positive_is_none(length: int) -> None:
    assert decode_record(changed(94, struct.pack(">h", length), replace(PLAIN, body=b"", properties=b""))).size == 96


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("host", [PLAIN.born_host, V6_HOST], ids=["IPv4", "IPv6"])
def test_a_record_cut_at_any_byte_is_refused(magic: int, host: bytes) -> None:
    encoded = replace(PLAIN, magic=magic, born_host=host, store_host=host).encode()
    for length in range(len(encoded)):
        with pytest.raises(CorruptLogError, match="record at 0"):
            decode_record(encoded[:length])


@settings(max_examples=examples(300))
@given(
    records(),
    st.binary(max_size=20),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.data(),
)
def test_a_record_with_any_bytes_changed_is_a_record_or_refused(
    record: Record, before: bytes, changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The bytes start as those of a record, so that the decoder gets past the magic code and the size."""
    encoded = bytearray(record.encode())
    for at, value in changes:
        encoded[at % len(encoded)] = value
    cut = data.draw(st.integers(0, len(encoded))) if data.draw(st.booleans()) else len(encoded)
    content = before + bytes(encoded[:cut])
    try:
        decoded = decode_record(content, len(before))
    except CorruptLogError:
        assert changes or cut < len(encoded)
        return
    assert len(before) + decoded.size <= len(content)
    assert decode_record(decoded.encode()) == decoded


@pytest.mark.parametrize(
    "record", [Record(bytes(128)), Record(b"T", properties=bytes(0x8000)), Record(b"T", flag=1 << 31)]
)
def test_a_value_that_does_not_fit_is_not_encoded(record: Record) -> None:
    with pytest.raises(struct.error):
        record.encode()


def test_a_head_that_ends_before_the_store_time_has_none() -> None:
    head = Record(b"T", store_timestamp=5, born_host=bytes(HOST_V6_SIZE)).encode()
    assert [store_timestamp_of(head[:size]) for size in (0, 47, 48, 75, 76)] == [None, None, None, None, 5]
