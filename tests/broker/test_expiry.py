"""`spark_mq.expire` leaves the same files as a real broker with a short `fileReservedTime` on a copy of the store.

A broker looks for expired files for the first time a minute after its start. So all brokers here run at the same time.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_mq.expirer import expire
from tests.broker import harness
from tests.support.stores import RealStore

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]

V5, V4 = harness.VERSIONS
TREES = ("commitlog", "consumequeue", "index")
QUIET = {"transactionCheckInterval": "3600000", "timerWheelEnable": "false"}
"""Nothing is written to the store while the files are compared."""
EXPIRING = {
    "fileReservedTime": "1",
    "deleteWhen": ";".join(map(str, range(24))),
    "cleanResourceInterval": "300",
    # How full the disk of the machine is must not matter.
    "cleanFileForciblyEnable": "false",
    "diskMaxUsedSpaceRatio": "95",
}
HOURS = 2
"""The age of a segment that has expired."""
QUIET_SECONDS, MAX_SECONDS = 6.0, 240.0


@dataclass(frozen=True)
class Case:
    """A store, and which of its segments have expired: a character for each, `x` or `-`; the last one goes on."""

    version: str
    name: str
    expired: str


CASES = {
    "some-533": Case(V5, "workload-533", "xx-x"),
    "all-533": Case(V5, "workload-533", "x"),
    "left-over-533": Case(V5, "deleted-533", "-"),
    "some-49x": Case(V4, "workload-49x", "xx-x"),
    "all-49x": Case(V4, "workload-49x", "x"),
}


def files_of(store: Path) -> set[str]:
    return {str(path.relative_to(store)) for tree in TREES for path in (store / tree).rglob("*") if path.is_file()}


def prepare(case: Case, folder: Path) -> tuple[Path, dict[str, str]]:
    """The store after a broker has delivered what was due, and the settings. No segment has expired."""
    store = harness.unpack_store(case.name, folder)
    conf = (harness.STORES / f"{case.name}.conf").read_text()
    settings = {**dict(line.split("=", 1) for line in conf.splitlines()), **QUIET}
    with harness.Broker(case.version, store, {**settings, "deleteWhen": "24"}):
        time.sleep(3)
    segments = sorted((store / "commitlog").iterdir())
    now = time.time()
    for segment, mark in zip(segments, case.expired.ljust(len(segments), case.expired[-1]), strict=False):
        changed = now - HOURS * 3600 if mark == "x" else now
        os.utime(segment, (changed, changed))
    return store, settings


def expired_by_broker(case: Case, store: Path, settings: Mapping[str, str]) -> set[str]:
    """The files of the store after a broker has deleted what has expired."""
    with harness.Broker(case.version, store, {**settings, **EXPIRING}):
        before = files = files_of(store)
        started = changed = time.monotonic()
        while time.monotonic() - started < MAX_SECONDS:
            time.sleep(0.5)
            now = files_of(store)
            if now != files:
                files, changed = now, time.monotonic()
            elif files != before and time.monotonic() - changed > QUIET_SECONDS:
                break
        return files_of(store)


@dataclass(frozen=True)
class Outcome:
    """Files before, after our deletion, and after the broker's."""

    before: set[str]
    ours: set[str]
    brokers: set[str]


def outcome(case: Case, folder: Path) -> Outcome:
    store, settings = prepare(case, folder)
    ours = Path(shutil.copytree(store, folder / "ours"))
    before = files_of(ours)
    expire(str(ours), reserved_hours=1, apply=True, even_if_unread=True)
    return Outcome(before, files_of(ours), expired_by_broker(case, store, settings))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    for version in harness.VERSIONS:
        harness.build(version)
    folders = {name: tmp_path_factory.mktemp(name) for name in CASES}
    with ThreadPoolExecutor(len(CASES)) as executor:
        pending = {name: executor.submit(outcome, case, folders[name]) for name, case in CASES.items()}
        return {name: one.result() for name, one in pending.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_files_are_those_that_a_broker_leaves(name: str, outcomes: Mapping[str, Outcome]) -> None:
    found = outcomes[name]
    assert found.brokers < found.before, "the broker has deleted nothing"
    assert found.ours == found.brokers
    segments = {path for path in found.before - found.ours if path.startswith("commitlog/")}
    queue_files = {path for path in found.before - found.ours if path.startswith("consumequeue/")}
    assert queue_files
    assert bool(segments) == ("x" in CASES[name].expired)


@pytest.mark.parametrize(("version", "name"), [(V5, "workload-533"), (V4, "workload-49x")])
def test_a_broker_serves_what_a_killed_run_leaves(version: str, name: str, tmp_path: Path) -> None:
    """The log begins later, and of the queue files, and the index files, some are gone: every message is served."""
    store = harness.unpack_store(name, tmp_path)
    files = expire(str(store), min_offset=3 * 131_072).files
    trees = [file.tree for file in files]
    stop = trees.index("consumequeue") + trees.count("consumequeue") // 2
    assert 0 < stop < len(files) - trees.count("index")
    for file in files[:stop]:
        (store / file.path).unlink()
    kept = [fact for fact in RealStore(name, harness.STORES).facts("msg") if fact["offset"] >= 3 * 131_072]
    report = harness.check_served(store, harness.STORES / f"{name}.conf", index=True, version=version)
    assert (report["problemCount"], report["messages"]) == (0, len(kept))
