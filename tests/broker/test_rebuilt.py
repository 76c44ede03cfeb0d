"""Real brokers boot from stores whose derived files were built here, and serve every message of the log.

The check consumes every queue from its first live offset to its end, compares every unit with what the broker's own
dispatch gives, looks every message up by its offset id and its keys, and then sends new messages and reads those.

The files are built without Spark, whose tasks give the same bytes (`tests/indexer/test_rebuild.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.broker import harness
from tests.support.rebuilt import rebuild_here
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, STORES, RealStore

pytestmark = pytest.mark.broker

V5, V4 = harness.VERSIONS


@pytest.fixture(scope="module")
def with_our_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives a store by name, with consume queues, index files and checkpoint made here. No test may change it."""

    @cache
    def rebuilt(name: str) -> Path:
        store = STORES[name].unpack(tmp_path_factory.mktemp("rebuilt"))
        shutil.rmtree(store / "consumequeue")
        shutil.rmtree(store / "index")
        (store / "checkpoint").unlink()
        rebuild_here(store, broker_conf=str(STORES[name].broker_conf))
        return store

    return rebuilt


@pytest.mark.parametrize(
    ("version", "name"),
    cases(
        # The files of the others are, byte for byte, those that brokers made: `tests/indexer/test_brokers_files.py`.
        [(V5, "killed-533"), (V4, "stale-49x")],
        [
            (V5, "workload-533"),
            (V4, "workload-49x"),
            (V5, "killed-533"),
            (V4, "killed-49x"),
            (V5, "stale-533"),
            (V4, "stale-49x"),
            (V5, "lagging-533"),
            (V5, "deleted-533"),
        ],
    ),
)
def test_a_broker_serves_every_message(with_our_files: Callable[[str], Path], version: str, name: str) -> None:
    harness.check_served(with_our_files(name), STORES[name].broker_conf, index=True, version=version)


def test_a_4_9_broker_serves_a_log_without_its_first_segments(tmp_path: Path) -> None:
    store = STORES["workload-49x"].unpack(tmp_path)
    for segment in sorted((store / "commitlog").iterdir())[:2]:
        segment.unlink()
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    rebuild_here(store, broker_conf=str(STORES["workload-49x"].broker_conf))
    harness.check_served(store, STORES["workload-49x"].broker_conf, index=True, version=V4)


@pytest.mark.parametrize(
    ("version", "name"), cases([(V5, "crc-533")], [(V5, "workload-533"), (V4, "workload-49x"), (V5, "crc-533")])
)
def test_key_and_window_queries_are_answered_as_from_the_broker_s_own_files(
    with_our_files: Callable[[str], Path], version: str, name: str
) -> None:
    """Keys, unique keys and windows to the millisecond, asked of the Java store over our index files."""
    answers = harness.facts(with_our_files(name), STORES[name].broker_conf, version)["query"]
    asked = STORES[name].facts("query")
    windows = [fact for fact in answers if fact["begin"] > 0]
    assert len(windows) > 100
    assert answers == asked


@pytest.mark.parametrize(
    ("version", "name"),
    cases(
        # Their files are those of the rebuild from nothing: `test_continued_stores`.
        [(V4, "killed-49x")],
        [(V5, "killed-533"), (V4, "killed-49x"), (V5, "stale-533"), (V5, "lagging-533")],
    ),
)
def test_a_broker_serves_what_it_left_and_a_resumed_rebuild_completed(tmp_path: Path, version: str, name: str) -> None:
    store = STORES[name].unpack(tmp_path)
    report = rebuild_here(store, broker_conf=str(STORES[name].broker_conf), resume=True)
    assert report.files_completed > 0
    harness.check_served(store, STORES[name].broker_conf, index=True, version=version)


@pytest.mark.parametrize(
    ("version", "name"), cases([("5.5.0", "workload-550")], [(V5, "deleted-533"), ("5.5.0", "workload-550")])
)
def test_a_broker_serves_queues_that_were_rebuilt_into_a_database(version: str, name: str, tmp_path: Path) -> None:
    """A broker that kept queues in files goes on with them in RocksDB, and back."""
    packed = RealStore(name, OWN_STORES if version == V5 else OWN_STORES / "versions")
    store = packed.unpack(tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(packed.broker_conf.read_text() + "\nstoreType=defaultRocksDB\n")
    rebuild_here(store, broker_conf=str(conf), only="consumequeue", queue_store="rocksdb", replace=True)
    harness.check_served(store, conf, index=True, version=version)
    with harness.Broker(version, store, conf) as broker:
        harness.send(broker, "sequence", seed=7, count=20)
    rebuild_here(store, broker_conf=str(conf), only="consumequeue", queue_store="files", replace=True)
    conf.write_text(packed.broker_conf.read_text())
    harness.check_served(store, conf, index=True, version=version)
