"""The state of stores that are empty, odd or damaged; `test_boot` compares the boots of real stores with brokers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from spark_mq.errors import StoreNotFoundError, UnsupportedStoreError
from spark_mq.format.broker_version import ALL_VERSIONS
from spark_mq.io.location import Location
from spark_mq.store.boot_conditions import boot_groups
from spark_mq.store.disk_use import disk_use
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.store_lock import store_lock
from spark_mq.store.store_state import StaleTail, StoreState, store_state
from tests.support.boots import store_with_old_records
from tests.support.stores import STORES, Unpack

NOW = 1_700_000_000_000


def state_of(folder: Path, name: str = "lagging-533") -> StoreState:
    return store_state(str(folder), "5.3.3", str(STORES[name].broker_conf))


def test_an_empty_store_has_a_state(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    state = store_state(str(tmp_path))
    assert (state.log.start, state.log.end, state.log.last_segment) == (-1, -1, None)
    assert [boot.rules for boot in state.boots] == list(boot_groups(ALL_VERSIONS))
    assert all(boot.deletes_queues for boot in state.boots)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(1000))
    assert store_state(str(tmp_path)).boots[0].loses_nothing
    assert not list(tmp_path.glob("lock"))


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_a_folder_that_is_not_a_store_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        store_state(str(tmp_path / name))


def test_the_lag_is_what_was_cut_off(unpacked: Unpack) -> None:
    """`make_stores` removed the last three of thirty units."""
    state = state_of(unpacked(STORES["lagging-533"]))
    last = sorted(fact["offset"] for fact in STORES["lagging-533"].facts("msg") if fact["topic"] == "LastQueue")
    assert state.lacking is not None
    assert [message.commit_log_offset for message in state.lacking.messages] == last[27:]
    assert [message.queue_offset for message in state.lacking.messages] == [27, 28, 29]
    assert state.lacking.dispatched_to == last[27]
    assert state.lacking.is_complete
    assert state.index is not None
    assert (state.index.lacking, state.index.covered_to) == ((), state.log.end)


def test_old_records_without_a_gap_are_counted(tmp_path: Path) -> None:
    written, end = store_with_old_records(tmp_path)
    state = store_state(str(tmp_path))
    assert state.log.end == written
    assert state.log.stale_tail == StaleTail(written, end, 8)
    with store_lock(Location.resolve(str(tmp_path))):  # a broker that writes them now
        assert store_state(str(tmp_path)).log.stale_tail is None


def test_disk_use_counts_each_file_once(tmp_path: Path) -> None:
    for name in ("commitlog/0", "consumequeue/T/0/0", "index/1", "config/topics.json", "timerwheel", "timerlog/0"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 100)
    os.truncate(tmp_path / "timerwheel", 50 << 20)  # a hole
    moved = tmp_path.with_name(f"{tmp_path.name}-index")
    (tmp_path / "index").rename(moved)
    (tmp_path / "index").symlink_to(moved)
    uses = {use.tree: use for use in disk_use(Location.resolve(str(tmp_path)))}
    assert {tree: (use.files, use.size) for tree, use in uses.items()} == {
        "commitlog": (1, 100),
        "consumequeue": (1, 100),
        "index": (1, 100),
        "config": (1, 100),
        "other": (2, 100 + (50 << 20)),
    }
    allocated = uses["other"].allocated
    assert allocated is not None
    assert 0 < allocated < 1 << 20


@pytest.mark.parametrize(
    ("files", "content", "named"),
    [
        (["config/topics.json", "config/topics.json.bak"], b"{", "config/topics.json"),
        ([f"consumequeue/LastQueue/0/{0:020d}"], bytes(1995), f"LastQueue/0/{0:020d} has 1,995 bytes, not 2,000"),
        (["commitlog/core.4711"], b"x", "commitlog/core.4711 is not a segment"),
    ],
)
def test_what_a_broker_refuses_is_named(files: list[str], content: bytes, named: str, tmp_path: Path) -> None:
    folder = STORES["lagging-533"].unpack(tmp_path)
    assert state_of(folder).obstacles == ()
    for file in files:
        (folder / file).write_bytes(content)
    (obstacle,) = state_of(folder).obstacles
    assert named in obstacle


def test_a_segment_that_is_missing_is_a_gap(tmp_path: Path) -> None:
    folder = STORES["workload-533"].unpack(tmp_path)
    assert state_of(folder, "workload-533").log.gaps == ()
    (folder / "commitlog" / f"{262144:020d}").unlink()
    assert state_of(folder, "workload-533").log.gaps == (LogRange(262144, 393216),)


def test_a_checkpoint_that_is_gone_makes_a_recovery_begin_at_the_first_segment(tmp_path: Path) -> None:
    folder = STORES["workload-533"].unpack(tmp_path)
    assert state_of(folder, "workload-533").forced_boots[0].recovers_from == 524288
    (folder / "checkpoint").unlink()
    state = state_of(folder, "workload-533")
    assert state.forced_boots[0].recovers_from == 0
    assert "no file checkpoint" in (state.checkpoint_problem or "")


def test_a_database_of_queues_that_does_not_open_is_an_error(tmp_path: Path) -> None:
    folder = STORES["lagging-533"].unpack(tmp_path)
    shutil.rmtree(folder / "consumequeue")
    (folder / "consumequeue").mkdir()
    (folder / "consumequeue" / "CURRENT").write_text("MANIFEST-000001\n")
    (folder / "consumequeue" / "MANIFEST-000001").touch()
    with pytest.raises(UnsupportedStoreError, match=r"consumequeue: RocksDB does not open this database"):
        state_of(folder)


@pytest.mark.parametrize(("version", "count"), [("5.3.3", 0), ("5.5.0", 1)])
def test_queues_of_two_kinds_are_not_considered_since_5_4_0(version: str, count: int, tmp_path: Path) -> None:
    """`CombineConsumeQueueStore`@5.5.0: the database beside the files decides, too, where the check begins."""
    conf = tmp_path / "broker.conf"
    conf.write_text(STORES["lagging-533"].broker_conf.read_text() + "\nrocksdbCQDoubleWriteEnable=true\n")
    state = store_state(str(STORES["lagging-533"].unpack(tmp_path)), version, str(conf))
    found = [one for one in state.settings if one.name == "rocksdbCQDoubleWriteEnable"]
    assert [one.value for one in found] == ["true, which is not considered here"] * count
