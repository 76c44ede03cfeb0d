"""Which segments must be read again as one split: those whose splits do not fit together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_mq.indexer.stage import misaligned_segments
from spark_mq.indexer.staged_files import SplitRow
from spark_mq.store.log.segment_files import CorruptRange

LAST = 1000
DAMAGE = CorruptRange("segment", 1050, 1060, "CODE", "reason")


def split(start: int, stop: int, first: int, end: int, times: tuple[int, int] | None = (5, 6)) -> SplitRow:
    """The split of the bytes from `start` to `stop`, whose records are from `first` (-1: it has none) to `end`."""
    first_time, last_time = times or (None, None)
    return SplitRow(LAST, start, stop, first, end, 1, 0, 0, first_time, last_time, last_time)


FITTING = [
    split(0, 100, 0, 130),
    split(100, 200, 130, 320, (6, 8)),
    split(200, 300, -1, -1, None),
    split(300, 400, 320, 400, (8, 8)),
]


def test_splits_fit_if_each_begins_where_the_one_before_it_ended() -> None:
    assert misaligned_segments(FITTING, LAST) == []


@pytest.mark.parametrize(
    ("number", "wrong"),
    [
        (1, {"first_position": 131}),
        (1, {"first_position": -1}),
        (2, {"first_position": 250}),  # the record of the split before it reaches over this one
        (3, {"first_position": 300}),
    ],
)
@pytest.mark.parametrize("last_segment", [LAST, LAST + 1])
def test_a_split_that_begins_elsewhere(number: int, wrong: dict[str, Any], last_segment: int) -> None:
    splits = [replace(one, **wrong) if at == number else one for at, one in enumerate(FITTING)]
    assert misaligned_segments(splits, last_segment) == [LAST]


@pytest.mark.parametrize(
    "wrong", [{"corrupt": (DAMAGE,)}, {"time_steps_back": True}, {"first_store_timestamp": 4}], ids=str
)
def test_the_last_segment_has_neither_damage_nor_a_time_that_steps_back(wrong: dict[str, Any]) -> None:
    splits = [FITTING[0], replace(FITTING[1], **wrong), *FITTING[2:]]
    assert misaligned_segments(splits, LAST) == [LAST]
    assert misaligned_segments(splits, LAST + 1) == []
