"""Extents of the log: a plain model says which places they account for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.array_types import Int64s
from spark_mq.format.java_text import hash_code
from spark_mq.io.location import Location
from spark_mq.store.log.log_range import LogRange, between, joined, merged
from spark_mq.store.queue.consume_queue import can_have_tags, tags_codes_of
from spark_mq.store.queue.unit_cover import LOCAL, REMOTE, coalesced, cost_of
from spark_mq.store.queue.unit_runs import Chain, accounted

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
    assert can_have_tags(np.array([code]), tags_codes_of(["BB"])).tolist() == [can]
