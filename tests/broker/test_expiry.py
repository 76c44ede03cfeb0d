"""`spark_mq.expire` leaves the same files as a real broker with a short `fileReservedTime` on a copy of the store.

A broker looks for expired files for the first time a minute after its start. So all brokers here run at the same time.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_mq.errors import DataLossError
from spark_mq.expirer import expire
from spark_mq.live import datasource as live
from tests.broker import harness
from tests.support.soak import cases
from tests.support.stores import STORES

pytestmark = pytest.mark.broker

V5, V4 = harness.VERSIONS
TREES = ("commitlog", "consumequeue", "index")
QUIET = {"transactionCheckInterval": "3600000", "timerWheelEnable": "false"}
"""Nothing is written to the store while the files are compared."""
EXPIRING = {
    "fileReservedTime": "1",
    "deleteWhen": ";".join(map(str, range(24))),
    "cleanResourceInterval": "300",
    # So long a broker has queues whose first messages are not in the log any more.
    "deleteCommitLogFilesInterval": "4000",
    # How full the disk of the machine is must not matter.
    "cleanFileForciblyEnable": "false",
    "diskMaxUsedSpaceRatio": "95",
}
HOURS = 2
"""The age of a segment that has expired."""
QUIET_SECONDS, MAX_SECONDS = 8.0, 240.0


@dataclass(frozen=True)
class Case:
    """A store, and which of its segments have expired: a character for each, `x` or `-`; the last one goes on."""

    version: str
    name: str
    expired: str


SOME, SEGMENT_SIZE = "xx-x", 131_072
"""The first two segments expire."""
TOPIC = "OrderEvents"
CASES = {
    "some-533": Case(V5, "workload-533", SOME),
    "all-533": Case(V5, "workload-533", "x"),
    "left-over-533": Case(V5, "deleted-533", "-"),
    "some-49x": Case(V4, "workload-49x", SOME),
    "all-49x": Case(V4, "workload-49x", "x"),
}


def files_of(store: Path) -> set[str]:
    return {str(path.relative_to(store)) for tree in TREES for path in (store / tree).rglob("*") if path.is_file()}


def prepare(case: Case, folder: Path) -> tuple[Path, dict[str, str]]:
    """The store after a broker has delivered what was due, and the settings. No segment has expired."""
    store = STORES[case.name].unpack(folder)
    conf = STORES[case.name].broker_conf.read_text()
    settings = {**dict(line.split("=", 1) for line in conf.splitlines()), **QUIET}
    with harness.Broker(case.version, store, {**settings, "deleteWhen": "24"}):
        time.sleep(3)
    segments = sorted((store / "commitlog").iterdir())
    now = time.time()
    for segment, mark in zip(segments, case.expired.ljust(len(segments), case.expired[-1]), strict=False):
        changed = now - HOURS * 3600 if mark == "x" else now
        os.utime(segment, (changed, changed))
    return store, settings


class Streams:
    """Streams of a topic, each with a batch that is planned before the broker deletes files."""

    def __init__(self, broker: harness.Broker) -> None:
        """Plan the batch."""
        given = {"path": f"rocketmq://{broker.name_server}", "topic": TOPIC}
        self._readers: list[Any] = [
            live.stream_reader(one, live.schema(one)) for one in (given, given | {"failOnDataLoss": "false"})
        ]
        self._start = self._readers[0].initialOffset()
        self._planned = self._readers[0].partitions(self._start, self._readers[0].latestOffset(self._start, None))
        self.errors: list[str] = []
        self.rows: list[list[tuple[int, int]]] = []
        self.warnings: list[str] = []
        self.error_meanwhile: str = ""
        self.rows_meanwhile: list[tuple[int, int]] = []

    def read_while_files_are_deleted(self) -> None:
        """Read the batch while the broker has deleted a file of the log, and not yet corrected its queues."""
        strict, lenient = self._readers
        with ThreadPoolExecutor(2) as executor:
            rows = executor.submit(self._read, lenient, self._planned)
            error = executor.submit(self._read, strict, self._planned).exception()
        assert isinstance(error, DataLossError)
        self.error_meanwhile, self.rows_meanwhile = str(error), rows.result()

    def go_on(self) -> None:
        """Read the batch, and plan and read it as a stream does that was stopped."""
        strict, lenient = self._readers
        for reading in (lambda: self._read(strict, self._planned), lambda: strict.latestOffset(self._start, None)):
            with pytest.raises(DataLossError) as lost:
                reading()
            self.errors.append(str(lost.value))
        logger, handler = logging.getLogger("spark_mq.live"), logging.Handler()
        thread = threading.get_ident()
        handler.addFilter(lambda record: record.thread == thread)  # other brokers run at the same time
        handler.emit = lambda record: self.warnings.append(record.getMessage())  # type: ignore[method-assign]
        logger.addHandler(handler)
        end = lenient.latestOffset(self._start, None)
        self.rows = [self._read(lenient, one) for one in (self._planned, lenient.partitions(self._start, end))]
        logger.removeHandler(handler)

    def _read(self, reader: Any, partitions: Sequence[Any]) -> list[tuple[int, int]]:
        rows = [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()]
        return sorted((row["queue_id"], row["queue_offset"]) for row in rows)


def expired_by_broker(case: Case, store: Path, settings: Mapping[str, str]) -> tuple[set[str], Streams | None]:
    """The files of the store after a broker has deleted what has expired; and streams, if some messages are left."""
    with harness.Broker(case.version, store, {**settings, **EXPIRING}) as broker:
        streams = Streams(broker) if case.expired == SOME else None
        before = files = files_of(store)
        last_expired = f"commitlog/{SEGMENT_SIZE * (SOME.index('-') - 1):020}"
        started = changed = time.monotonic()
        while time.monotonic() - started < MAX_SECONDS:
            time.sleep(0.5)
            now = files_of(store)
            if now != files:
                if streams is not None and not streams.error_meanwhile and last_expired in before - now:
                    streams.read_while_files_are_deleted()
                files, changed = now, time.monotonic()
            elif files != before and time.monotonic() - changed > QUIET_SECONDS:
                break
        # A broker of 4.9 notes pulls of offsets that expired.
        left = {path for path in files_of(store) if "/OFFSET_MOVED_EVENT/" not in path}
        if streams is not None:
            streams.go_on()
        return left, streams


USUAL = ("some-533", "left-over-533", "some-49x")


@dataclass(frozen=True)
class Outcome:
    """Files before, after our deletion, and after the broker's."""

    before: set[str]
    ours: set[str]
    brokers: set[str]
    streams: Streams | None


