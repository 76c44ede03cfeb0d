from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.index_file import IndexHeader, IndexLayout, decode_header
from spark_mq.format.kernels.index_keys import IndexKeys
from spark_mq.indexer.index_files import place_entries
from spark_mq.testing.plain_index import PlainIndexService, PlainMessage
from tests.support.index_stores import Messages, build_index, runs_of
from tests.support.kernels import array, examples

FIVE = IndexLayout(3, 6)
"""A layout of five entries a file."""

messages = st.lists(
    st.builds(
        PlainMessage,
        offset=st.just(0),
        store_timestamp=st.integers(1, 9000),
        key_hashes=st.lists(st.integers(0, 9), max_size=4),
        is_rolled_back=st.sampled_from([False, False, False, True]),
    ),
    max_size=14,
)
layouts = st.builds(IndexLayout, st.integers(1, 4), st.integers(2, 7))


def in_order(dispatched: list[PlainMessage], first_offset: int = 0) -> list[PlainMessage]:
    return [
        PlainMessage(first_offset + 100 * number, message.store_timestamp, message.key_hashes, message.is_rolled_back)
        for number, message in enumerate(dispatched)
    ]


def as_arrays(dispatched: list[PlainMessage]) -> Messages:
    hashes = [() if message.is_rolled_back else message.key_hashes for message in dispatched]
    keys = IndexKeys(
        np.array([value for values in hashes for value in values], np.int32),
        np.array([len(values) for values in hashes], np.int32),
    )
    offsets = np.array([message.offset for message in dispatched], np.int64)
    return Messages(offsets, np.array([message.store_timestamp for message in dispatched], np.int64), keys)


@settings(max_examples=examples(500))
@given(messages, layouts, st.integers(1, 6))
def test_files_are_those_of_the_java(dispatched: list[PlainMessage], layout: IndexLayout, run_size: int) -> None:
    dispatched = in_order(dispatched)
    service = PlainIndexService(layout)
    for message in dispatched:
        service.build_index(message)
    made = build_index(as_arrays(dispatched), layout, run_size=run_size)
    assert [data.tobytes() for data in made] == [file.encode() for file in service.files]


@settings(max_examples=examples(500))
@given(messages, messages, layouts, st.integers(1, 6), st.integers(0, 14))
def test_a_store_s_files_are_continued_as_by_the_java(
    before: list[PlainMessage], after: list[PlainMessage], layout: IndexLayout, run_size: int, again: int
) -> None:
    """`again` messages are dispatched a second time, as a recovery does."""
    before = in_order(before)
    after = before[max(len(before) - again, 0) :] + in_order(after, 100 * len(before))
    service = PlainIndexService(layout)
    for message in before:
        service.build_index(message)
    kept = [file.encode() for file in service.files]
    dispatched, last = as_arrays(after), None
    if service.files:
        last = array(kept[-1])
        dispatched = dispatched.not_indexed(decode_header(last, layout, ""))
        kept = kept if service.files[-1].is_write_full() else kept[:-1]
    for message in after:
        service.build_index(message)
    made = build_index(dispatched, layout, last, run_size)
    assert kept + [data.tobytes() for data in made] == [file.encode() for file in service.files]


def placed(
    entry_counts: list[int], trailing_messages: list[int], last: IndexHeader | None = None
) -> tuple[list[tuple[int, int, int, int]], int]:
    placement = place_entries(np.array(entry_counts, np.int64), np.array(trailing_messages, np.int64), FIVE, last)
    pieces = zip(placement.run, placement.file, placement.start, placement.count, strict=True)
    return [(int(run), int(file), int(start), int(count)) for run, file, start, count in pieces], placement.files


def test_without_messages_there_is_no_file() -> None:
    assert placed([], []) == ([], 0)
    assert placed([0, 0], [0, 0]) == ([], 0)


def test_the_first_message_makes_a_file_even_without_keys() -> None:
    assert placed([0], [1]) == ([], 1)


def test_entries_fill_file_after_file() -> None:
    assert placed([3, 9, 0, 1], [0, 0, 0, 0]) == (
        [(0, 0, 0, 3), (1, 0, 0, 2), (1, 1, 2, 5), (1, 2, 7, 2), (3, 2, 0, 1)],
        3,
    )


@pytest.mark.parametrize(
    ("entry_counts", "trailing_messages", "files"),
    [([5], [0], 1), ([5], [1], 2), ([5, 0], [0, 1], 2), ([5, 0], [0, 0], 1), ([0, 5], [3, 0], 1), ([4], [9], 1)],
)
def test_after_a_full_file_a_message_makes_the_next_even_without_keys(
    entry_counts: list[int], trailing_messages: list[int], files: int
) -> None:
    assert placed(entry_counts, trailing_messages)[1] == files


@pytest.mark.parametrize("index_count", [-1, 0, 1])
def test_an_empty_last_file_is_filled(index_count: int) -> None:
    last = IndexHeader(index_count=index_count)
    assert placed([6], [0], last) == ([(0, 0, 0, 5), (0, 1, 5, 1)], 2)
    assert placed([], [], last) == ([], 1)
    assert placed([0], [1], last) == ([], 1)


def test_a_last_file_is_filled_up_first() -> None:
    last = IndexHeader(index_count=4)
    assert placed([1, 4], [0, 0], last) == ([(0, 0, 0, 1), (1, 0, 0, 1), (1, 1, 1, 3)], 2)
    assert placed([0], [1], last) == ([], 1)
    assert placed([2], [0], last) == ([(0, 0, 0, 2)], 1)
    assert placed([2], [1], last) == ([(0, 0, 0, 2)], 2)


@pytest.mark.parametrize("index_count", [6, 7])
def test_a_full_last_file_is_left(index_count: int) -> None:
    last = IndexHeader(index_count=index_count)
    assert placed([1], [0], last) == ([(0, 0, 0, 1)], 1)
    assert placed([0], [1], last) == ([], 1)
    assert placed([0], [0], last) == ([], 0)


def test_the_entry_before_a_file_is_the_last_of_the_one_before() -> None:
    placement = place_entries(np.array([3, 9, 0, 3]), np.array([0, 0, 0, 1]), FIVE)
    assert [placement.entry_before(file) for file in range(placement.files)] == [None, (1, 1), (1, 6), (3, 2)]


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 30))
def test_runs_tell_as_much_as_single_messages(counts: list[int], size: int) -> None:
    entry_count = np.array(counts, np.int32)
    by_message, by_run = place_entries(*runs_of(entry_count, 1), FIVE), place_entries(*runs_of(entry_count, size), FIVE)
    assert by_run.files == by_message.files
    for file in range(by_run.files):
        assert by_run.count[by_run.file == file].sum() == by_message.count[by_message.file == file].sum()
