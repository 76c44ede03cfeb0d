"""Units of queues as extents of the log: plain lists of units say which of them count. No store is read."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_DTYPE, Units
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue import unit_runs
from spark_mq.store.queue.unit_runs import Chain, UnitChain, accounted, extents_of, in_order, live_extents
from spark_mq.testing.strategies import unit_blocks
from tests.support.kernels import examples

Unit = tuple[int, int, int]


def is_extent(unit: Unit, within: LogRange) -> bool:
    offset, size, _ = unit
    return 0 < size != PRE_BLANK_SIZE and within.start <= offset and offset + size <= within.stop


@given(unit_blocks, st.integers(0, 20), st.integers(20, 60))
def test_covered_log_are_the_units_of_whole_messages_in_the_range(block: list[Unit], start: int, stop: int) -> None:
    within = LogRange(start, stop)
    found = live_extents(np.array(block, UNIT_DTYPE), within)
    expected = [unit[:2] for unit in block if is_extent(unit, within)]
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


@given(st.lists(unit_blocks, max_size=3))
def test_covered_log_of_several_queues_are_in_order_without_those_of_one_place(queues: list[list[Unit]]) -> None:
    within = LogRange(0, 50)
    found = extents_of([np.array(block, UNIT_DTYPE) for block in queues], within)
    extents = [unit[:2] for block in queues for unit in block if is_extent(unit, within)]
    starts = [offset for offset, _ in extents]
    expected = sorted(extent for extent in extents if starts.count(extent[0]) == 1)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


def test_units_of_one_place_contradict_each_other() -> None:
    """Only the part of the log around them must be scanned then."""
    first, second = (np.array(units, UNIT_DTYPE) for units in ([(0, 10, 0), (10, 5, 0)], [(10, 5, 0), (15, 5, 0)]))
    outside = np.array([(-5, 10, 0), (18, 5, 0), (0, 0, 0), (0, PRE_BLANK_SIZE, 0)], UNIT_DTYPE)
    offsets, sizes = extents_of([second, outside, first], LogRange(0, 20))
    assert list(zip(offsets.tolist(), sizes.tolist(), strict=True)) == [(0, 10), (15, 5)]


def block(*offsets: int) -> Units:
    return np.array([(offset, 10 if offset else 0, 0) for offset in offsets], UNIT_DTYPE)


@pytest.mark.parametrize(
    ("offsets", "kept"),
    [
        ((), []),
        ((5,), [5]),
        ((1, 2, 3), [1, 2, 3]),
        ((1, 4, 3, 2, 5), [1, 5]),
        ((9, 1, 2, 3), []),
        ((1, 2, 3, 0), [1, 2, 3]),
        ((1, 0, 2), [1, 2]),
        ((1, 2, 2, 3), [1, 3]),
        ((3, 4, 1), []),
        ((0, 0), []),
    ],
    ids=str,
)
def test_units_that_are_not_in_order_with_all_others_are_left_out(offsets: tuple[int, ...], kept: list[int]) -> None:
    assert in_order(block(*offsets))["commit_log_offset"].tolist() == kept


@st.composite
def queues_of_a_log(draw: st.DrawFn) -> list[list[Unit]]:
    """The units of some queues for a log from 100 on, of which one can be lost, repeated, exchanged or dead."""
    stops = np.cumsum([100, *draw(st.lists(st.integers(1, 9), max_size=20))]).tolist()
    queues: list[list[Unit]] = [[] for _ in range(draw(st.integers(1, 3)))]
    for start, stop in pairwise(stops):
        draw(st.sampled_from(queues)).append((start, stop - start, 0))
    queue = max(queues, key=len)
    at = draw(st.integers(0, max(len(queue) - 1, 0)))
    match draw(st.sampled_from(["none", "lost", "again", "exchanged", "dead", "blank"])):
        case "lost":
            del queue[at : at + 1]
        case "again":
            queue[at:at] = queue[at : at + 1]
        case "exchanged":
            queue[at : at + 2] = queue[at : at + 2][::-1]
        case "dead":
            queue.insert(at, (0, 0, 0))
        case "blank":
            queue.insert(at, (0, PRE_BLANK_SIZE, 0))
    return queues


@settings(max_examples=examples(900))
@given(queues_of_a_log(), st.integers(1, 6), st.sampled_from([100, 100, 99, 103]), st.sampled_from([300, 110]))
def test_units_in_groups_make_the_chain_of_single_queues(
    queues: list[list[Unit]], together: int, start: int, stop: int
) -> None:
    within, expected = LogRange(start, stop), Chain()
    with mock.patch.object(unit_runs, "_TOGETHER", together):
        chain = UnitChain(within)
        for queue in (np.array(queue, UNIT_DTYPE) for queue in queues):
            chain.add(queue)
            offsets, sizes = live_extents(in_order(queue), within)
            expected.add(offsets, offsets + sizes)
        assert chain.stop() == expected.stop_from(start)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 6), st.randoms())
def test_units_of_all_messages_are_one_run(lengths: list[int], together: int, random: Random) -> None:
    stops = np.cumsum([100, *lengths]).tolist()
    queues: list[list[Unit]] = [[], [], []]
    for at, length in zip(stops, lengths, strict=False):
        random.choice(queues).append((at, length, 0))
    with mock.patch.object(unit_runs, "_TOGETHER", together):
        chain = UnitChain(LogRange(100, stops[-1]))
        for queue in queues:
            chain.add(np.array(queue, UNIT_DTYPE))
        assert chain.stop() == stops[-1]


def test_a_run_with_few_records_at_its_ends_accounts_for_nothing() -> None:
    offsets = 100 * np.arange(20)
    sizes = np.full(20, 100)
    assert accounted(offsets, sizes, lambda offset, size: True, 9) == [LogRange(0, 2000)]
    assert accounted(offsets, sizes, lambda offset, size: 200 <= offset < 1800, 9) == [LogRange(200, 1800)]
    assert accounted(offsets, sizes, lambda offset, size: offset == 200, 9) == []
    assert accounted(offsets[:3], sizes[:3], lambda offset, size: offset == 200, 9) == [LogRange(200, 300)]
