from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import CorruptIndexError
from spark_mq.format.array_types import Bytes
from spark_mq.format.index_file import IndexHeader, IndexLayout, decode_header, read_entries
from spark_mq.format.kernels.index_put import new_index_head, put_keys
from spark_mq.testing.plain_index import PlainIndexFile
from tests.support.index_stores import (
    STORES,
    WHOLE,
    Messages,
    build_index,
    index_files,
    layout_of,
    messages_of,
    new_index_file,
    put_into,
    read_files,
    staged_entries,
    untouched_index_count,
)
from tests.support.kernels import WITHOUT_JIT, array, examples
from tests.support.stores import RealStore, Unpack, shared_store

SMALL = IndexLayout(3, 8)
Puts = list[tuple[int, int, int]]
times = st.one_of(st.integers(0, 10_000), st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([0, 1, 999, 1000]))
puts = st.lists(
    st.tuples(st.one_of(st.integers(0, 9), st.integers(0, (1 << 31) - 1)), st.integers(0, (1 << 63) - 1), times),
    max_size=12,
)
layouts = st.builds(IndexLayout, st.integers(1, 5), st.integers(2, 9))


def named(*prefixes: str, tree: str | None = None) -> list[RealStore]:
    return [store for store in STORES if store.name.startswith(prefixes) and (tree is None or store.has(tree))]


def put(data: Bytes, layout: IndexLayout, entries: Puts, file: str = "") -> int:
    return put_into(
        data,
        layout,
        np.array([entry[0] for entry in entries], np.int32),
        np.array([entry[1] for entry in entries], np.int64),
        np.array([entry[2] for entry in entries], np.int64),
        file,
    )


def built(store: RealStore, messages: Messages, run_size: int = 100) -> list[bytes]:
    index_count = untouched_index_count(store)
    made = build_index(messages, layout_of(store), run_size=run_size, untouched_index_count=index_count)
    return [data.tobytes() for data in made]


@pytest.mark.parametrize("run_size", [100] if WITHOUT_JIT else [1, 100, 1 << 40])
@pytest.mark.parametrize("store", WHOLE, ids=str)
def test_index_files_are_the_broker_s_own_byte_for_byte(store: RealStore, run_size: int, unpacked: Unpack) -> None:
    folder = unpacked(store)
    assert built(store, messages_of(folder), run_size) == read_files(index_files(folder))


