"""The archive that tests share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from tests.support.archives import READ_ONLY, A, Archive
from tests.support.stores import Unpack


@pytest.fixture(scope="session")
def filled(delta: SparkSession, unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Stores archived at once, and one of them again; it is shared: no test may change it."""
    lake = Archive(delta, tmp_path_factory.mktemp("filled"))
    with ThreadPoolExecutor(len(READ_ONLY)) as threads:
        runs = [threads.submit(lake.run, unpacked(store), broker) for broker, store in READ_ONLY.items()]
    assert [run.result().rows for run in runs] == [len(store.facts("msg")) for store in READ_ONLY.values()]
    again = lake.run(unpacked(A), "x")
    assert (again.rows, again.keys, again.segments) == (0, 0, 0)
    return lake
