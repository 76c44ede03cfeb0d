"""Real brokers boot from stores to which messages were appended, and not while files of an append are not in place."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.errors import StorageError
from spark_mq.io.location import Location
from spark_mq.restorer.append import locked_store
from tests.broker import harness
from tests.support.appended import TOPICS, append_here, segments_of
from tests.support.rebuilt import rebuild_here
from tests.support.soak import cases
from tests.support.store_history import cut_log, record_ends, settings_of
from tests.support.stores import STORES, index_of, tree_of
from tests.support.verified import check, grave

pytestmark = pytest.mark.broker

V5, V4 = harness.VERSIONS
LOG_AND_QUEUES = ("commitlog", "consumequeue")


def trees_of(store: Path, *names: str) -> dict[str, bytes]:
    return {name: data for name, data in tree_of(store).items() if name.startswith(names)}


@pytest.mark.parametrize(
    ("version", "name"), cases([(V5, "workload-533")], [(V5, "workload-533"), (V4, "workload-49x")])
)
def test_an_append_that_is_interrupted_and_finished(tmp_path: Path, version: str, name: str) -> None:
    store = STORES[name]
    original = STORES[name].unpack(tmp_path)
    begun = cut_log(original, tmp_path / "store", record_ends(store)[700])
    for file in (begun / "config").glob("consumerOffset.json*"):
        file.unlink()
    topics = (begun / TOPICS).read_bytes()
    (begun / TOPICS).write_bytes(b"{}")
    rebuild_here(begun, **settings_of(store))
    replace = os.replace

    def fail_at_the_log(source: Path, target: Path) -> None:
        if "/store/commitlog/" in str(target):
            raise OSError(5, "Input/output error")
        replace(source, target)

    with mock.patch.object(os, "replace", fail_at_the_log), pytest.raises(StorageError):
        append_here(begun, segments_of(original), record_ends(store)[-1], store.broker_conf, topics)
    half = trees_of(begun, *LOG_AND_QUEUES, "index")
    with pytest.raises(harness.HarnessError, match="does not start"), harness.Broker(version, begun, store.broker_conf):
        pass
    assert trees_of(begun, *LOG_AND_QUEUES, "index") == half
    with locked_store(Location.resolve(str(begun))) as finished:
        assert finished is not None
    assert trees_of(begun, *LOG_AND_QUEUES) == trees_of(original, *LOG_AND_QUEUES)
    assert index_of(begun) == index_of(original)
    assert grave(check(begun, store.broker_conf)[1]) == []
    harness.check_served(begun, store.broker_conf, index=True, version=version)