@pytest.mark.parametrize("store", named("", tree="rebuilt"), ids=str)
def test_index_files_are_those_of_the_broker_s_own_rebuild(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    rebuilt = index_files(store.unpack(tmp_path, "rebuilt"))
    assert built(store, messages_of(unpacked(store))) == read_files(rebuilt)


@pytest.mark.parametrize("store", [store for store in STORES if str(store).startswith("tests-stale")], ids=str)
def test_the_index_of_a_shortened_log_is_that_of_its_live_messages(store: RealStore, unpacked: Unpack) -> None:
    folder = unpacked(store)
    assert built(store, messages_of(folder)) == read_files(index_files(folder))


@pytest.mark.parametrize("store", shared_store("stale-533"), ids=str)
def test_a_recovery_put_four_keys_twice(store: RealStore, unpacked: Unpack) -> None:
    """It kept the first file, which is full, and dispatched from its last message on: the guard lets that one pass."""
    folder, layout = unpacked(store), layout_of(store)
    kept, second = index_files(folder)
    messages = messages_of(folder)
    first, made = built(store, messages)
    assert first == kept.read_bytes()
    assert decode_header(second.read_bytes(), layout, "").index_count == 457
    assert decode_header(made, layout, "").index_count == 453
    last = array(kept.read_bytes())
    (again,) = build_index(messages.not_indexed(decode_header(last, layout, "")), layout, last)
    assert again.tobytes() == second.read_bytes()


@pytest.mark.parametrize("store", named("abort", "killed"), ids=str)
def test_the_last_file_of_a_killed_broker_lacks_the_last_entries(store: RealStore, unpacked: Unpack) -> None:
    folder, layout = unpacked(store), layout_of(store)
    *full, last = index_files(folder)
    messages = messages_of(folder)
    made = build_index(messages, layout)
    assert [data.tobytes() for data in made[:-1]] == read_files(full)
    written = decode_header(last.read_bytes(), layout, "").next_entry - 1
    lacking = decode_header(made[-1], layout, "").next_entry - 1 - written
    assert lacking > 0
    before = decode_header(made[-2], layout, "")
    again = new_index_file(layout, before.end_timestamp, before.end_commit_log_offset, index_count=0)
    hashes, offsets, timestamps = messages.entries()
    entries = slice(-lacking - written, -lacking)
    assert put_into(again, layout, hashes[entries], offsets[entries], timestamps[entries]) == written
    assert again.tobytes() == last.read_bytes()


@pytest.mark.parametrize("store", named("abort", "killed", tree="recovered"), ids=str)
def test_a_recovery_keeps_full_files_and_makes_the_rest_anew(
    store: RealStore, unpacked: Unpack, tmp_path: Path
) -> None:
    """The keys of the message with which the kept files end are put again."""
    folder, layout = unpacked(store), layout_of(store)
    written = {file.name for file in index_files(folder)}
    recovered = index_files(store.unpack(tmp_path, "recovered"))
    kept = [file for file in recovered if file.name in written]
    last = array(kept[-1].read_bytes())
    messages = messages_of(folder).not_indexed(decode_header(last, layout, ""))
    made = build_index(messages, layout, last, untouched_index_count=untouched_index_count(store))
    assert [data.tobytes() for data in made] == read_files(recovered[len(kept) :])


@pytest.mark.parametrize("cut", [0.0, 0.01, 0.37, 0.5, 0.99])
@pytest.mark.parametrize("store", named("workload", "edge"), ids=str)
def test_files_are_continued_where_they_were_left(store: RealStore, cut: float, unpacked: Unpack) -> None:
    folder, layout = unpacked(store), layout_of(store)
    messages = messages_of(folder)
    count = int(messages.commit_log_offset.size * cut)
    first, second = taken(messages, slice(None, count)), taken(messages, slice(count, None))
    index_count = untouched_index_count(store)
    before = build_index(first, layout, untouched_index_count=index_count)
    last = before[-1] if before else None
    after = build_index(second, layout, last, untouched_index_count=index_count)
    continued = last is not None and not decode_header(last, layout, "").is_full(layout)
    files = (before[:-1] if continued else before) + after
    assert [data.tobytes() for data in files] == read_files(index_files(folder))


def taken(messages: Messages, which: slice) -> Messages:
    ends = np.cumsum(messages.keys.entry_count)
    start = ends[which.start - 1] if which.start else 0
    stop = ends[which.stop - 1] if which.stop else (0 if which.stop == 0 else None)
    keys = type(messages.keys)(messages.keys.key_hash[start:stop], messages.keys.entry_count[which])
    return Messages(messages.commit_log_offset[which], messages.store_timestamp[which], keys)


@settings(max_examples=examples(300))
@given(layouts, puts, times, st.integers(-1, 1 << 40))
def test_a_file_is_filled_as_by_the_java(
    layout: IndexLayout, entries: Puts, end_timestamp: int, end_offset: int
) -> None:
    plain = PlainIndexFile.after(layout, end_offset, end_timestamp)
    data = new_index_file(layout, end_timestamp, end_offset)
    assert data.tobytes() == plain.encode()
    assert put(data, layout, entries) == sum(plain.put_key(*entry) for entry in entries)
    assert data.tobytes() == plain.encode()


@settings(max_examples=examples(300))
@given(layouts, puts, st.integers(1, 12))
def test_the_size_of_the_pieces_does_not_matter(layout: IndexLayout, entries: Puts, size: int) -> None:
    whole, pieces = new_index_file(layout), new_index_file(layout)
    put(whole, layout, entries)
    for start in range(0, len(entries), size):
        put(pieces, layout, entries[start : start + size])
    assert pieces.tobytes() == whole.tobytes()


@settings(max_examples=examples(300))
@given(
    layouts, puts, st.dictionaries(st.integers(0, 4), st.integers(-2, 12)), st.tuples(times, times, st.integers(-2, 9))
)
def test_a_damaged_file_is_continued_as_by_the_java(
    layout: IndexLayout, entries: Puts, slots: dict[int, int], header: tuple[int, int, int]
) -> None:
    begin_timestamp, end_timestamp, index_count = header
    plain = PlainIndexFile(
        layout,
        begin_timestamp,
        end_timestamp,
        index_count=min(index_count, layout.index_num),
        slots={slot: entry for slot, entry in slots.items() if slot < layout.hash_slot_num},
    )
    data = array(plain.encode()).copy()
    plain.index_count = max(plain.index_count, 1)
    count = put(data, layout, entries)
    assert count == sum(plain.put_key(*entry) for entry in entries)
    if count:
        assert data.tobytes() == plain.encode()


def entry_of(end_timestamp: int, *timestamps: int) -> tuple[int, int]:
    """The begin timestamp and the last entry's time difference of a file made after one that ended then."""
    data = new_index_file(SMALL, end_timestamp, 5)
    put(data, SMALL, [(7, 9, timestamp) for timestamp in timestamps])
    header = decode_header(data, SMALL, "")
    return header.begin_timestamp, int(read_entries(data, SMALL, "")["time_difference"][-1])


@pytest.mark.parametrize(
    ("end_timestamp", "timestamps", "begin_timestamp", "difference"),
    [
        (0, [5000], 5000, 0),
        (3000, [5999], 5999, 2),
        (3000, [5999, 8000], 5999, 2),
        (3000, [5999, 8998], 5999, 2),
        (3000, [5999, 8999], 5999, 3),
        (5000, [4999], 4999, 0),
        (5000, [3000, 1000], 3000, 0),
        (1, [(1 << 31) * 1000], (1 << 31) * 1000, (1 << 31) - 1),
        (1, [(1 << 31) * 1000 + 1], (1 << 31) * 1000 + 1, (1 << 31) - 1),
        (1, [(1 << 62)], 1 << 62, (1 << 31) - 1),
        (0, [0, 9000], 0, 0),
        (0, [-1, 9000], -1, 0),
    ],
)
def test_times_are_whole_seconds_after_the_file_s_begin(
    end_timestamp: int, timestamps: list[int], begin_timestamp: int, difference: int
) -> None:
    """The first entry of a file is timed against the end of the file before."""
    assert entry_of(end_timestamp, *timestamps) == (begin_timestamp, difference)


@pytest.mark.parametrize("index_count", [0, 1])
def test_what_an_empty_file_says_is_gone_with_the_first_entry(index_count: int) -> None:
    data = new_index_file(SMALL, 3000, 5, index_count)
    assert decode_header(data, SMALL, "") == IndexHeader(3000, 3000, 5, 5, 0, index_count)
    put(data, SMALL, [(1, 9, 4000)])
    assert decode_header(data, SMALL, "") == IndexHeader(4000, 4000, 9, 9, 1, 2)


def test_header_and_slots_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="the-file: header and slots have 52 bytes, not 100"):
        put_keys(np.zeros(100, np.uint8), SMALL, np.empty(0, np.uint8), "the-file")


def test_a_count_beyond_the_file_is_refused() -> None:
    data = new_index_file(SMALL, index_count=9)
    with pytest.raises(CorruptIndexError, match="the-file: index count 9"):
        put(data, SMALL, [], "the-file")


def test_marks_of_hashes_are_removed() -> None:
    """`~7` is the marked hash 7."""
    marked, unmarked = new_index_file(SMALL), new_index_file(SMALL)
    put(marked, SMALL, [(~7, 9, 3000), (7, 10, 4000), (~0, 11, 4000)])
    put(unmarked, SMALL, [(7, 9, 3000), (7, 10, 4000), (0, 11, 4000)])
    assert marked.tobytes() == unmarked.tobytes()


def test_only_header_and_slots_are_in_memory() -> None:
    layout = IndexLayout(100_000, 4_000_000)
    numbers = np.arange(100)
    entries = staged_entries(numbers.astype(np.int32), numbers, numbers)
    put(new_index_file(SMALL), SMALL, [(1, 2, 3)])  # compiles
    tracemalloc.start()
    put_keys(new_index_head(layout), layout, entries)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert layout.entries_at <= peak < 1.05 * layout.entries_at
