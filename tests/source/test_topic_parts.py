"""A read by units in parts: each unit in one of them, in few tasks of about the same cost."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from spark_mq.source.topic_plan import TopicCover, unit_reads
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.unit_cover import LOCAL, FoundUnits, LogCover

SPLIT = 1 << 30
DISTANCE = 32 << 10
"""Bytes from one record to the next: each is a jump."""
COST = 500 + LOCAL.jump


def cover_of(count: int) -> TopicCover:
    """So many records of 500 bytes of one queue, far from each other."""
    offsets = np.arange(count, dtype=np.int64) * DISTANCE
    numbers = np.arange(count, dtype=np.int64)
    units = FoundUnits(offsets, np.full(count, 500), np.zeros(count, np.int64), np.zeros(count, np.int64), numbers)
    queue = cast("ConsumeQueue", SimpleNamespace(topic="T", queue_id=0))
    log = LogRange(0, count * DISTANCE)
    return TopicCover((queue,), log, LogCover((log,), (), 0), units, None, LOCAL, "")


@pytest.mark.parametrize(
    ("cost", "split_size", "parts"),
    [
        (1 << 20, SPLIT, 1),
        (60 << 20, SPLIT, 1),
        (70 << 20, SPLIT, 2),
        (500 << 20, SPLIT, 2),
        (1000 << 20, SPLIT, 4),
        (100 << 20, 10 << 20, 10),
    ],
)
def test_parts_are_few_and_of_the_same_cost(cost: int, split_size: int, parts: int) -> None:
    cover = cover_of(cost // COST)
    reads = unit_reads(cover, cover.log_cover.covered, cover.units, split_size)
    assert len(reads) == parts
    counts = [read.count for read in reads]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == cover.units.count
    ranges = [read.queues[0] for read in reads]
    assert [(each.start, each.stop) for each in ranges] == [
        (stop - count, stop) for count, stop in zip(counts, np.cumsum(counts).tolist(), strict=True)
    ]
    pieces = [piece for read in reads for piece in read.pieces]
    assert pieces[0].start == 0
    assert pieces[-1].stop == cover.window.stop
    assert all(before.stop == after.start for before, after in pairwise(pieces))


def test_nothing_is_no_part() -> None:
    cover = cover_of(0)
    assert unit_reads(cover, cover.log_cover.covered, cover.units, SPLIT) == []
