"""Which index files a time range needs, by names and headers: the answer of a look at every header, from a few."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_mq.store.index.folder import files_in_time, index_file_names, zone_of_names
from spark_mq.store.log.commit_log import CLOCK_TOLERANCE_MILLIS as TOLERANCE

START = 1_795_258_842_150
times = st.integers(START - 10**7, START + 10**9)


class Headers:
    """The begin times of files; counts the headers that were read."""

    def __init__(self, begins: list[int | None]) -> None:
        self.begins = begins
        self.read: set[int] = set()

    def __call__(self, index: int) -> int | None:
        self.read.add(index)
        return self.begins[index]


def by_all_headers(begins: list[int], begin: int | None, end: int | None) -> tuple[int, int]:
    before = [index for index, time in enumerate(begins) if begin is not None and time < begin - TOLERANCE]
    after = [index for index, time in enumerate(begins) if end is not None and time > end + TOLERANCE]
    return max(before, default=0), min(after, default=len(begins))


@given(
    st.lists(st.integers(0, 10**7), max_size=60),
    st.lists(st.integers(0, 10**8), min_size=60, max_size=60),
    st.sampled_from([UTC, timezone(timedelta(hours=8))]),
    st.tuples(times, times).map(sorted),
    st.sampled_from(["both", "begin", "end"]),
)
def test_few_headers_give_the_answer_of_all(
    steps: list[int], lags: list[int], zone: timezone, window: list[int], which: str
) -> None:
    """However late a broker created the files: a name is never earlier than the first message.

    Except if it was late by whole quarters of an hour, which looks like another zone: then `coverage` opens more files.
    """
    begins = [START + sum(steps[:number]) for number in range(len(steps))]
    created = [begin + lag for begin, lag in zip(begins, lags, strict=False)]
    names = index_file_names([max(created[: number + 1]) for number in range(len(created))], zone)
    assume(zone_of_names([*zip(names[-2:], begins[-2:], strict=True)]) in (None, zone))
    begin, end = (window[0] if which != "end" else None), (window[1] if which != "begin" else None)
    assert files_in_time(names, Headers([*begins]), begin, end) == by_all_headers(begins, begin, end)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=45))])
def test_names_spare_the_headers(zone: timezone) -> None:
    begins = [START + 3_600_000 * number for number in range(5000)]
    headers = Headers([*begins])
    moment = begins[1234] + 1_800_000
    assert files_in_time(index_file_names(begins, zone), headers, moment, moment) == (1234, 1235)
    assert len(headers.read) < 8


@given(st.lists(st.none() | times, max_size=20), st.lists(st.text("0123456789x", max_size=17), max_size=20), times)
def test_any_names_and_headers_give_a_range(begins: list[int | None], names: list[str], moment: int) -> None:
    count = min(len(begins), len(names))
    first, stop = files_in_time(sorted(names[:count]), Headers(begins[:count]), moment, moment)
    assert 0 <= first <= max(count - 1, 0)
    assert first <= stop <= count
