"""How queue offsets without a message are named. No Spark here."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from spark_mq.indexer.queue_files import missing_ranges, missing_text
from spark_mq.indexer.queue_writer import NEW, WrittenQueueFile

UNITS_PER_FILE = 5


@given(st.sets(st.integers(0, 40), min_size=1))
def test_ranges_are_those_that_no_message_has(taken: set[int]) -> None:
    expected = sorted(set(range(min(taken), max(taken) + 1)) - taken)
    ranges = missing_ranges(rows_of(taken), UNITS_PER_FILE)
    assert [offset for one in ranges for offset in one] == expected
    assert all(before.stop < after.start for before, after in pairwise(ranges))


def rows_of(taken: set[int]) -> list[WrittenQueueFile]:
    """What the tasks say of the queue's files: each knows its own part of the queue."""
    rows = []
    for number in sorted({offset // UNITS_PER_FILE for offset in taken}):
        own = range(number * UNITS_PER_FILE, (number + 1) * UNITS_PER_FILE)
        missing = [offset for offset in own if min(taken) < offset < max(taken) and offset not in taken]
        starts = [offset for offset in missing if offset - 1 not in missing]
        stops = [offset + 1 for offset in missing if offset + 1 not in missing]
        rows.append(WrittenQueueFile("orders", 0, number, 0, 0, starts, stops, 0, -1, 0, -1, NEW))
    return rows


def test_what_is_said() -> None:
    assert missing_text([range(3, 4)], 1) == "queue offset 3 has no message"
    assert missing_text([range(3, 5), range(9, 10)], 3) == "queue offsets 3 to 4, 9 have no message (3 in all)"
    many = [range(start, start + 1) for start in range(0, 40, 2)]
    assert missing_text(many, 30).endswith("16, 18 and 20 more have no message (30 in all)")
