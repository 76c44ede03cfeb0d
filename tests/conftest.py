"""Fixtures that all tests share. Only tests that ask for `spark` start Spark."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from spark_mq.archive.delta import delta_settings, s3_packages
from spark_mq.cli.spark import joined_settings
from spark_mq.errors import UnsupportedSparkError
from spark_mq.store.store_lock import forget_everything
from tests.support.class_archive import quick_spark_options
from tests.support.kernels import examples
from tests.support.soak import SOAKS
from tests.support.stores import WORKLOAD, RealStore, Unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq import MessageStore
    from tests.support.verified import Bench


os.environ.setdefault("JDK_JAVA_OPTIONS", quick_spark_options())

# A run of CI tries the same examples each time, so that a change fails only for what it changed. A soak tries others.
settings.register_profile("spark_mq", deadline=None, max_examples=examples(150), derandomize=not SOAKS)
settings.load_profile("spark_mq")  # no deadline: the first call of a kernel compiles it


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets background jobs ignore Ctrl-C, and so do the processes that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


LONG_FILES = (
    *("test_archive.py", "test_page_commands.py", "test_notebooks.py", "test_live_stream.py"),
    *("test_rocksdb_boot.py", "test_consumption.py", "test_broker_archive.py", "test_topics_while_appending.py"),
)
"""Test files that take minutes, the longest first. If a run with several processes came to one of them last, all others
would wait."""


SHARED_FOLDERS = ("cluster", "hdfs", "s3")
"""Folders whose files share what is dear to start: servers, an environment, and a JVM that has used Delta Lake."""


SOAK_SECONDS = 4 * 3600
"""The most that a test may take in a soak, on a slow and busy machine."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one process all files of such folders, those of archives, and in a run without brokers those with Spark.

    Its JVM has then loaded and compiled what the next file uses: the first use of Delta Lake takes half a minute.
    """
    from xdist.scheduler import LoadFileScheduling

    if config.getvalue("dist") != "loadfile":
        return None
    short = config.option.markexpr.startswith("not ")
    scheduling = LoadFileScheduling(config, log)
    scheduling._split_scope = lambda test: _scope(config.rootpath / test.partition("::")[0], short)
    return scheduling


@functools.cache
def _scope(file: Path, short: bool) -> str:
    """What of a run one process gets as a whole."""
    text = file.read_text()
    if short and re.search(r"\b(spark|sail|engine): SparkSession|getfixturevalue\(.spark", text):
        return "spark"
    if re.search(r"pytestmark = \[?pytest\.mark\.archive", text):
        return "archive"
    return "shared" if file.parent.name in SHARED_FOLDERS else str(file)


class SilentFiles(pytest.Item):
    """A test that fails, and names the test files of which no test was collected."""

    def __init__(self, files: list[str], **rest: Any) -> None:
        super().__init__(**rest)
        self.files = files

    def runtest(self) -> None:
        names = ", ".join(self.files)
        pytest.fail(f"no test was collected from {names}; see norecursedirs in pyproject.toml", pytrace=False)


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the long files first, and make a run of the whole suite fail if a test file contributes no test.

    Tests with brokers mostly wait. Their files alternate with other files, so that several processes have both kinds of
    work at each time. A folder's name can hide its tests. A long form may take hours.
    """
    for item in items if SOAKS else ():
        item.add_marker(pytest.mark.timeout(SOAK_SECONDS), append=False)
    waiting = {item.path: item.get_closest_marker("broker") is not None for item in items}
    kinds = [[path for path, waits in waiting.items() if waits is kind] for kind in (True, False)]
    rank = {path: number / len(kind) for kind in kinds for number, path in enumerate(kind)}
    first = {name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: (first.get(item.path.name, len(first)), rank[item.path]))
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    folder = Path(__file__).parent
    collected = {item.path for item in items}
    silent = [str(file.relative_to(folder)) for file in sorted(folder.rglob("test_*.py")) if file not in collected]
    if silent:
        items.insert(0, SilentFiles.from_parent(session, name="every_test_file_has_tests", files=silent))


