"""Which values are in order: the judge is a plain search over all choices."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.kernels.index_put import longest_ascending
from tests.support.kernels import examples


@given(st.lists(st.integers(0, 9), max_size=9))
@settings(max_examples=examples(200), deadline=None)
def test_as_many_values_as_possible_are_kept_in_order(values: list[int]) -> None:
    kept = np.zeros(len(values), np.bool_)
    count = longest_ascending(np.array(values, np.int64), kept)
    chosen = np.array(values, np.int64)[kept].tolist()
    assert (len(chosen), sorted(chosen)) == (count, chosen)
    longer = combinations(values, count + 1)
    assert not any(all(one <= other for one, other in pairwise(choice)) for choice in longer)
