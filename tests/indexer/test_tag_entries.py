"""Which tags have index entries: brokers since 5.4.0 put them, and a store can have had brokers of both kinds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.index_file import IndexLayout
from spark_mq.format.kernels.index_put import drop_tags
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import Record
from spark_mq.indexer.staged_files import STAGED_ENTRY_DTYPE, EntryBatch
from spark_mq.indexer.tag_entries import TaggedRange, TagRun, compare_tags, tagged_ranges
from spark_mq.testing.plain_index import index_of as index_of_records
from tests.support.index_stores import layout_of
from tests.support.kernels import examples
from tests.support.rebuilt import rebuild_here
from tests.support.stores import OWN_STORES, RealStore, index_of, stores_in, version_stores
from tests.support.verified import check, grave

OWN = stores_in(OWN_STORES / "versions")
WORKLOAD = RealStore("workload-550", OWN_STORES / "versions")
MAX = (1 << 63) - 1
OLD, NEW, ANY = BrokerVersions.parse("5.3.3"), BrokerVersions.parse("5.5.0"), BrokerVersions.parse("5")


@pytest.mark.parametrize("store", [*OWN, *version_stores()], ids=str)
def test_the_index_of_each_version_is_sound(store: RealStore, tmp_path: Path) -> None:
    codes = {finding.code for finding in check(store.unpack(tmp_path), store.broker_conf)[1]}
    assert not {code for code in codes if code.startswith("INDEX") and code != "INDEX_LAGS"}


@pytest.mark.parametrize("store", [*OWN, *version_stores("p")], ids=str)
def test_an_index_that_shows_its_tags_is_made_again(store: RealStore, tmp_path: Path) -> None:
    path = store.unpack(tmp_path)
    report = rebuild_here(path, tmp_path / "out", broker_conf=str(store.broker_conf), only="index")
    assert index_of(tmp_path / "out") == index_of(path)
    assert any("entries for tags" in setting and "the index shows it" in setting for setting in report.settings)


def without_index(store: RealStore, folder: Path) -> Path:
    path = store.unpack(folder)
    shutil.rmtree(path / "index")
    return path


@pytest.mark.parametrize("store", [WORKLOAD, *version_stores("p")], ids=str)
def test_without_an_index_the_files_show_the_version(store: RealStore, tmp_path: Path) -> None:
    before, path = index_of(store.unpack(tmp_path / "before")), without_index(store, tmp_path)
    rebuild_here(path, tmp_path / "out", broker_conf=str(store.broker_conf), only="index")
    assert index_of(tmp_path / "out") == before


def test_the_version_that_is_told_decides(tmp_path: Path) -> None:
    path = WORKLOAD.unpack(tmp_path)
    conf = str(WORKLOAD.broker_conf)
    old = rebuild_here(path, tmp_path / "old", broker_conf=conf, only="index", broker_version="5.3.3")
    new = rebuild_here(path, tmp_path / "new", broker_conf=conf, only="index", broker_version="5.5.1")
    assert index_of(tmp_path / "new") == index_of(path)
    assert new.index_entries - old.index_entries == sum(
        bool(fact["tags"]) and fact["sysFlag"] & 0xC != 0xC for fact in WORKLOAD.facts("msg")
    )
    assert "the index: no entries for tags (a broker of version 5.3.3: --broker-version)" in old.settings


# every kind of upgrade, with an index that a plain model makes


def model_index(records: Sequence[Record], layout: IndexLayout, has_tags: Callable[[int], bool]) -> list[bytes]:
    """The index files of brokers of which those of `has_tags` (by the number of a record) put entries for tags."""
    return [file.encode() for file in index_of_records(records, layout, has_tags).files]


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """The store, and its records."""
    path = WORKLOAD.unpack(tmp_path_factory.mktemp("workload"))
    from spark_mq import MessageStore
    from spark_mq.store.log.log_range import LogRange

    with MessageStore(str(path)) as store:
        records = list(store.records.iterate(LogRange(0, store.get_max_phy_offset())))
    return path, records


@settings(max_examples=examples(12))
@given(st.lists(st.integers(1, 330), max_size=3, unique=True).map(sorted), st.booleans())
def test_after_any_upgrades_verify_is_silent_and_the_rebuild_the_same(
    workload: tuple[Path, list[Record]],
    tmp_path_factory: pytest.TempPathFactory,
    switches: list[int],
    is_first_new: bool,
) -> None:
    path, records = workload
    folder = tmp_path_factory.mktemp("upgraded")
    store = Path(shutil.copytree(path, folder / "store"))
    files = model_index(
        records,
        layout_of(WORKLOAD),
        lambda number: (sum(number >= switch for switch in switches) % 2 == 0) == is_first_new,
    )
    with_tags = [n for n, record in enumerate(records) if b"TAGS" in parse_properties(record.properties)]
    bounds = [0, *switches, len(records)]
    few = [sum(start <= n < stop for n in with_tags) for start, stop in pairwise(bounds)]
    names = sorted(file.name for file in (store / "index").iterdir())
    shutil.rmtree(store / "index")
    (store / "index").mkdir()
    for number, content in enumerate(files):
        (store / "index" / f"{int(names[0]) + number:017d}").write_bytes(content)
    if any(0 < count < 4 for count in few[1:]):
        return  # fewer messages than that after an upgrade are taken for damage
    assert not grave([finding for finding in check(store, WORKLOAD.broker_conf)[1] if finding.code != "INDEX_ORDER"])
    rebuild_here(store, folder / "out", broker_conf=str(WORKLOAD.broker_conf), only="index")
    assert index_of(folder / "out") == files


def test_lost_entries_of_tags_are_found(workload: tuple[Path, list[Record]], tmp_path: Path) -> None:
    path, records = workload
    store = Path(shutil.copytree(path, tmp_path / "store"))
    lost = [n for n, record in enumerate(records) if b"TAGS" in parse_properties(record.properties)][20:22]
    files = model_index(records, layout_of(WORKLOAD), lambda number: number not in lost)
    for file, content in zip(sorted((store / "index").iterdir()), files, strict=True):
        file.write_bytes(content)
    missing = [finding for finding in check(store, WORKLOAD.broker_conf)[1] if finding.code == "INDEX_ENTRY_MISSING"]
    assert [finding.commit_log_offset for finding in missing] == [records[n].commit_log_offset for n in lost]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_downgrade_is_no_damage_however_few_messages_came_after_it(
    count: int, workload: tuple[Path, list[Record]], tmp_path: Path
) -> None:
    """The broker was started again a second before the last three messages with tags."""
    path, records = workload
    store = Path(shutil.copytree(path, tmp_path / "store"))
    with_tags = [n for n, record in enumerate(records) if b"TAGS" in parse_properties(record.properties)]
    last = with_tags[-3:][:count]
    assert records[last[0]].store_timestamp - records[with_tags[-4]].store_timestamp > 1000
    end = records[last[-1] + 1].commit_log_offset if count < 3 else None
    files = model_index(
        [record for record in records if end is None or record.commit_log_offset < end],
        layout_of(WORKLOAD),
        lambda number: number < last[0],
    )
    for file, content in zip(sorted((store / "index").iterdir()), files, strict=True):
        file.write_bytes(content)
    found = [finding for finding in check(store, WORKLOAD.broker_conf)[1] if (finding.file or "").startswith("index")]
    assert {finding.code for finding in found} - {"INDEX_LAGS"} == {"NOT_CHECKED"}
    (note,) = [finding for finding in found if finding.code == "NOT_CHECKED"]
    assert note.commit_log_offset == records[last[0]].commit_log_offset
    assert note.expected == f"entries for the tags of {count} messages, unless a broker before 5.4.0 ran"


# what runs show


@pytest.mark.parametrize(
    ("runs", "versions", "ranges"),
    [
        ([], OLD, []),
        ([], ANY, []),
        ([], NEW, [(0, MAX)]),
        ([(True, 50, 60, 2)], OLD, [(0, MAX)]),
        ([(False, 50, 60, 2)], NEW, []),
        ([(False, 50, 60, 1), (True, 70, 90, 1)], OLD, [(70, MAX)]),
        ([(True, 50, 60, 9), (False, 70, 90, 4)], NEW, [(0, 70)]),
        ([(True, 50, 60, 9), (False, 70, 90, 3)], NEW, [(0, MAX)]),
        ([(True, 50, 60, 9), (False, 70, 90, 3), (True, 100, 110, 1)], NEW, [(0, MAX)]),
        ([(True, 5, 6, 9), (False, 7, 9, 8), (True, 10, 11, 1), (False, 12, 20, 9)], NEW, [(0, 7), (10, 12)]),
        ([(False, 5, 6, 1), (False, 7, 9, 1), (True, 10, 11, 1), (True, 12, 20, 9)], NEW, [(10, MAX)]),
    ],
)
def test_ranges(
    runs: list[tuple[bool, int, int, int]], versions: BrokerVersions, ranges: list[tuple[int, int]]
) -> None:
    """Offsets are also store times, so that no broker was started between two runs."""
    tagged = tagged_ranges((TagRun(*run, run[1], run[2]) for run in runs), versions)
    assert (list(tagged.ranges), tagged.doubtful) == ([TaggedRange(*one) for one in ranges], ())
    # Of each message, an entry for a key and one for its tags, which is marked.
    entries = [(sign ^ offset, offset, 7) for offset in range(130) for sign in (0, -1)]
    staged = np.array(entries, STAGED_ENTRY_DTYPE).view(np.uint8)
    kept = np.empty(staged.size, np.uint8)
    size = drop_tags(staged, np.array(tagged.ranges, np.int64).reshape(-1), kept)
    expected = [one for one in entries if one[0] >= 0 or any(start <= one[1] < stop for start, stop in ranges)]
    assert kept[:size].view(STAGED_ENTRY_DTYPE).tolist() == expected


@pytest.mark.parametrize(
    ("last_time", "times", "next_time", "is_lost"),
    [
        (1000, (1200, 1300), None, False),
        (1000, (1199, 1300), None, True),
        (1000, (900, 1300), None, False),
        (1000, (1200, 1300), 1500, False),
        (1000, (1200, 1300), 1499, True),
        (1000, (1199, 1300), 1500, True),
    ],
)
def test_few_messages_without_entries_are_damage_if_no_broker_was_started(
    last_time: int, times: tuple[int, int], next_time: int | None, is_lost: bool
) -> None:
    """A broker that was started between can be one that puts none."""
    few = TagRun(False, 70, 90, 3, *times)
    runs = [TagRun(True, 50, 60, 9, 0, last_time), few]
    runs += [] if next_time is None else [TagRun(True, 100, 110, 1, next_time, 9999)]
    tagged = tagged_ranges(runs, NEW)
    after = [] if next_time is None else [TaggedRange(100, MAX)]
    assert list(tagged.ranges) == ([TaggedRange(0, MAX)] if is_lost else [TaggedRange(0, 70), *after])
    assert tagged.doubtful == (() if is_lost else (few,))


def batch(entries: list[tuple[int, int]]) -> EntryBatch:
    offsets = np.array([offset for offset, _ in entries], np.int64)
    return EntryBatch(np.array([key_hash for _, key_hash in entries], np.int32), offsets, offsets)


Message = tuple[list[int], int | None]


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.none() | st.integers(0, 9)), max_size=12),
    st.lists(st.tuples(st.integers(0, 130), st.integers(0, 10)), max_size=60) | st.sampled_from([True, False]),
)
def test_runs_are_what_each_message_shows(messages: list[Message], in_index: list[tuple[int, int]] | bool) -> None:
    """The index has some entries, or those of all keys, with those of all tags or without."""
    expected = [
        entry
        for number, (keys, tags) in enumerate(messages)
        for entry in [*((10 * number, key) for key in keys), *([] if tags is None else [(10 * number, ~tags)])]
    ]
    if not expected:
        return
    if isinstance(in_index, list):
        found = sorted((offset // 10 * 10, key_hash) for offset, key_hash in in_index)
    else:
        found = [(offset, max(one, ~one)) for offset, one in expected if one >= 0 or in_index]
    shown: list[tuple[bool, int]] = []
    for number, (keys, tags) in enumerate(messages):
        own = {key_hash for offset, key_hash in found if offset == 10 * number}
        if tags is None or tags in keys or not set(keys) <= own or own - {*keys, tags} or not (own or keys):
            continue
        if tags in own or keys:
            shown.append((tags in own, 10 * number))
    runs: list[TagRun] = []
    for has_entry, offset in shown:
        if runs and runs[-1].has_entry == has_entry:
            runs[-1] = runs[-1]._replace(last=offset, messages=runs[-1].messages + 1, last_time=offset)
        else:
            runs.append(TagRun(has_entry, offset, offset, 1, offset, offset))
    assert compare_tags(batch(expected), batch(found)) == runs
