"""Brokers of many versions take restored stores as their own, and find messages by tags since the index has those.

A usual run has one store of 5.5.0; `make compat-brokers` has a store of each version.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from spark_mq.format.broker_version import INDEX_TAGS, BrokerVersion
from spark_mq.store.recovery import next_recovery
from tests.broker import harness
from tests.support.boots import entries_of, rows
from tests.support.restored import restore_here
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, RealStore, version_stores

pytestmark = pytest.mark.broker

OWN = RealStore("workload-550", OWN_STORES / "versions")


@pytest.mark.parametrize("store", [OWN, *(version_stores("p") if SOAKS else [])], ids=str)
def test_a_broker_serves_a_restored_store(store: RealStore, tmp_path: Path) -> None:
    """A broker of the version that wrote the store serves all, and finds it by keys, ids and, if it can, by tags."""
    new, version, conf = tmp_path / "new", store.broker_version, store.broker_conf
    restore_here(store.unpack(tmp_path), new, conf)
    report = harness.check_served(new, conf, index=True, version=version)
    assert report["messages"] == len(store.facts("msg"))
    assert ("tags" in report) == INDEX_TAGS.holds(BrokerVersion.parse(version))


@pytest.mark.skipif(not SOAKS, reason="a soak")
@pytest.mark.parametrize("store", [OWN, *version_stores("p")], ids=str)
def test_a_boot_takes_the_files_of_a_restored_store_as_its_own(store: RealStore, tmp_path: Path) -> None:
    """The broker believes the checkpoint, also after a crash: it makes no index entry again that was not predicted."""
    new, version, conf = tmp_path / "new", store.broker_version, store.broker_conf
    restore_here(store.unpack(tmp_path), new, conf)
    (new / "abort").touch()
    recovery = next_recovery(str(new), version, str(conf))
    before = Counter(entries_of(store, new))
    with harness.Broker(version, new, conf):
        pass
    # A broker that runs delivers what is due, as messages after the old end of the log.
    after = Counter(offset for offset in entries_of(store, new) if offset < (recovery.log_end or 0))
    assert before - after == Counter()
    assert after - before == {row["commit_log_offset"]: row["count"] for row in rows(recovery, "double")}
