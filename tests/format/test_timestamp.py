"""Times as users write them, and as the commands print them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_mq.cli.output.value_text import csv_text, local_time
from spark_mq.errors import OptionError
from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS, MIN_TIMESTAMP_MILLIS
from spark_mq.format.timestamp import LEAST_PLAUSIBLE_MILLIS, check_epoch_millis, iso_text, parse_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = ["UTC", "Asia/Shanghai", "America/St_Johns", "Asia/Kathmandu", "America/New_York"]

all_millis = st.integers(MIN_TIMESTAMP_MILLIS, MAX_TIMESTAMP_MILLIS)


@contextmanager
def local_zone(name: str) -> Iterator[None]:
    """The process in another zone, for a while."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@given(all_millis, st.sampled_from(ZONES))
@example(MIN_TIMESTAMP_MILLIS, "America/New_York")
@example(MAX_TIMESTAMP_MILLIS, "Asia/Shanghai")
@example(-5_000_000_000_000, "Asia/Shanghai")  # a zone with seconds: +080543
@example(1_795_248_100_412, "UTC")
def test_every_time_that_the_commands_print_is_read_as_that_time(millis: int, zone: str) -> None:
    moment = EPOCH + timedelta(milliseconds=millis)
    with local_zone(zone):
        printed = local_time(moment)
    for text in (printed, csv_text(moment), iso_text(millis), moment.isoformat()):
        assert parse_time("--begin", text) == millis


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("2026-11-21 08:01:40,412 +0000", 1795248100412),
        ("2026-11-21 16:01:40,412 +0800", 1795248100412),
        ("2026-11-21T08:01:40.412Z", 1795248100412),
        (" 1795248093336 ", 1795248093336),
        ("0", 0),
        ("-1", -1),
        (str((1 << 63) - 1), (1 << 63) - 1),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T08:00:00.25+08:00", 250),
        ("1969-12-31T23:59:59.5Z", -500),
    ],
)
def test_times(text: str, millis: int) -> None:
    assert parse_time("startTimestamp", text) == millis


@given(st.integers(1, LEAST_PLAUSIBLE_MILLIS - 1))
@example(1795248093)
@example(5)
def test_epoch_seconds_are_refused_and_their_milliseconds_are_named(seconds: int) -> None:
    with pytest.raises(OptionError, match=f"--begin={seconds} is too small for epoch milliseconds") as caught:
        parse_time("--begin", str(seconds))
    said = f"give {seconds * 1000}," in str(caught.value)
    assert said == (seconds * 1000 >= LEAST_PLAUSIBLE_MILLIS)  # what is named is not refused in its turn
    with pytest.raises(OptionError, match="too small"):
        check_epoch_millis("begin", seconds)


@given(
    st.one_of(
        st.integers(LEAST_PLAUSIBLE_MILLIS, 10**13), st.integers(5 * 10**18, (1 << 63) - 1), st.integers(-(1 << 63), 0)
    )
)
@example(99_999_999_999_999)
@example(253_402_300_799_999)  # the end of the year 9999
def test_other_integers_are_epoch_milliseconds(millis: int) -> None:
    assert parse_time("--begin", str(millis)) == check_epoch_millis("--begin", millis) == millis


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (20261120080000, "for this date and time give 2026-11-20T08:00:00Z"),
        (20261120080000123, "for this date and time give 2026-11-20T08:00:00.123Z"),
        (1795248093336000, "for epoch microseconds give 1795248093336"),
        (1795248093336000000, "for epoch nanoseconds give 1795248093336"),
    ],
)
def test_a_number_of_another_unit_is_refused_and_what_is_meant_is_named(number: int, advice: str) -> None:
    with pytest.raises(OptionError, match=f"^--end={number} is .*: {advice}$"):
        parse_time("--end", str(number))
    assert 0 < parse_time("--end", advice.rpartition(" ")[2]) < number  # what is named is not refused in its turn


@given(st.one_of(st.text(), st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:,.]{5,12} ?[+-Z][0-9:]{0,6}")))
@example("9" * 5000)
@example(str(1 << 63))
@example("2026-11-21 08:01:40,412")
@example("20261121110042164x")
@example("\u0661" * 13)
def test_any_other_text_is_an_error_that_names_its_option(text: str) -> None:
    try:
        millis = parse_time("--begin", text)
    except OptionError as error:
        said = str(error)
    else:
        said = f"--begin={millis}"
        assert parse_time("--begin", iso_text(millis)) == millis
    assert said.startswith("--begin=")
