"""Units of queues as extents of the log: plain lists of units say which of them count. No store is read."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_DTYPE
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.unit_cover import FoundUnits
from spark_mq.testing.strategies import unit_blocks

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
