from __future__ import annotations

import mmap
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import CorruptIndexError, OptionError
from spark_mq.format.index_file import (
    ENTRY_DTYPE,
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexHeader,
    IndexLayout,
    decode_header,
    index_key_hash,
    read_entries,
)
from spark_mq.format.java_text import decode_utf8, hash_code
from spark_mq.testing.plain_index import plain_key_hash
from spark_mq.testing.strategies import mixed_bytes
from tests.support.index_stores import STORES, WHOLE, Put, index_files, layout_of, puts_of
from tests.support.kernels import examples
from tests.support.stores import RealStore, Unpack

SMALL = IndexLayout(3, 5)
int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
headers = st.builds(IndexHeader, int64, int64, int64, int64, int32, int32)


@pytest.mark.parametrize("store", STORES, ids=str)
def test_a_broker_s_files_have_the_size_of_its_settings(store: RealStore, unpacked: Unpack) -> None:
    sizes = {file.stat().st_size for file in index_files(unpacked(store))}
    assert sizes == {layout_of(store).file_size}


@pytest.mark.parametrize("store", WHOLE, ids=str)
def test_the_entries_are_those_of_the_messages(store: RealStore, unpacked: Unpack) -> None:
    read: list[Put] = []
    for file in index_files(unpacked(store)):
        entries = read_entries(file.read_bytes(), layout_of(store), str(file))
        read += zip(entries["key_hash"].tolist(), entries["commit_log_offset"].tolist(), strict=True)
    assert read == [put for fact in store.facts("msg") for put in puts_of(fact)]


@pytest.mark.parametrize("store", WHOLE, ids=str)
def test_the_end_of_the_newest_file_is_what_the_broker_reports(store: RealStore, unpacked: Unpack) -> None:
    newest = index_files(unpacked(store))[-1]
    header = decode_header(newest.read_bytes(), layout_of(store), str(newest))
    reported = [fact for fact in store.facts("query") if fact["offsets"]]
    assert {(fact["indexLastUpdateTimestamp"], fact["indexLastUpdatePhyoffset"]) for fact in reported} == {
        (header.end_timestamp, header.end_commit_log_offset)
    }


@pytest.mark.parametrize(
    ("slots", "entries", "name"),
    [(0, 5, "maxHashSlotNum"), (-1, 5, "maxHashSlotNum"), (1, 1, "maxIndexNum"), (1, 107_374_181, "maxIndexNum")],
)
def test_layouts_with_which_no_broker_works_are_refused(slots: int, entries: int, name: str) -> None:
    with pytest.raises(OptionError, match=name):
        IndexLayout(slots, entries)


@given(headers, st.binary(max_size=30))
def test_an_encoded_header_is_decoded_back(header: IndexHeader, behind: bytes) -> None:
    layout = IndexLayout(1, 100_000_000)
    if header.index_count > layout.index_num:
        with pytest.raises(CorruptIndexError, match="the-file"):
            decode_header(header.encode() + behind, layout, "the-file")
    else:
        assert decode_header(header.encode() + behind, layout, "the-file") == header


@pytest.mark.parametrize(("count", "next_entry"), [(-5, 1), (0, 1), (1, 1), (2, 2), (5, 5)])
def test_a_count_below_one_is_that_of_an_empty_file(count: int, next_entry: int) -> None:
    header = IndexHeader(index_count=count)
    assert (header.next_entry, header.is_full(SMALL)) == (next_entry, count == 5)


@pytest.mark.parametrize("length", [0, 1, 39])
def test_bytes_without_a_header_are_refused(length: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"the-file: {length} bytes"):
        decode_header(bytes(length), SMALL, "the-file")


@pytest.mark.parametrize("size", [0, HEADER_SIZE, SMALL.file_size - 1, SMALL.file_size + 20])
def test_a_file_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"the-file: {size} bytes, .* take {SMALL.file_size}.*maxHashSlotNum"):
        read_entries(bytes(size), SMALL, "the-file")


def test_a_count_beyond_the_file_is_refused() -> None:
    data = IndexHeader(index_count=6).encode().ljust(SMALL.file_size, b"\0")
    with pytest.raises(CorruptIndexError, match="the-file: index count 6"):
        read_entries(data, SMALL, "the-file")


@settings(max_examples=examples(200))
@given(st.binary(max_size=60), st.binary(max_size=200), st.integers(1, 8), st.integers(2, 8), st.booleans())
def test_hostile_files_give_entries_or_an_error(
    head: bytes, rest: bytes, slots: int, entries: int, is_whole: bool
) -> None:
    layout = IndexLayout(slots, entries)
    data = (head + rest).ljust(layout.file_size, b"\0")[: layout.file_size if is_whole else None]
    with suppress(CorruptIndexError):
        read = read_entries(data, layout, "the-file")
        assert len(data) == layout.file_size
        assert read.size < entries


def test_entries_of_a_mapped_file_are_a_view(tmp_path: Path) -> None:
    entries = np.array([(1, 2, 3, 0), (4, 5, 6, 1)], ENTRY_DTYPE)
    head = IndexHeader(index_count=3).encode().ljust(SMALL.entries_at + ENTRY_SIZE, b"\0")
    (tmp_path / "file").write_bytes((head + entries.tobytes()).ljust(SMALL.file_size, b"\0"))
    with (tmp_path / "file").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    read = read_entries(mapped, SMALL, "file")
    assert read.tolist() == entries.tolist()
    assert np.shares_memory(read, np.frombuffer(mapped, np.uint8))


def test_an_entry_is_20_bytes_big_endian() -> None:
    entry = np.array([(1, 2, 3, 4)], ENTRY_DTYPE)
    assert entry.tobytes() == struct.pack(">iqii", 1, 2, 3, 4)


@settings(max_examples=examples(200))
@given(mixed_bytes, mixed_bytes)
def test_the_key_hash_is_that_of_topic_and_key(topic: bytes, key: bytes) -> None:
    key_hash = index_key_hash(topic, key)
    assert key_hash == plain_key_hash(decode_utf8(topic), decode_utf8(key)) >= 0


@pytest.mark.parametrize(("topic", "key"), [("orders", "abydncvw"), ("T", "ajvakuzm")])
def test_the_hash_without_an_absolute_value_is_zero(topic: str, key: str) -> None:
    assert hash_code(f"{topic}#{key}") == -(1 << 31)
    assert index_key_hash(topic.encode(), key.encode()) == 0
