from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.kernels.encode import NONE_WRONG, RecordFields, encode_records, renew_property_crcs
from spark_mq.format.pieces import pieces_of_bytes
from spark_mq.format.record import BORN_HOST_V6_FLAG, HOST_V6_SIZE, MAGIC_V2, STORE_HOST_V6_FLAG, Record
from spark_mq.testing.strategies import records
from tests.support.kernels import examples

FILL = 0x55


def with_flags(record: Record) -> Record:
    """The record with the IPv6 bits that `Record.encode` would set."""
    flags = record.sys_flag & ~(BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)
    flags |= BORN_HOST_V6_FLAG if len(record.born_host) == HOST_V6_SIZE else 0
    flags |= STORE_HOST_V6_FLAG if len(record.store_host) == HOST_V6_SIZE else 0
    return replace(record, sys_flag=flags)


def fields_of(messages: list[Record], is_stored: list[bool]) -> RecordFields:
    """The values of the records, as a caller of the kernel would have them."""
    pairs = list(zip(messages, is_stored, strict=True))
    born, store = (pieces_of_bytes([getattr(each, name) for each in messages]) for name in ("born_host", "store_host"))
    bodies, stored_bodies = (
        pieces_of_bytes([each.body if is_here == stored else b"not used" for each, stored in pairs])
        for is_here in (False, True)
    )

    def int32s(name: str) -> np.ndarray:
        return np.array([getattr(each, name) or 0 for each in messages], np.int32)

    def int64s(name: str) -> np.ndarray:
        return np.array([getattr(each, name) for each in messages], np.int64)

    return RecordFields(
        is_v2=np.array([each.magic == MAGIC_V2 for each in messages], np.bool_),
        queue_ids=int32s("queue_id"),
        flags=int32s("flag"),
        queue_offsets=int64s("queue_offset"),
        commit_log_offsets=int64s("commit_log_offset"),
        sys_flags=int32s("sys_flag"),
        born_timestamps=int64s("born_timestamp"),
        born_hosts=born.buffer,
        born_host_starts=born.starts,
        store_timestamps=int64s("store_timestamp"),
        store_hosts=store.buffer,
        store_host_starts=store.starts,
        reconsume_times=int32s("reconsume_times"),
        prepared_transaction_offsets=int64s("prepared_transaction_offset"),
        bodies=bodies,
        stored_bodies=stored_bodies,
        has_stored_body=np.array(is_stored, np.bool_),
        body_crcs=int32s("body_crc"),
        has_body_crc=np.array([each.body_crc is not None for each in messages], np.bool_),
        topics=pieces_of_bytes([each.topic for each in messages]),
        properties=pieces_of_bytes([each.properties for each in messages]),
    )


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(records(max_text=200).map(with_flags), st.booleans(), st.integers(0, 3)), max_size=4))
def test_the_bytes_are_those_of_the_plain_twin_and_nothing_else_is_written(
    placed: list[tuple[Record, bool, int]],
) -> None:
    messages = [
        record if record.magic == MAGIC_V2 else replace(record, topic=record.topic[:127]) for record, *_ in placed
    ]
    fields = fields_of(messages, [stored for _, stored, _ in placed])
    expected = b""
    positions = []
    for message, (_, _, space) in zip(messages, placed, strict=True):
        expected += bytes((FILL,)) * space
        positions.append(len(expected))
        expected += message.encode()
    out = np.full(len(expected), FILL, np.uint8)
    assert encode_records(fields, out, np.array(positions, np.int64)) == NONE_WRONG
    assert out.tobytes() == expected
    assert fields.sizes().tolist() == [message.size for message in messages]


def test_long_texts_and_both_sources_of_bodies() -> None:
    messages = [
        Record(b"t" * 300, body=b"stored", properties=b"p" * 32_767, magic=MAGIC_V2),
        Record(b"t" * 127, body=b"given", properties=b"p" * 256),
    ]
    fields = fields_of(messages, [True, False])
    out = np.empty(int(fields.sizes().sum()), np.uint8)
    assert encode_records(fields, out, np.cumsum(fields.sizes()) - fields.sizes()) == NONE_WRONG
    assert out.tobytes() == b"".join(message.encode() for message in messages)


def test_a_given_body_crc_is_written_and_a_wrong_one_is_found() -> None:
    crc = zlib.crc32(b"body") & 0x7FFFFFFF
    messages = [Record(b"T", body=b"body", body_crc=crc), Record(b"T", body_crc=7), Record(b"T", body=b"x", body_crc=8)]
    fields = fields_of(messages, [False, False, True])
    out = np.empty(int(fields.sizes().sum()), np.uint8)
    assert encode_records(fields, out, np.cumsum(fields.sizes()) - fields.sizes()) == 2
    assert out.tobytes() == b"".join(message.encode() for message in messages)


def test_a_property_crc_is_renewed_only_if_asked() -> None:
    message = Record(b"T", body=b"body", properties=b"a\1b\2__CRC32#\x010000000000\2")
    data = np.frombuffer(bytearray(2 * message.encode()), np.uint8)
    renew_property_crcs(data, np.array([0, message.size]), np.array([False, True]))
    digits = f"{zlib.crc32(message.encode()[:-20]) & 0x7FFFFFFF:010d}"[::-1].encode()
    assert data.tobytes() == message.encode() + message.encode()[:-11] + digits + b"\2"
