"""Fixtures of the tests that read from and write to HDFS."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import pytest

from tests.broker.harness import missing
from tests.hdfs.cluster import HdfsCluster, running_cluster
from tests.support.stores import RealStore, Unpack


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """A real HDFS."""
    reason = missing()
    if importlib.util.find_spec("hdfs_native") is None:
        reason = "hdfs-native is not installed"
    if reason is not None:
        pytest.skip(f"no HDFS: {reason}")
    with running_cluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def on_hdfs(unpacked: Unpack, hdfs: HdfsCluster) -> Callable[[RealStore], tuple[str, str]]:
    """A store on the local disk and on HDFS: its path and its URI."""
    uploaded: dict[RealStore, str] = {}

    def place(store: RealStore) -> tuple[str, str]:
        folder = unpacked(store)
        if store not in uploaded:
            hdfs.upload(folder, f"/stores/{store}")
            uploaded[store] = f"{hdfs.address}/stores/{store}"
        return str(folder), uploaded[store]

    return place
