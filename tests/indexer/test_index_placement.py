from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.index_file import IndexLayout, decode_header
from spark_mq.format.kernels.index_keys import IndexKeys
from spark_mq.indexer.index_files import place_entries
from spark_mq.testing.plain_index import PlainIndexService, PlainMessage
from tests.support.index_stores import Messages, build_index, runs_of
from tests.support.kernels import array, examples

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


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 30))
def test_runs_tell_as_much_as_single_messages(counts: list[int], size: int) -> None:
    entry_count, layout = np.array(counts, np.int32), IndexLayout(3, 6)
    by_message, by_run = (
        place_entries(*runs_of(entry_count, 1), layout),
        place_entries(*runs_of(entry_count, size), layout),
    )
    assert by_run.files == by_message.files
    for file in range(by_run.files):
        assert by_run.count[by_run.file == file].sum() == by_message.count[by_message.file == file].sum()
