"""Units of queues as extents of the log: a plain model says which places they account for. No store is read."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_DTYPE, Units
from spark_mq.format.java_text import hash_code
from spark_mq.io.location import Location
from spark_mq.store.log.log_range import LogRange, between, joined, merged
from spark_mq.store.queue import unit_runs
from spark_mq.store.queue.consume_queue import can_have_tags
from spark_mq.store.queue.unit_cover import LOCAL, REMOTE, FoundUnits, coalesced, cost_of
from spark_mq.store.queue.unit_runs import Chain, UnitChain, accounted, extents_of, in_order, live_extents
from spark_mq.testing.strategies import unit_blocks
from tests.support.kernels import examples

Extent = tuple[int, int]


def arrays(extents: list[Extent]) -> tuple[Int64s, Int64s]:
    return np.array([at for at, _ in extents], np.int64), np.array([size for _, size in extents], np.int64)


@st.composite
def chains(draw: st.DrawFn) -> list[Extent]:
    """Extents that are one run from 100 on, in any order, and perhaps a change of one of them."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=20))
    extents = [(100 + sum(sizes[:index]), size) for index, size in enumerate(sizes)]
    change = draw(st.sampled_from(["none", "lost", "again", "moved", "longer"]))
    one = draw(st.integers(0, len(extents) - 1))
    if change == "lost":
        del extents[one]
    elif change == "again":
        extents.append(extents[draw(st.integers(0, len(extents) - 1))])
    elif change in ("moved", "longer"):
        extents[one] = extents[one][0] + (change == "moved"), extents[one][1] + (change == "longer")
    return draw(st.permutations(extents))


@given(chains(), st.integers(1, 5))
def test_a_chain_is_one_run(extents: list[Extent], blocks: int) -> None:
    chain = Chain()
    for block in range(blocks):
        offsets, sizes = arrays(extents[block::blocks])
        chain.add(offsets, offsets + sizes)
    reached = 100
    for at, size in sorted(extents):
        if at != reached:
            reached = -1
            break
        reached += size
    assert chain.stop_from(100) == (reached if extents and reached > 0 else None)


places = st.integers(0, 60)


@given(st.dictionaries(places, st.integers(1, 9), max_size=20), st.sets(places), st.integers(1, 9))
def test_ranges_are_runs_between_two_records(extents: dict[int, int], wrong: set[int], most: int) -> None:
    """Each range starts and stops at a place where an extent that is a record does; no extent crosses its bounds."""
    offsets, sizes = arrays(sorted(extents.items()))
    found = accounted(offsets, sizes, lambda at, size: at not in wrong and extents[at] == size, most)
    assert len(found) <= most
    records = {at: at + size for at, size in extents.items() if at not in wrong}
    for part, following in pairwise([*found, LogRange(99, 99)]):
        assert part.start in records
        assert part.stop in records.values()
        assert part.stop <= following.start
        reached = part.start
        while reached < part.stop:
            reached += extents[reached]
        assert reached == part.stop


def test_an_astray_tile_breaks_only_its_own_run() -> None:
    extents = [(0, 10), (10, 10), (14, 3), (20, 10), (30, 10)]
    found = accounted(*arrays(extents), lambda at, _: at != 14, 9)
    assert found == [LogRange(0, 20), LogRange(20, 40)]


def test_two_runs_that_contradict_each_other_prove_nothing() -> None:
    """A record can be in the body of another one: which of the two is the log's is not known."""
    assert accounted(*arrays([(0, 10), (4, 3), (10, 10)]), lambda at, size: True, 9) == [LogRange(10, 20)]


@given(st.lists(st.integers(0, 100), max_size=12), st.integers(1, 20))
def test_a_complement_and_what_it_leaves_are_the_whole(bounds: list[int], distance: int) -> None:
    places = sorted(set(bounds))
    parts = [LogRange(start, stop) for start, stop in zip(places[::2], places[1::2], strict=False)]
    whole = LogRange(0, 101)
    left = between([(part.start, part.stop) for part in parts], whole.start, whole.stop)
    assert [place for part in left for place in range(part.start, part.stop)] == [
        place for place in range(101) if not any(place in part for part in parts)
    ]
    joined = merged(left, distance)
    assert all(after.start - before.stop >= distance for before, after in pairwise(joined))
    assert all(any(one.start >= part.start and one.stop <= part.stop for part in joined) for one in left)


ranges = st.builds(lambda start, size: LogRange(start, start + size), places, st.integers(1, 9))


@given(st.lists(ranges, max_size=8))
def test_joined_ranges_have_the_same_places_once(parts: list[LogRange]) -> None:
    found = [place for part in joined(parts) for place in range(part.start, part.stop)]
    assert found == sorted({place for part in parts for place in range(part.start, part.stop)})


def test_gaps_up_to_a_jump_are_read_over() -> None:
    offsets, sizes = arrays([(0, 10), (15, 10), (31, 10)])
    starts, stops = coalesced(offsets, sizes, 5)
    assert (starts.tolist(), stops.tolist()) == ([0, 31], [25, 41])


def test_a_jump_costs_more_over_a_network() -> None:
    assert cost_of(Location.resolve("/tmp")) == LOCAL
    assert LOCAL.of(100, jumps=1) < REMOTE.of(100, jumps=1)


@pytest.mark.parametrize(("code", "can"), [(hash_code("Aa"), True), (hash_code("C"), False), (1_793_606_400_000, True)])
def test_a_tags_code_is_a_hash_or_no_answer(code: int, can: bool) -> None:
    """`Aa` and `BB` have one hash. A delivery time says nothing about tags."""
    assert can_have_tags(np.array([code]), [hash_code("BB")]).tolist() == [can]


Unit = tuple[int, int, int]


@given(st.lists(unit_blocks, max_size=3), st.lists(st.integers(0, 60), unique=True, max_size=8))
def test_units_in_ranges_are_those_that_start_there(queues: list[list[Unit]], bounds: list[int]) -> None:
    places = sorted(bounds)
    ranges = [LogRange(start, stop) for start, stop in zip(places[::2], places[1::2], strict=False)]
    parts = [FoundUnits.of_queue(number, 7, np.array(block, UNIT_DTYPE)) for number, block in enumerate(queues)]
    found = FoundUnits.joined(parts).in_ranges(ranges)
    expected = [
        (offset, number, 7 + index)
        for number, block in enumerate(queues)
        for index, (offset, size, _) in enumerate(block)
        if 0 < size != PRE_BLANK_SIZE and any(offset in part for part in ranges)
    ]
    rows = zip(found.offsets.tolist(), found.queues.tolist(), found.queue_offsets.tolist(), strict=True)
    assert sorted(rows) == sorted(expected)
    assert (np.diff(found.offsets) >= 0).all()


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
