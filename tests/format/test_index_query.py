from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import CorruptIndexError
from spark_mq.format.index_file import (
    ENTRY,
    HEADER_SIZE,
    SLOT,
    IndexFile,
    IndexHeader,
    IndexLayout,
    index_key_hash,
    query_offset,
)
from spark_mq.testing.plain_index import PlainIndexService, PlainMessage
from tests.support.index_stores import STORES, index_files, layout_of, read_files
from tests.support.kernels import examples
from tests.support.stores import RealStore, Unpack, shared_store

SMALL = IndexLayout(4, 8)
KEYS = [b"%d" % number for number in range(6)]
HASHES = [index_key_hash(b"T", key) for key in KEYS]
FOREVER = (1 << 63) - 1


def opened(files: Sequence[bytes], layout: IndexLayout) -> list[IndexFile]:
    def file(number: int, data: bytes) -> IndexFile:
        return IndexFile(f"file-{number}", layout, lambda position, length: data[position : position + length])

    return [file(number, data) for number, data in enumerate(files)]


@pytest.mark.parametrize("store", STORES, ids=str)
def test_queries_find_what_the_broker_finds(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    """`DefaultMessageStore.queryMessage` sorts what was found, and leaves out what is no longer in the log."""
    tree = "recovered" if store.has("recovered") else ""
    folder = store.unpack(tmp_path, tree) if tree else unpacked(store)
    files = opened(read_files(index_files(folder)), layout_of(store))
    (facts,) = store.facts("store")
    wrong = []
    for fact in store.facts("query"):
        topic, key = fact["topic"].encode(), fact["key"].encode()
        result = query_offset(files, topic, key, fact["maxNum"], fact["begin"], fact["end"])
        offsets = sorted(offset for offset in result.commit_log_offsets if offset >= facts["minPhyOffset"])
        end = result.index_last_update_timestamp, result.index_last_update_commit_log_offset
        if offsets != fact["offsets"]:
            wrong.append(fact)
        if offsets and end != (fact["indexLastUpdateTimestamp"], fact["indexLastUpdatePhyoffset"]):
            wrong.append(fact)
    assert len(store.facts("query")) > 200
    assert wrong == []


@pytest.mark.parametrize("store", shared_store("abort-533"), ids=str)
def test_a_killed_broker_s_files_already_answer(store: RealStore, unpacked: Unpack) -> None:
    """No question to abort-533 asks for an entry that its last file lacks."""
    files = opened(read_files(index_files(unpacked(store))), layout_of(store))
    for fact in store.facts("query"):
        topic, key = fact["topic"].encode(), fact["key"].encode()
        result = query_offset(files, topic, key, fact["maxNum"], fact["begin"], fact["end"])
        assert sorted(result.commit_log_offsets) == fact["offsets"]


messages = st.lists(
    st.tuples(st.lists(st.integers(0, len(KEYS) - 1), max_size=4), st.integers(-2000, 4000)), min_size=1, max_size=40
)
layouts = st.builds(IndexLayout, st.integers(1, 4), st.integers(2, 12))
moments = st.tuples(st.integers(0, 40), st.sampled_from([0, 0, 0, -1, 1, -999, 999, -1000, -1 << 40, 1 << 40]))
"""A place in the log, and milliseconds from the store time of the message there."""


def dispatched(steps: list[tuple[list[int], int]], layout: IndexLayout) -> tuple[PlainIndexService, list[int]]:
    """An index of messages, and their store times."""
    service = PlainIndexService(layout)
    timestamps: list[int] = []
    for number, (keys, step) in enumerate(steps):
        timestamps.append((timestamps[-1] if timestamps else 1_000_000) + step)
        service.build_index(PlainMessage(100 * number, timestamps[-1], [HASHES[key] for key in keys]))
    return service, timestamps


def at(timestamps: list[int], moment: tuple[int, int]) -> int:
    return timestamps[moment[0] % len(timestamps)] + moment[1]


@settings(max_examples=examples(1000))
@given(messages, layouts, st.sampled_from(range(len(KEYS))), st.sampled_from([-1, 0, 1, 3, 64]), moments, moments)
def test_queries_answer_as_the_java(
    steps: list[tuple[list[int], int]],
    layout: IndexLayout,
    key: int,
    max_num: int,
    begin: tuple[int, int],
    end: tuple[int, int],
) -> None:
    service, timestamps = dispatched(steps, layout)
    files = opened([file.encode() for file in service.files], layout)
    window = at(timestamps, begin), at(timestamps, end)
    result = query_offset(files, b"T", KEYS[key], max_num, *window)
    assert (
        list(result.commit_log_offsets),
        result.index_last_update_timestamp,
        result.index_last_update_commit_log_offset,
    ) == service.query_offset(HASHES[key], max_num, *window)


def one_file(*puts: tuple[int, int, int]) -> bytes:
    """A file with these (key number, offset, store time)."""
    service = PlainIndexService(SMALL)
    for key, offset, store_timestamp in puts:
        service.build_index(PlainMessage(offset, store_timestamp, [HASHES[key]]))
    (file,) = service.files
    return file.encode()


def found(data: bytes, key: int = 0, max_num: int = 64, begin: int = 0, end: int = FOREVER) -> tuple[int, ...]:
    return query_offset(opened([data], SMALL), b"T", KEYS[key], max_num, begin, end).commit_log_offsets


def test_offsets_are_the_newest_first_and_doubles_stay() -> None:
    assert found(one_file((0, 5, 1000), (0, 7, 2000), (0, 7, 2000))) == (7, 7, 5)


def test_no_files_have_nothing() -> None:
    result = query_offset([], b"T", b"k", 64, 0, FOREVER)
    assert (result.commit_log_offsets, result.index_last_update_timestamp) == ((), 0)


@pytest.mark.parametrize(
    ("max_num", "most", "count"), [(64, 64, 64), (65, 64, 64), (3, 64, 3), (200, 500, 100), (0, 64, 0)]
)
def test_no_more_are_found_than_wanted(max_num: int, most: int, count: int) -> None:
    layout = IndexLayout(4, 200)
    service = PlainIndexService(layout)
    for offset in range(100):
        service.build_index(PlainMessage(offset, 1000, [HASHES[0]]))
    files = opened([file.encode() for file in service.files], layout)
    offsets = query_offset(files, b"T", KEYS[0], max_num, 0, FOREVER, most).commit_log_offsets
    assert offsets == tuple(range(99, 99 - count, -1))


def test_times_are_cut_to_seconds_after_the_file_s_begin() -> None:
    data = one_file((0, 5, 1500), (0, 6, 3499))
    assert found(data, begin=2500, end=2500) == (6,)
    assert found(data, begin=3499, end=3499) == ()


def test_a_window_ends_where_the_file_begins() -> None:
    """Files that end and begin in one millisecond both count."""
    layout = IndexLayout(4, 3)
    service = PlainIndexService(layout)
    for offset in range(4):
        service.build_index(PlainMessage(offset, 1000, [HASHES[0]]))
    files = opened([file.encode() for file in service.files], layout)
    assert query_offset(files, b"T", KEYS[0], 64, 1000, 1000).commit_log_offsets == (3, 2, 1, 0)


def test_an_entry_before_the_window_hides_those_before_it() -> None:
    """A clock was set back: the broker takes the walk to be over."""
    data = one_file((0, 5, 1000), (0, 6, 9000), (0, 7, 2000), (1, 8, 9500))
    assert found(data, begin=5000) == ()
    assert found(data, begin=2000) == (7, 6)


def test_an_entry_that_is_not_yet_counted_is_alone_not_found() -> None:
    data = bytearray(one_file((0, 5, 1000)))
    data[36:40] = SLOT.pack(1)
    assert found(bytes(data)) == ()


def test_only_header_slot_and_chain_are_read() -> None:
    data = one_file((0, 5, 1000), (1, 6, 1000), (0, 7, 1000))
    reads: list[tuple[int, int]] = []

    def read(position: int, length: int) -> bytes:
        reads.append((position, length))
        return data[position : position + length]

    query_offset([IndexFile("file", SMALL, read)], b"T", KEYS[0], 64, 0, FOREVER)
    slot_at, entries_at = HEADER_SIZE + 4 * (HASHES[0] % 4), HEADER_SIZE + 16
    chain = [3, 2, 1] if HASHES[0] % 4 == HASHES[1] % 4 else [3, 1]
    assert reads == [(0, HEADER_SIZE), (slot_at, 4), *((entries_at + 20 * entry, 20) for entry in chain)]


def test_files_behind_a_sufficient_one_are_not_opened() -> None:
    def refuse(position: int, length: int) -> bytes:
        raise AssertionError("this file is not needed")

    newest = opened([one_file((0, 5, 1000), (0, 7, 2000))], SMALL)
    unneeded = IndexFile("old", SMALL, refuse)
    assert query_offset([unneeded, *newest], b"T", KEYS[0], 2, 0, FOREVER).commit_log_offsets == (7, 5)
    assert query_offset([unneeded, *newest], b"T", KEYS[0], 64, 1001, FOREVER).commit_log_offsets == (7,)


def test_an_entry_that_is_being_put_is_read() -> None:
    """`putKey` writes entry and slot first, and counts it then."""
    data = bytearray(one_file((0, 5, 1000), (0, 7, 2000)))
    data[36:40] = SLOT.pack(2)
    assert found(bytes(data)) == (7, 5)


SLOT_AT = HEADER_SIZE + 4 * (HASHES[0] % 4)


def entry_at(number: int) -> int:
    return SMALL.entries_at + 20 * number


@pytest.mark.parametrize(
    ("position", "value"),
    [
        pytest.param(SLOT_AT, SLOT.pack(-1), id="negative slot"),
        pytest.param(SLOT_AT, SLOT.pack(5), id="slot beyond the count"),
        pytest.param(36, SLOT.pack(9), id="count beyond the file"),
        pytest.param(entry_at(2), ENTRY.pack(HASHES[0], 7, 0, 2), id="an entry before itself"),
        pytest.param(entry_at(1), ENTRY.pack(HASHES[0], 7, 0, 3), id="a ring"),
        pytest.param(entry_at(1), ENTRY.pack(HASHES[0], 7, 0, 100), id="an entry beyond the file"),
        pytest.param(entry_at(1), ENTRY.pack(HASHES[0], 7, 0, -1), id="a negative entry"),
        pytest.param(entry_at(1), ENTRY.pack(HASHES[0], 7, -1, 0), id="a negative time"),
        pytest.param(entry_at(1), ENTRY.pack(HASHES[0], -7, 0, 0), id="a negative offset"),
        pytest.param(entry_at(1), ENTRY.pack(HASHES[0] ^ 1, 7, 0, 0), id="an entry of another slot"),
        pytest.param(entry_at(1), ENTRY.pack(HASHES[0] - (1 << 31), 7, 0, 0), id="a negative hash"),
        pytest.param(entry_at(2), bytes(20), id="an entry that was never written"),
    ],
)
def test_damage_on_the_way_is_an_error(position: int, value: bytes) -> None:
    data = bytearray(one_file((0, 5, 1000), (0, 7, 1000), (0, 9, 1000)))
    assert found(bytes(data)) == (9, 7, 5)
    data[position : position + len(value)] = value
    with pytest.raises(CorruptIndexError, match="file-0"):
        found(bytes(data))


def test_a_slot_at_the_count_of_a_full_file_is_an_error() -> None:
    data = bytearray(one_file(*[(0, number, 1000) for number in range(7)]))
    data[SLOT_AT : SLOT_AT + 4] = SLOT.pack(8)
    with pytest.raises(CorruptIndexError, match="file-0: slot"):
        found(bytes(data))


@pytest.mark.parametrize("size", [0, 39, SLOT_AT + 3, SMALL.entries_at, entry_at(3) + 19])
def test_a_file_that_is_cut_is_an_error(size: int) -> None:
    data = one_file((0, 5, 1000), (0, 7, 1000), (0, 9, 1000))
    with pytest.raises(CorruptIndexError, match="file-0"):
        found(data[:size])


def test_damage_beside_the_way_is_not_met() -> None:
    data = bytearray(one_file((0, 5, 1000), (0, 7, 1000)))
    data[entry_at(1) : entry_at(1) + 20] = b"\xff" * 20
    assert found(bytes(data), max_num=1) == (7,)


damages = st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6)


