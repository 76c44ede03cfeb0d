"""The index files of a store: their names, which of them a time range needs, and their slots and entries."""

from __future__ import annotations

import os
import re
import shutil
from datetime import UTC, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_mq.errors import OptionError
from spark_mq.format.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader, IndexLayout, decode_header
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.index.file_names import files_in_time, index_file_names, parse_time_zone, zone_of_names
from spark_mq.store.index.folder import index_layout
from spark_mq.store.log.commit_log import CLOCK_TOLERANCE_MILLIS as TOLERANCE
from tests.support.index_stores import layout_of
from tests.support.stores import WORKLOAD, RealStore, Unpack, usual_stores

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


NAMES = ("20261121110042150", "20261121110042151")


def with_sizes(folder: Path, *sizes: int) -> Location:
    """A store with sparse index files of these sizes."""
    (folder / "index").mkdir()
    for name, size in zip(NAMES, sizes, strict=False):
        (folder / "index" / name).touch()
        os.truncate(folder / "index" / name, size)
    return Location.resolve(str(folder))


def shown(store: Location) -> IndexLayout:
    return index_layout(store, BrokerConf.of(None))


def test_files_of_the_default_size_have_the_default_layout(tmp_path: Path) -> None:
    size = IndexLayout().file_size
    assert shown(with_sizes(tmp_path, size, size)) == IndexLayout()


@pytest.mark.parametrize("sizes", [(1000,), (IndexLayout().file_size, 1000), (1000, IndexLayout().file_size)])
def test_files_that_are_not_full_do_not_show_another_layout(sizes: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="which does not show how many slots and entries"):
        shown(with_sizes(tmp_path, *sizes))


def test_files_that_a_larger_setting_made_longer_do_not_show_another_layout(tmp_path: Path) -> None:
    """A broker maps its old files with the new size; the slot of an entry of zeros can have the right number."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in NAMES:
        file = np.zeros(HEADER_SIZE + SLOT_SIZE * 7 + ENTRY_SIZE * 800, np.uint8)
        file[:HEADER_SIZE] = np.frombuffer(IndexHeader(1, 1, 5, 9, 1, 50).encode(), np.uint8)
        file[HEADER_SIZE + SLOT_SIZE - 1] = 49
        (folder / name).write_bytes(file.tobytes())
    with pytest.raises(OptionError, match="which does not show how many slots and entries"):
        shown(Location.resolve(str(tmp_path)))


def test_full_files_show_it_unless_the_last_one_has_another_size(store: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(Path(store) / "index", tmp_path / "index"))
    location, right = Location.resolve(str(tmp_path)), layout_of(WORKLOAD)
    assert shown(location) == right
    last = max(copy.iterdir())
    os.truncate(last, right.file_size - 20)
    with pytest.raises(OptionError, match="which does not show how many slots and entries"):
        shown(location)
