"""A store whose consume queues are a RocksDB database: rebuilt queues lie elsewhere, and what is unknown is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_mq.errors import UnsupportedStoreError
from tests.support.rebuilt import rebuild_here
from tests.support.stores import OWN_STORES, RealStore, tree_of

STORE = RealStore("lagging-533", OWN_STORES)
DATABASE = {"CURRENT": b"MANIFEST-000005\n", "MANIFEST-000005": b"x", "000010.sst": b"x", "LOCK": b""}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = STORE.unpack(tmp_path / "store")
    shutil.rmtree(folder / "consumequeue")
    for place in (folder / "consumequeue", folder / "config" / "consumerOffsets"):
        place.mkdir()
        for name, content in DATABASE.items():
            (place / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("replace", [False, True])
def test_no_queue_file_takes_the_database_s_place(store: Path, replace: bool) -> None:
    before = tree_of(store)
    with pytest.raises(UnsupportedStoreError, match="give another --output"):
        rebuild_here(str(store), broker_conf=str(STORE.broker_conf), replace=replace)
    assert tree_of(store) == before


def test_queues_are_rebuilt_elsewhere(store: Path, tmp_path: Path) -> None:
    before = tree_of(store)
    report = rebuild_here(str(store), str(tmp_path / "output"), broker_conf=str(STORE.broker_conf))
    assert tree_of(store) == before
    assert report.notes == []
    rebuilt = STORE.unpack(tmp_path / "expected", "rebuilt")
    assert tree_of(tmp_path / "output" / "consumequeue") == tree_of(rebuilt / "consumequeue")