@settings(max_examples=examples(500))
@given(messages, layouts, damages, st.sampled_from(KEYS), st.integers(0, 1_060_000), st.integers(990_000, 1_060_000))
def test_queries_of_damaged_files_end(
    steps: list[tuple[list[int], int]],
    layout: IndexLayout,
    damage: list[tuple[int, bytes]],
    key: bytes,
    begin: int,
    end: int,
) -> None:
    files = [file.encode() for file in dispatched(steps, layout)[0].files]
    data = bytearray(b"".join(files))
    for position, value in damage:
        at = position % len(data)
        data[at : at + len(value)] = value
    parts = [bytes(data[number * layout.file_size :][: layout.file_size]) for number in range(len(files))]
    assert_ends(parts, layout, key, begin, end)


@settings(max_examples=examples(300))
@given(st.binary(max_size=400), layouts, st.sampled_from(KEYS))
def test_queries_of_random_bytes_end(data: bytes, layout: IndexLayout, key: bytes) -> None:
    header = IndexHeader(0, FOREVER, 0, FOREVER, 0, layout.index_num).encode()
    assert_ends([data, (header + data).ljust(layout.file_size, b"\0")], layout, key, 0, FOREVER)


def assert_ends(files: Sequence[bytes], layout: IndexLayout, key: bytes, begin: int, end: int) -> None:
    """Each file is read at most once, in a walk that never goes up."""
    reads = 0

    def reader(data: bytes) -> Callable[[int, int], bytes]:
        def read(position: int, length: int) -> bytes:
            nonlocal reads
            reads += 1
            assert reads <= len(files) * (layout.index_num + 2), "the walk goes round and round"
            return data[position : position + length]

        return read

    opened = [IndexFile(f"file-{number}", layout, reader(data)) for number, data in enumerate(files)]
    with suppress(CorruptIndexError):
        query_offset(opened, b"T", key, 64, begin, end)
