"""Places of records: those that a broker gives, which appends one record after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import InvalidMessageError
from spark_mq.format.array_types import Int32s
from spark_mq.format.system_topic import HALF_TOPIC
from spark_mq.io.location import Location
from spark_mq.restorer.chunk import KEPT, Chunk, QueueCount
from spark_mq.restorer.placement import LogPlan, number_queues, place_after, place_as_before

SEGMENT = 1000


@dataclass(frozen=True)
class InMemory(Chunk):
    """A chunk without files."""

    sizes: tuple[int, ...] = ()
    counts: tuple[QueueCount, ...] = ()
    starts: list[int] = field(default_factory=list)
    looked: list[int] = field(default_factory=list)

    def store_sizes(self) -> Int32s:
        self.looked.append(self.number)
        return np.array(self.sizes, np.int32)

    def queues(self) -> list[QueueCount]:
        return list(self.counts)

    def put_queue_starts(self, first_offsets: Sequence[int]) -> None:
        self.starts[:] = first_offsets


def chunk_of(
    number: int, sizes: list[int], *counts: QueueCount, segments: tuple[tuple[int, int, int], ...] = ()
) -> InMemory:
    nowhere = Location.resolve("/nowhere")
    counted = counts or (QueueCount("T", 0, len(sizes), -1, -1),)
    return InMemory(0, number, nowhere, sum(sizes), len(sizes), segments, sizes=tuple(sizes), counts=counted)


def appended(sizes: list[int], start: int) -> list[int]:
    """The offsets that a broker gives, record by record."""
    offsets, at = [], start
    for size in sizes:
        end = at - at % SEGMENT + SEGMENT
        if size + 8 > end - at:
            at = end
        offsets.append(at)
        at += size
    return offsets


def placed(plan: LogPlan, sizes: dict[int, list[int]]) -> list[int]:
    """The offset of each record, in the order of chunks and rows."""
    offsets: dict[tuple[int, int], int] = {}
    for segment in plan.segments:
        for piece in segment.pieces:
            assert piece.offset is not None
            at = piece.offset
            for row in range(piece.first_row, piece.stop_row):
                assert segment.base <= at < segment.base + segment.size
                offsets[piece.chunk.number, row] = at
                at += sizes[piece.chunk.number][row]
    return [offsets[key] for key in sorted(offsets)]


SIZES = st.lists(st.lists(st.integers(92, SEGMENT - 8), min_size=1, max_size=12), min_size=1, max_size=8)


@given(SIZES, st.integers(0, 5 * SEGMENT))
def test_records_get_the_places_that_a_broker_gives(lists: list[list[int]], start: int) -> None:
    sizes = dict(enumerate(lists))
    chunks = [chunk_of(number, part) for number, part in sizes.items()]
    plan = place_after(chunks, number_queues(chunks), SEGMENT, start)
    assert placed(plan, sizes) == appended([size for part in lists for size in part], start)
    bases = [segment.base for segment in plan.segments]
    assert bases == list(range(bases[0], bases[-1] + 1, SEGMENT))
    assert [segment.has_blank for segment in plan.segments] == [True] * (len(bases) - 1) + [False]
    assert plan.segments[0].start == start


def test_only_chunks_that_cross_the_end_of_a_segment_are_looked_into() -> None:
    chunks = [chunk_of(number, [100, 100]) for number in range(12)]
    place_after(chunks, number_queues(chunks), SEGMENT)
    assert [chunk.number for chunk in chunks if chunk.looked] == [4, 9]


def test_queues_are_dense_over_all_chunks() -> None:
    first = chunk_of(0, [100] * 5, QueueCount("A", 0, 3, -1, -1), QueueCount("B", 1, 2, -1, -1))
    second = chunk_of(1, [100] * 4, QueueCount("B", 1, 1, -1, -1), QueueCount("A", 0, 3, -1, -1))
    plan = place_after([first, second], number_queues([first, second], {("A", 0): 7}), SEGMENT)
    assert [first.starts, second.starts] == [[7, 0], [2, 10]]
    assert plan.next_queue_offsets == {("A", 0): 13, ("B", 1): 3}


def test_half_messages_keep_their_queue_offsets() -> None:
    chunk = chunk_of(0, [100] * 3, QueueCount(HALF_TOPIC, 0, 2, 40, 41), QueueCount("A", 0, 1, 9, 9))
    plan = place_after([chunk], number_queues([chunk]), SEGMENT)
    assert chunk.starts == [KEPT, 0]
    assert plan.next_queue_offsets == {(HALF_TOPIC, 0): 42, ("A", 0): 1}


def test_a_message_that_fits_into_no_segment_is_an_error() -> None:
    sizes = [100, SEGMENT - 7]
    with pytest.raises(InvalidMessageError, match="mappedFileSizeCommitLog"):
        place_after([chunk := chunk_of(0, sizes)], number_queues([chunk]), SEGMENT)


def test_messages_that_keep_their_places() -> None:
    """Segment 3000 has no message: it gets the time of the next one. The source's log ended with a blank."""
    one = chunk_of(0, [100] * 3, QueueCount("A", 0, 3, 7, 9), segments=((2000, 0, 50), (4000, 2, 70)))
    two = chunk_of(1, [100], QueueCount("A", 0, 1, 6, 6), segments=((2000, 0, 40),))
    plan = place_as_before([one, two], SEGMENT, log_end=5000)
    assert [(s.base, len(s.pieces), s.store_timestamp, s.has_blank) for s in plan.segments] == [
        (2000, 2, 40, True),
        (3000, 0, 70, True),
        (4000, 1, 70, True),
    ]
    assert [(p.first_row, p.stop_row) for s in plan.segments for p in s.pieces] == [(0, 2), (0, 1), (2, 3)]
    assert plan.next_queue_offsets == {("A", 0): 10}
    assert not place_as_before([one, two], SEGMENT).segments[-1].has_blank
    assert plan.lacking == ()


@pytest.mark.parametrize(("first", "last"), [(4, 4), (11, 11), (1, 5)])
def test_a_queue_that_lacks_messages(first: int, last: int) -> None:
    one = chunk_of(0, [100] * 3, QueueCount("A", 0, 3, 7, 9), segments=((2000, 0, 50),))
    two = chunk_of(1, [100], QueueCount("A", 0, 1, first, last), segments=((2000, 0, 40),))
    assert place_as_before([one, two], SEGMENT).lacking == (("A", 0),)
