from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.java_text import hash_code
from spark_mq.format.kernels.index_keys import IndexKeys, entry_counts, index_keys
from spark_mq.format.record import Record
from spark_mq.testing.plain_index import key_hashes, plain_key_hash
from spark_mq.testing.strategies import mixed_bytes
from tests.support.index_stores import STORES, puts_of
from tests.support.kernels import array, examples, frames_of, live_frames
from tests.support.stores import RealStore, Unpack

pieces = st.one_of(
    st.sampled_from([b"\1", b"\2", b"KEYS\1", b"UNIQ_KEY\1", b"KEYS", b"a", b" ", b"  ", b"\xc3\xa9", b"TAGS\1x\2"]),
    mixed_bytes,
)
properties = st.lists(pieces, max_size=15).map(b"".join)


def plain_hashes(record: Record, has_tags: bool | None = False) -> list[int]:
    """The hashes of the plain model; with None, that of the tags is complemented."""
    if has_tags is not None:
        return key_hashes(record, has_tags)
    without = key_hashes(record)
    return [*without, *(~tags_hash for tags_hash in key_hashes(record, True)[len(without) :])]


def keys_of(records: list[Record], has_tags: bool | None = False) -> IndexKeys:
    data = b""
    for record in records:
        data += Record(
            record.topic, properties=record.properties, sys_flag=record.sys_flag, commit_log_offset=len(data)
        ).encode()
    return index_keys(array(data), frames_of(data), has_tags)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(properties, st.sampled_from([0, 4, 8, 12])), max_size=6))
def test_the_entry_of_tags_is_counted_apart(messages: list[tuple[bytes, int]]) -> None:
    records = [Record(b"T", properties=stored, sys_flag=flag) for stored, flag in messages]
    data = b""
    for record in records:
        data += replace(record, commit_log_offset=len(data)).encode()
    key_count, has_tags = entry_counts(array(data), frames_of(data))
    assert key_count.tolist() == [len(plain_hashes(record)) for record in records]
    assert has_tags.tolist() == [len(plain_hashes(record, True)) > len(plain_hashes(record)) for record in records]


def hashes_of(stored: bytes, topic: bytes = b"T", sys_flag: int = 0) -> list[int]:
    return list(keys_of([Record(topic, properties=stored, sys_flag=sys_flag)]).key_hash.tolist())


def texts(*keys: str) -> list[int]:
    return [plain_key_hash("T", key) for key in keys]


@pytest.mark.parametrize("has_tags", [False, True, None])
def test_entries_are_staged_and_tags_codes_found_in_the_same_pass(has_tags: bool | None) -> None:
    stored = [b"KEYS\1a b\2TAGS\1t\2", b"", b"TAGS\1u\2UNIQ_KEY\1c\2TAGS\1v\2"]
    records = [Record(b"T", properties=one, commit_log_offset=0, store_timestamp=n) for n, one in enumerate(stored)]
    data = b""
    for record in records:
        data += replace(record, commit_log_offset=1000 + len(data)).encode()
    offsets = [1000, 1000 + records[0].size, 1000 + records[0].size + records[1].size]
    frames, tags_codes = frames_of(data, 1000), np.empty(3, np.int64)
    keys = index_keys(array(data), frames, has_tags, tags_codes)
    assert tags_codes.tolist() == [hash_code("t"), 0, hash_code("v")]
    assert keys.staged(array(data), frames, 1000).tobytes() == b"".join(
        struct.pack(">iqq", key_hash, offset, number)
        for number, (record, offset) in enumerate(zip(records, offsets, strict=True))
        for key_hash in plain_hashes(record, has_tags)
    )


@pytest.mark.parametrize("store", STORES, ids=str)
def test_keys_are_those_that_java_sees(store: RealStore, unpacked: Unpack) -> None:
    expected = [[key_hash for key_hash, _ in puts_of(fact)] for fact in store.facts("msg")]
    made: list[list[int]] = []
    for data, frames in live_frames(store, unpacked(store)):
        keys = index_keys(data, frames)
        hashes, ends = keys.key_hash.tolist(), np.cumsum(keys.entry_count).tolist()
        assert len(hashes) == (ends[-1] if ends else 0)
        made += [hashes[end - count : end] for end, count in zip(ends, keys.entry_count.tolist(), strict=True)]
    assert made == expected


@pytest.mark.parametrize(
    ("stored", "keys"),
    [
        (b"", []),
        (b"KEYS\1a b\2", ["a", "b"]),
        (b"KEYS\1a b\2UNIQ_KEY\1u\2", ["u", "a", "b"]),
        (b"UNIQ_KEY\1u v\2KEYS\1u\2", ["u v", "u"]),
        (b"KEYS\1a a\2", ["a", "a"]),
        (b"KEYS\1  a   b \2", ["a", "b"]),
        (b"KEYS\1 \2", []),
        (b"KEYS\1\2UNIQ_KEY\1\2", []),
        (b"KEYS\1a\2KEYS\1b\2", ["b"]),
        (b"KEYS\1a\2KEYS\1\2", ["a"]),
        (b"KEYS\1a\1b\2", ["a\1b"]),
        (b"KEYS\1a\tb\2", ["a\tb"]),
        (b"UNIQ_KEY\1u", ["u"]),
        (b"_UNIQUE_KEY_QUERY\1a\2", []),
        (b"KEYSx\1a\2xKEYS\1b\2KEY\1c\2TAGS\1d\2", []),
        ("KEYS\1ü 😀\2".encode(), ["ü", "😀"]),
        (b"KEYS\1\xed\xa0\x80 a\xe2\x82\2", ["\ufffd", "a\ufffd"]),
    ],
)
def test_the_rules_of_the_broker(stored: bytes, keys: list[str]) -> None:
    assert hashes_of(stored) == texts(*keys)


@pytest.mark.parametrize(("sys_flag", "is_indexed"), [(0, True), (4, True), (8, True), (12, False), (13, False)])
def test_only_rolled_back_messages_are_not_indexed(sys_flag: int, is_indexed: bool) -> None:
    assert hashes_of(b"KEYS\1a\2", sys_flag=sys_flag) == (texts("a") if is_indexed else [])


@pytest.mark.parametrize(("topic", "key"), [(b"orders", b"abydncvw"), (b"T", b"ajvakuzm")])
def test_the_hash_without_an_absolute_value_is_zero(topic: bytes, key: bytes) -> None:
    assert hashes_of(b"KEYS\1" + key + b"\2", topic) == [0]


def test_as_many_keys_as_fit_are_all_found() -> None:
    assert hashes_of(b"UNIQ_KEY\1u\2KEYS\1" + b" ".join([b"a"] * 16_000)) == texts("u", *"a" * 16_000)


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.builds(Record, topic=mixed_bytes, properties=properties, sys_flag=st.sampled_from([0, 1, 4, 8, 12])),
        max_size=5,
    ),
    st.sampled_from([False, True, None]),
)
def test_keys_of_many_messages_are_those_of_each(records: list[Record], has_tags: bool | None) -> None:
    records = [record for record in records if len(record.topic) < 128]
    keys = keys_of(records, has_tags)
    expected = [plain_hashes(record, has_tags) for record in records]
    assert keys.entry_count.tolist() == [len(hashes) for hashes in expected]
    assert keys.key_hash.tolist() == [key_hash for hashes in expected for key_hash in hashes]