def outcome(case: Case, folder: Path) -> Outcome:
    store, settings = prepare(case, folder)
    ours = Path(shutil.copytree(store, folder / "ours"))
    before = files_of(ours)
    expire(str(ours), reserved_hours=1, apply=True, even_if_unread=True)
    return Outcome(before, files_of(ours), *expired_by_broker(case, store, settings))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    for version in harness.VERSIONS:
        harness.build(version)
    usual = cases(USUAL, tuple(CASES))
    folders = {name: tmp_path_factory.mktemp(name) for name in usual}
    with ThreadPoolExecutor(len(usual)) as executor:
        pending = {name: executor.submit(outcome, CASES[name], folders[name]) for name in usual}
        return {name: one.result() for name, one in pending.items()}


@pytest.mark.parametrize("name", cases(USUAL, tuple(CASES)))
def test_the_files_are_those_that_a_broker_leaves(name: str, outcomes: Mapping[str, Outcome]) -> None:
    found = outcomes[name]
    assert found.brokers < found.before, "the broker has deleted nothing"
    assert found.ours == found.brokers
    segments = {path for path in found.before - found.ours if path.startswith("commitlog/")}
    queue_files = {path for path in found.before - found.ours if path.startswith("consumequeue/")}
    assert queue_files
    assert bool(segments) == ("x" in CASES[name].expired)


@pytest.mark.parametrize("name", ["some-533", "some-49x"])
def test_a_stream_after_a_broker_deleted_messages(name: str, outcomes: Mapping[str, Outcome]) -> None:
    """They are an error with queue and offsets, or left out and counted: of a planned batch, and of the next one."""
    streams, facts = outcomes[name].streams, STORES[CASES[name].name].facts("msg")
    assert streams is not None
    places = {(one["queueId"], one["queueOffset"]): one["offset"] for one in facts if one["topic"] == TOPIC}
    kept = sorted(place for place, offset in places.items() if offset >= 2 * SEGMENT_SIZE)
    assert streams.rows == [kept, kept]
    of_read, of_plan = streams.errors
    assert re.search(rf"queue {TOPIC}/\d of broker broker no longer has queue offset 0: it has \d+ to \d+", of_read)
    assert re.search(rf"queue {TOPIC}/\d .* was read up to 0, and has now \d+ to \d+: \d+ messages expired", of_plan)
    counts = [re.search(r"(\d+) messages (are lost|expired)", text) for text in streams.warnings]
    assert sum(int(count[1]) for count in counts if count is not None) == 2 * (len(places) - len(kept)) > 0


@pytest.mark.parametrize("name", ["some-533", "some-49x"])
def test_a_stream_while_a_broker_deletes_messages(name: str, outcomes: Mapping[str, Outcome]) -> None:
    """The broker answers pulls with later messages, and the first offsets of its queues are still the old ones."""
    streams, facts = outcomes[name].streams, STORES[CASES[name].name].facts("msg")
    assert streams is not None
    places = {(one["queueId"], one["queueOffset"]): one["offset"] for one in facts if one["topic"] == TOPIC}
    assert streams.rows_meanwhile == sorted(place for place, offset in places.items() if offset >= 2 * SEGMENT_SIZE)
    lost = re.search(rf"queue {TOPIC}/\d of broker broker: up to (\d+) messages expired", streams.error_meanwhile)
    assert lost is not None
    assert int(lost[1]) > 0


@pytest.mark.parametrize(
    ("version", "name"), cases([(V5, "workload-533")], [(V5, "workload-533"), (V4, "workload-49x")])
)
def test_a_broker_serves_what_a_killed_run_leaves(version: str, name: str, tmp_path: Path) -> None:
    """The log begins later, and of the queue files, and the index files, some are gone: every message is served."""
    store = STORES[name].unpack(tmp_path)
    files = expire(str(store), min_offset=3 * SEGMENT_SIZE).files
    trees = [file.tree for file in files]
    stop = trees.index("consumequeue") + trees.count("consumequeue") // 2
    assert 0 < stop < len(files) - trees.count("index")
    for file in files[:stop]:
        (store / file.path).unlink()
    kept = [fact for fact in STORES[name].facts("msg") if fact["offset"] >= 3 * SEGMENT_SIZE]
    report = harness.check_served(store, STORES[name].broker_conf, index=True, version=version)
    assert report["messages"] == len(kept)
