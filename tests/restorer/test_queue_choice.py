"""Which queue a message goes to: the rule of the Java client for single rows, and the choice on arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import OptionError
from spark_mq.format.java_text import hash_code
from spark_mq.format.pieces import pieces_of_array
from spark_mq.restorer.queue_choice import QueueSelector, by_hash, choose_queues, parse_queue_selector

ROWS = st.tuples(
    st.none() | st.integers(0, 99),
    st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    st.integers(1, 40),
)


@given(st.text(max_size=20), st.integers(1, 40))
def test_a_hash_chooses_as_java_does(key: str, count: int) -> None:
    value = hash_code(key)
    remainder = value - int(value / count) * count  # Java's % has the sign of the dividend
    assert by_hash(key, count) == abs(remainder)


@given(st.lists(ROWS, min_size=1), st.sampled_from(QueueSelector), st.integers(0, 100))
def test_rows_choose_as_the_rule_for_one_row_says(
    rows: list[tuple[int | None, str | None, int]], selector: QueueSelector, first: int
) -> None:
    counts = np.array([count for *_, count in rows])
    ids = np.array([-1 if queue_id is None else queue_id for queue_id, *_ in rows])
    keys = pieces_of_array(pa.array([key for _, key, _ in rows], pa.string()))
    chosen, in_turn = choose_queues(counts, ids, keys, selector, first + np.arange(len(rows)))
    for number, (queue_id, key, count) in enumerate(rows):
        if selector == QueueSelector.QUEUE_ID and queue_id is not None:
            expected, is_in_turn = queue_id, False
        elif selector != QueueSelector.ROUND_ROBIN and key is not None:
            expected, is_in_turn = by_hash(key, count), False
        else:
            expected, is_in_turn = (first + number) % count, True
        assert (chosen[number], bool(in_turn[number])) == (expected, is_in_turn)


def test_the_name_of_a_selector() -> None:
    assert parse_queue_selector("Round_Robin") == QueueSelector.ROUND_ROBIN
    with pytest.raises(OptionError, match="queueSelector"):
        parse_queue_selector("hash")