@pytest.fixture(autouse=True)
def _no_memory() -> None:
    """No test uses what the process found out about the files of a test before it."""
    forget_everything()


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    """Gives the folder of an unpacked store. It is shared: no test may change it."""
    places: dict[RealStore, Path] = {}

    def unpack(store: RealStore) -> Path:
        if store not in places:
            places[store] = store.unpack(tmp_path_factory.mktemp(str(store)))
        return places[store]

    return unpack


@pytest.fixture(scope="session")
def store(unpacked: Unpack) -> str:
    """The folder of `WORKLOAD`, unpacked. It is shared: no test may change it."""
    return str(unpacked(WORKLOAD))


@pytest.fixture
def bench(unpacked: Unpack, tmp_path: Path) -> Bench:
    """A copy of `WORKLOAD`, whose bytes a test changes."""
    from tests.support.verified import Bench

    return Bench.of(unpacked(WORKLOAD), WORKLOAD.name, tmp_path)


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's time zone is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


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
def delta_jars(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of a session with Delta Lake; none if no test needs it, or if its jars cannot be fetched."""
    needing = ("archive", "notebook", "cluster", "broker")
    items = request.session.items
    if not any(item.get_closest_marker(name) for item in items for name in needing):
        return {}
    try:
        settings = delta_settings()
    except UnsupportedSparkError:
        return {}
    if any(item.get_closest_marker("archive") and item.get_closest_marker("s3") for item in items):
        settings = joined_settings(settings, s3_packages())
    packages = [package.split(":") for package in settings["spark.jars.packages"].split(",")]
    names = [f"{group}_{artifact}-{version}.jar" for group, artifact, version in packages]
    if all(any(Path.home().glob(f".ivy2*/jars/{name}")) for name in names):
        return settings
    fetched = {name: value for name, value in settings.items() if name.startswith("spark.jars.")}
    code = "import sys; from pyspark.sql import SparkSession as S; S.builder.config(map=eval(sys.argv[1]))"
    fetch = [sys.executable, "-c", f"{code}.getOrCreate().stop()", repr(fetched)]
    with _ivy_alone():
        return settings if subprocess.run(fetch, capture_output=True, check=False).returncode == 0 else {}


@contextmanager
def _ivy_alone() -> Iterator[None]:
    """Test processes share Ivy's cache, which two at once spoil."""
    with (Path(tempfile.gettempdir()) / "spark-mq-tests-ivy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def delta(spark: SparkSession, delta_jars: dict[str, str]) -> SparkSession:
    """The Spark session, where it has Delta Lake."""
    if not delta_jars:
        pytest.skip("Delta Lake's jars cannot be fetched from Maven Central")
    return spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, delta_jars: dict[str, str]) -> Iterator[SparkSession]:
    """The one Spark session of the test run, on two cores; with Delta Lake, if it can be had."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    assert SparkContext._gateway is None, "a test has started a JVM before, which has other settings"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in delta_jars.items():
        builder = builder.config(name, value)
    with _ivy_alone():
        session = _start(builder, tmp_path_factory)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def sail() -> Iterator[SparkSession]:
    """A session of Sail. Spark's functions stay those of the JVM's session, which other tests use."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    from spark_mq import register
    from spark_mq.sail import sail_server

    session: Any = RemoteSession.builder.remote(sail_server()).create()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session.conf.set("spark.sql.session.timeZone", "UTC")
        register(session)
    yield session
    session.stop()


@pytest.fixture(params=["spark", "sail"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session of each engine, one after the other; `pyspark.sql.functions` makes columns for it."""
    session: SparkSession = request.getfixturevalue(request.param)
    if request.param == "sail":
        monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    return session


def _start(builder: SparkSession.Builder, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    return (
        builder.appName("spark-mq tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        # Delta's own jobs, over its log and over files, take most of a small test's time.
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.databricks.delta.writeChecksumFile.enabled", "false")
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")
        .getOrCreate()
    )
