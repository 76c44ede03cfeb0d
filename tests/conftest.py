"""Fixtures that all tests share. Only tests that ask for `spark` start Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.hostile import WITHOUT_JIT
from tests.real_stores import RealStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq import MessageStore


settings.register_profile("spark_mq", deadline=None, max_examples=30 if WITHOUT_JIT else 100)
settings.load_profile("spark_mq")  # no deadline: the first call of a kernel compiles it


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RealStore], Path]:
    """Gives the folder of an unpacked store. It is shared: no test may change it."""
    places: dict[RealStore, Path] = {}

    def unpack(store: RealStore) -> Path:
        if store not in places:
            places[store] = store.unpack(tmp_path_factory.mktemp(str(store)))
        return places[store]

    return unpack


@pytest.fixture(scope="session")
def described(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RealStore], MessageStore]:
    """Opens a store with the files that its facts speak of. It is shared: no test may change it."""
    from spark_mq import MessageStore

    opened: dict[RealStore, MessageStore] = {}

    def open_store(store: RealStore) -> MessageStore:
        if store not in opened:
            folder = store.unpack_as_described(tmp_path_factory.mktemp(str(store)))
            opened[store] = MessageStore(str(folder), broker_version=store.broker_version)
        return opened[store]

    return open_store


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the test run, on two cores."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("spark-mq tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()
