from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.kernels.encode import renumber
from spark_mq.format.properties import PROPERTY_CRC_SIZE
from spark_mq.format.record import MAGIC_V2, Record, decode_record, has_property_crc
from spark_mq.testing.strategies import records
from tests.support.kernels import examples, live_frames
from tests.support.stores import RealStore, Unpack, usual_stores

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NO_CRC = b"__CRC32#\x010000000000\2"
LOOKS_LIKE_A_CRC = b"x__CRC32#\x010000000000\2"


def sealed(record: Record) -> bytes:
    """The bytes of the record with the property CRC that a broker would write, if it has one."""
    data = record.encode()
    if not has_property_crc(record.properties):
        return data
    digits = f"{zlib.crc32(data[:-PROPERTY_CRC_SIZE]) & 0x7FFFFFFF:010d}"[::-1]
    return data[:-11] + digits.encode() + b"\2"


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(
            records(),
            st.sampled_from([b"", NO_CRC, b"TAGS\1a\2" + NO_CRC, LOOKS_LIKE_A_CRC, NO_CRC[:-1] + b"x"]) | st.none(),
            st.tuples(INT64, INT64, INT64),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_new_offsets_are_those_of_the_plain_twin(
    cases: list[tuple[Record, bytes | None, tuple[int, int, int]]], with_times: bool
) -> None:
    old, new = [], []
    for record, properties, (commit_log_offset, queue_offset, store_timestamp) in cases:
        message = record if properties is None else replace(record, properties=properties)
        old.append(message.encode())
        changed = replace(message, commit_log_offset=commit_log_offset, queue_offset=queue_offset)
        new.append(sealed(replace(changed, store_timestamp=store_timestamp) if with_times else changed))
    sizes = np.array([len(data) for data in old], np.int64)
    data = np.frombuffer(bytearray(b"".join(old)), np.uint8)
    offsets = np.array([numbers for _, _, numbers in cases], np.int64).reshape(-1, 3)
    renumber(data, np.cumsum(sizes) - sizes, offsets[:, 0], offsets[:, 1], offsets[:, 2] if with_times else None)
    assert data.tobytes() == b"".join(new)


def test_a_long_topic_hides_no_property_crc() -> None:
    for message in (Record(b"t" * 127, properties=NO_CRC), Record(b"t" * 200, magic=MAGIC_V2, properties=NO_CRC)):
        data = np.frombuffer(bytearray(message.encode()), np.uint8)
        renumber(data, np.array([0]), np.array([5]), np.array([6]))
        assert data.tobytes() == sealed(replace(message, commit_log_offset=5, queue_offset=6))


@pytest.mark.parametrize("store", [store for store in usual_stores() if store.name.startswith("crc")], ids=str)
def test_property_crcs_of_a_broker_come_back(store: RealStore, unpacked: Unpack) -> None:
    """Another offset changes the CRC; the broker's own offset brings the broker's bytes back."""
    sealed_records = 0
    for data, frames in live_frames(store, unpacked(store)):
        copy = data.copy()
        mine = [
            decode_record(data[p : p + s].tobytes()) for p, s in zip(frames.position, frames.store_size, strict=True)
        ]
        zeros = np.zeros(frames.size, np.int64)
        renumber(copy, frames.position, zeros, zeros)
        for record, position in zip(mine, frames.position.tolist(), strict=True):
            moved = replace(record, commit_log_offset=0, queue_offset=0)
            assert copy[position : position + record.size].tobytes() == sealed(moved)
            sealed_records += has_property_crc(record.properties)
        offsets = np.array([record.commit_log_offset for record in mine], np.int64)
        renumber(copy, frames.position, offsets, np.array([record.queue_offset for record in mine], np.int64))
        assert copy.tobytes() == data.tobytes()
    assert sealed_records > 100
