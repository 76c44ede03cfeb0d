"""Times as a person types them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from spark_mq.cli.arguments import join_relative_times, parse_moment
from spark_mq.errors import OptionError

SetZone = Callable[[str], None]
NOW = datetime(2026, 11, 20, 1, 30, tzinfo=timezone(timedelta(hours=8)))  # the 19th in UTC


@pytest.fixture(autouse=True)
def set_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetZone]:
    """Gives the machine the time zone of `NOW`, or another one."""

    def set_to(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    set_to("CST-8")
    yield set_to
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("now", "text", "midnight"),
    [
        ("2026-11-01T10:00-05:00", "today", "2026-11-01T00:00-04:00"),
        ("2026-11-02T10:00-05:00", "yesterday", "2026-11-01T00:00-04:00"),
        ("2026-03-08T10:00-04:00", "today", "2026-03-08T00:00-05:00"),
        ("2026-03-09T00:30-04:00", "yesterday", "2026-03-08T00:00-05:00"),
    ],
)
def test_a_day_begins_at_midnight_also_if_summer_time_ends_on_it(
    now: str, text: str, midnight: str, set_zone: SetZone
) -> None:
    set_zone("EST5EDT,M3.2.0,M11.1.0")
    moment = datetime.fromisoformat(midnight).timestamp() * 1000
    assert parse_moment("--begin", text, datetime.fromisoformat(now)) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("-1h", NOW - timedelta(hours=1)),
        (" -90 s ", NOW - timedelta(seconds=90)),
        ("-15M", NOW - timedelta(minutes=15)),
        ("-2d", NOW - timedelta(days=2)),
        ("-1w", NOW - timedelta(days=7)),
        ("now", NOW),
        ("today", datetime(2026, 11, 19, 16, tzinfo=UTC)),
        ("Yesterday", datetime(2026, 11, 18, 16, tzinfo=UTC)),
        ("2026-11-20T08:00:00Z", datetime(2026, 11, 20, 8, tzinfo=UTC)),
        ("2026-11-20 08:00:00,123 +0000", datetime(2026, 11, 20, 8, microsecond=123_000, tzinfo=UTC)),
        ("0", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_time_is_that_of_the_calendar(text: str, moment: datetime) -> None:
    assert parse_moment("--begin", text, NOW) == round(moment.timestamp() * 1000)


@pytest.mark.parametrize("text", ["tomorrow", "-1y", "-999999999d", "1h", "", "1795248093"])
def test_anything_else_is_an_error_that_names_the_argument(text: str) -> None:
    with pytest.raises(OptionError, match="--end="):
        parse_moment("--end", text, NOW)


@pytest.mark.parametrize("text", ["3 days ago", "2026-11-20 08:00:00"])
def test_the_error_names_the_short_forms(text: str) -> None:
    with pytest.raises(OptionError, match=r"(is not a time|has no time zone): .* or -90s, -15m, -1h, -3d, -1w, now"):
        parse_moment("--begin", text, NOW)


@pytest.mark.parametrize("text", ["2026-11-20", "2026-11-20 08:00", "20261120T080000.5"])
def test_the_error_has_the_time_with_a_zone(text: str) -> None:
    with pytest.raises(OptionError, match="has no time zone: give ") as error:
        parse_moment("--begin", text, NOW)
    given = str(error.value).partition("give ")[2].partition(",")[0]
    assert (
        parse_moment("--begin", given, NOW)
        == datetime.fromisoformat(f"{text}Z" if "T" in text else given).timestamp() * 1000
    )


def test_a_relative_time_is_no_option() -> None:
    words = ["print-message", "store", "T", "--begin", "-1h", "--end", "-5m", "--json", "-1h"]
    assert join_relative_times(words) == ["print-message", "store", "T", "--begin=-1h", "--end=-5m", "--json", "-1h"]
    assert join_relative_times(["--begin", "--json"]) == ["--begin", "--json"]
