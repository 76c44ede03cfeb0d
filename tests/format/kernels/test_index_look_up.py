"""Many keys looked up in an index file at once: the judge is the look-up of one key, on sound and damaged files."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import CorruptIndexError
from spark_mq.format.index_file import IndexFile, IndexHeader, IndexLayout, decode_header, index_key_hash, walk_slot
from spark_mq.format.kernels.index_keys import hash_keys
from spark_mq.format.kernels.index_look_up import find_entries
from spark_mq.testing.strategies import mixed_bytes
from tests.support.index_stores import STORES, index_files, layout_of
from tests.support.kernels import array, examples
from tests.support.stores import WORKLOAD, RealStore, Unpack

NONE = 0x7FFFFFFF
MOST = (1 << 63) - 1


def one_by_one(data: bytes, layout: IndexLayout, header: IndexHeader, last: int, key_hash: int) -> list[int] | None:
    """The offsets of the entries of a hash; None if the look-up meets damage."""
    file = IndexFile("file", layout, lambda position, length: data[position : position + length])
    found, before = [], last
    try:
        for entry in walk_slot(file, header, key_hash, file.newest_entry(key_hash)):
            if not header.begin_commit_log_offset <= entry.commit_log_offset <= before:
                return None
            before = entry.commit_log_offset
            if entry.key_hash == key_hash:
                left = file.entry(entry.number - 1).commit_log_offset if entry.number > 1 else -1
                is_last = entry.number + 1 >= header.next_entry
                right = MOST if is_last else file.entry(entry.number + 1).commit_log_offset
                if not left <= entry.commit_log_offset <= right:
                    return None
                found.append(entry.commit_log_offset)
    except CorruptIndexError:
        return None
    return found


def check(data: bytes, layout: IndexLayout, key_hashes: list[int]) -> int:
    """Compare both look-ups; returns how many hashes are damaged."""
    header = decode_header(data, layout, "file")
    last = header.end_commit_log_offset
    found = find_entries(array(data), layout, header, last, np.array(key_hashes, np.int32))
    for number, key_hash in enumerate(key_hashes):
        expected = one_by_one(data, layout, header, last, key_hash)
        assert bool(found.is_damaged[number]) == (expected is None)
        assert found.commit_log_offset[found.hash_index == number].tolist() == (expected or [])
    return int(found.is_damaged.sum())


def hashes_in(data: bytes, layout: IndexLayout) -> list[int]:
    end = layout.entries_at + 20 * decode_header(data, layout, "file").next_entry
    places = range(layout.entries_at + 20, end, 20)
    return sorted({int.from_bytes(data[at : at + 4], "big") for at in places})


@pytest.mark.parametrize("store", STORES, ids=str)
def test_entries_of_a_brokers_file(store: RealStore, unpacked: Unpack) -> None:
    layout = layout_of(store)
    for file in index_files(unpacked(store)):
        data = file.read_bytes()
        hashes = hashes_in(data, layout)[:: 1 + len(hashes_in(data, layout)) // 200]
        assert check(data, layout, [*hashes, *(key_hash ^ 1 for key_hash in hashes[:5]), NONE]) == 0


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 4))
def test_damage_is_seen_as_by_the_look_up_of_one_key(unpacked: Unpack, seed: int, bits: int) -> None:
    chance, store = random.Random(seed), WORKLOAD
    layout = layout_of(store)
    data = bytearray(chance.choice(index_files(unpacked(store))).read_bytes())
    hashes = hashes_in(bytes(data), layout)
    count = decode_header(bytes(data), layout, "file").next_entry
    asked = chance.sample(hashes, min(len(hashes), 50))
    for _ in range(bits):
        number = chance.randrange(1, count)
        at, fields = layout.entries_at + 20 * number, ((0, 4), (4, 8), (12, 4), (16, 4))
        asked.append(int.from_bytes(data[at : at + 4], "big"))
        place, size = chance.choice(fields)
        if chance.random() < 0.3:
            data[chance.randrange(40, layout.entries_at + 20 * count)] ^= 1 << chance.randrange(8)
        elif chance.random() < 0.2:
            data[at + place] ^= 0x80  # a number below zero
        elif place == 16 and chance.random() < 0.5:
            data[at + 16 : at + 20] = (number + chance.randrange(3)).to_bytes(4, "big")
        else:  # the value of an entry nearby
            other = layout.entries_at + 20 * min(max(number + chance.randrange(-2, 3), 1), count - 1)
            data[at + place : at + place + size] = data[other + place : other + place + size]
    check(bytes(data), layout, [one for one in asked if one < 1 << 31])


def test_more_entries_than_keys_have_room(unpacked: Unpack) -> None:
    """One hash with thousands of entries."""
    layout = IndexLayout(3, 5001)
    entries = b"".join(
        b"".join(value.to_bytes(size, "big") for value, size in ((6, 4), (90 * number, 8), (0, 4), (number, 4)))
        for number in range(5000)
    )
    header = IndexHeader(1, 2, 0, 90 * 4999, 1, 5001)
    data = header.encode() + (5000).to_bytes(4, "big") + bytes(8) + bytes(20) + entries
    assert check(data, layout, [6]) == 0


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(mixed_bytes, mixed_bytes), max_size=20), st.integers(0, 3))
def test_hashes_of_texts(pairs: list[tuple[bytes, bytes]], start: int) -> None:
    """Also of arrays that are parts of others."""
    texts = [tuple(value.decode("utf-8", "replace") for value in pair) for pair in pairs]
    topics, keys = (pa.array([text[number] for text in texts], pa.string()) for number in (0, 1))
    expected = [index_key_hash(topic.encode(), key.encode()) for topic, key in texts]
    assert hash_keys(topics[start:], keys[start:]).tolist() == expected[start:]
