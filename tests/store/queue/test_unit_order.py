from __future__ import annotations

import numpy as np
import pytest

from spark_mq.format.consume_queue import UNIT_DTYPE, Units
from spark_mq.store.queue.unit_tiles import in_order


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
