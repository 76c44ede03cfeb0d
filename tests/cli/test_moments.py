"""Times as a person types them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from spark_mq.cli.arguments import join_relative_times, parse_moment
from spark_mq.errors import OptionError

NOW = datetime(2026, 11, 20, 1, 30, tzinfo=timezone(timedelta(hours=8)))  # the 19th in UTC


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
