"""The rules of an expiry against loops that follow the broker's Java line by line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_mq.errors import OptionError
from spark_mq.store.expiry import DeleteWhen, count_before, count_expired, expire_times, release_offsets

QUARTER = 15 * 60_000
TIMES = st.integers(0, 20)


def deleted_by_time(modified: list[int], reserved: int, now: int) -> int:
    """`MappedFileQueue.deleteExpiredFileByTime`: the number of files that are deleted of all files."""
    count = 0
    for time in modified[:-1]:
        if now < time + reserved:
            break
        count += 1
    return count


def deleted_by_offset(last_offsets: list[int], offset: int) -> int:
    """`MappedFileQueue.deleteExpiredFileByOffset` and `IndexService.deleteExpiredFile`."""
    count = 0
    for last in last_offsets[:-1]:
        if last >= offset:
            break
        count += 1
    return count


@given(st.lists(TIMES, min_size=1), TIMES, st.integers(0, 40))
@example([1, 0, 9], 4, 4)
@example([1, 0, 9], 4, 5)
def test_segments_by_time(modified: list[int], reserved: int, now: int) -> None:
    times = expire_times(modified[:-1], reserved)
    assert count_expired(times, now) == deleted_by_time(modified, reserved, now)
    assert all(deleted_by_time(modified, reserved, time - 1) <= index for index, time in enumerate(times))


@given(st.lists(TIMES, min_size=1), TIMES)
@example([5, 1, 9], 3)
def test_files_by_offset(last_offsets: list[int], offset: int) -> None:
    released = [release < offset for release in release_offsets(last_offsets[:-1])]
    assert sum(released) == deleted_by_offset(last_offsets, offset)
    assert released == sorted(released, reverse=True)


@given(st.lists(st.integers(1, 9), min_size=1), st.integers(0, 60))
def test_segments_by_offset_keep_every_message_from_there_on(sizes: list[int], min_offset: int) -> None:
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    count = count_before(ends, min_offset)
    assert all(end <= min_offset for end in ends[:count])
    assert all(end > min_offset for end in ends[count:])


@given(st.frozensets(st.integers(0, 23), min_size=1), st.integers(-56, 56), st.integers(0, 4_000_000_000_000))
def test_the_next_hour(hours: frozenset[int], quarters: int, millis: int) -> None:
    zone = timezone(timedelta(minutes=15 * quarters))
    found = DeleteWhen(hours, zone).next_time(millis)

    def is_hour(at: int) -> bool:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).astimezone(zone).hour in hours

    assert found is not None
    assert is_hour(found)
    between = range(millis, found, QUARTER)
    assert not any(map(is_hour, between))
    assert found == millis or not is_hour(found - 1)


@pytest.mark.parametrize(
    ("text", "hours"), [("04", {4}), ("4;16", {4, 16}), ("04;", {4}), ("+4", {4}), ("24", {24}), ("0;99", {0, 99})]
)
def test_the_hours_of_a_setting(text: str, hours: set[int]) -> None:
    assert DeleteWhen.of(text, "broker.conf").hours == hours


@pytest.mark.parametrize("text", ["", ";4", "4;;5", "four", "04:00", " 4", "4 ", "-4", "٤", "9" * 10])
def test_a_setting_that_is_not_hours(text: str) -> None:
    with pytest.raises(OptionError, match=r"broker\.conf: deleteWhen="):
        DeleteWhen.of(text, "broker.conf")


def test_hours_that_no_day_has_never_come() -> None:
    assert DeleteWhen.of("24", "", UTC).next_time(0) is None
    assert DeleteWhen.of("4", "", UTC).next_time(1 << 62) is None
