from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import OptionError
from spark_mq.format.index_file import decode_header
from spark_mq.store.index.folder import index_file_names, parse_time_zone, zone_of_names
from tests.support.index_stores import layout_of
from tests.support.stores import RealStore, Unpack, usual_stores

CHINA = timezone(timedelta(hours=8))


def test_a_name_is_the_local_time() -> None:
    assert index_file_names([1_795_258_842_150], UTC) == ["20261121110042150"]
    assert index_file_names([1_795_258_842_150], CHINA) == ["20261121190042150"]
    assert index_file_names([1_795_258_842_150], parse_time_zone("Asia/Kolkata")) == ["20261121163042150"]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=5), st.sampled_from([UTC, CHINA]))
def test_names_rise_whatever_the_times(times: list[int], zone: timezone) -> None:
    names = index_file_names(times, zone, above="20261121110042150")
    assert names == sorted(set(names))
    assert all(name > "20261121110042150" for name in names)
    if not any(time > 200_000_000_000_000 for time in times):
        assert all(re.fullmatch(r"[0-9]{17}", name) for name in names)


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_the_names_of_a_broker_tell_its_zone(store: RealStore, unpacked: Unpack) -> None:
    """Brokers of these stores ran in UTC; their names shifted are those of brokers elsewhere."""
    files = [
        (path.name, decode_header(path.read_bytes(), layout_of(store), "").begin_timestamp)
        for path in (unpacked(store) / "index").iterdir()
    ]
    assert zone_of_names(files) == UTC
    for hours in (-9.5, 5.75, 8):
        zone = timezone(timedelta(hours=hours))
        names = [index_file_names([begin], zone)[0] for _, begin in files]
        assert zone_of_names(zip(names, (begin for _, begin in files), strict=True)) == zone


@pytest.mark.parametrize(
    "files",
    [
        [],
        [("20261121110042150", 0)],
        [("20261121110042150", 1_795_258_842_150 - 7 * 60_000)],
        [("20261121110042150", -5)],
        [("99999999999999999", 1_795_258_842_150)],
        [("20261121110042150", (1 << 63) - 1)],
    ],
)
def test_names_that_tell_no_zone(files: list[tuple[str, int]]) -> None:
    assert zone_of_names(files) is None


@pytest.mark.parametrize("name", ["Nowhere/Land", "", "../etc/passwd", "UTC\0"])
def test_an_unknown_zone_is_an_error(name: str) -> None:
    with pytest.raises(OptionError, match="--time-zone"):
        parse_time_zone(name)
