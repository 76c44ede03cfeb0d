"""The end of the log that a process found before, if no broker can have changed it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_mq.store import store_lock as settled_files
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.log_range import LiveEnd
from spark_mq.store.message_store import MessageStore
from tests.support.rocksdb import ROCKS
from tests.support.stores import OWN_STORES, RealStore, Unpack


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[LiveEnd]:
    """The ends that were searched for, in order; the changes of all files are old."""
    found: list[LiveEnd] = []
    find = LiveEndFinder.find_without_index

    def counted(*arguments: object) -> LiveEnd:
        found.append(find(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(LiveEndFinder, "find_without_index", counted)
    monkeypatch.setattr(settled_files, "_SETTLED_NANOS", -(1 << 62))
    monkeypatch.setattr(settled_files, "_ON_DISK_NANOS", -(1 << 62))
    return found


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    """A store without an index, which would tell the end of the log."""
    source, target = unpacked(RealStore("workload-533", OWN_STORES)), tmp_path / "store"
    return Path(shutil.copytree(source, target, ignore=shutil.ignore_patterns("index")))


def end(store: Path, recalls_end: bool = True) -> int:
    with MessageStore(str(store), recalls_end=recalls_end) as opened:
        return opened.get_max_phy_offset()


def test_an_end_is_searched_for_once_while_no_file_changes(store: Path, searches: list[LiveEnd]) -> None:
    ends = [end(store), end(store), end(store)]
    assert len(searches) == 1
    assert ends == [searches[0].offset] * 3
    assert end(store, recalls_end=False) == ends[0]
    assert len(searches) == 2
    (store / "checkpoint").write_bytes((store / "checkpoint").read_bytes())
    assert end(store) == ends[0]
    assert len(searches) == 3


def test_an_end_is_searched_for_each_time_while_a_broker_may_run(store: Path, searches: list[LiveEnd]) -> None:
    """With `abort`, it may run on another machine."""
    (store / "abort").touch()
    assert [end(store), end(store)] == [found.offset for found in searches]
    with MessageStore(str(store), recalls_end=True) as opened:
        assert opened.first_state is not None


@pytest.fixture
def rocks(unpacked: Unpack, tmp_path: Path) -> Path:
    """A store whose queues are in RocksDB, and without an index."""
    return Path(shutil.copytree(unpacked(ROCKS), tmp_path / "rocks", ignore=shutil.ignore_patterns("index*")))


def test_an_end_by_queues_in_rocksdb_is_searched_for_once_while_no_file_changes(
    rocks: Path, searches: list[LiveEnd]
) -> None:
    ends = [end(rocks), end(rocks)]
    assert len(searches) == 1
    current = rocks / "consumequeue" / "CURRENT"
    current.write_bytes(current.read_bytes())
    assert [end(rocks)] * 2 == ends
    assert len(searches) == 2


def test_queues_in_rocksdb_that_changed_since_they_were_read_have_no_state(
    rocks: Path, searches: list[LiveEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore(str(rocks)) as opened:
        before = opened.state_of_files()
        monkeypatch.setattr(settled_files, "_SETTLED_NANOS", 0)
        assert opened.state_of_files() == before is not None
        (rocks / "consumequeue" / "CURRENT").touch()
        assert opened.state_of_files() is None
