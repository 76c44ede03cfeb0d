"""A store to which a broker appends while it is checked: what is newer than the end that was seen is left out."""

from __future__ import annotations

import struct
from contextlib import nullcontext
from pathlib import Path
from threading import Timer

import pytest

from spark_mq.io.location import Location
from spark_mq.job.tasks import LocalTasks
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.store_lock import store_lock
from spark_mq.verifier.check import VerifyRequest, check_store
from spark_mq.verifier.codes import CODES, Severity
from tests.support.stores import OWN_STORES, RealStore, Unpack
from tests.support.verified import Appending, Bench


@pytest.mark.parametrize(("appends", "is_silent"), [(True, True), (False, False)])
def test_what_is_newer_than_the_end_is_left_out(
    appends: bool, is_silent: bool, unpacked: Unpack, tmp_path: Path
) -> None:
    """Queues and index have units and entries of messages that come into the log only later, or never."""
    bench = Bench.of(unpacked(RealStore("workload-533", OWN_STORES)), "workload-533", tmp_path)
    last = sorted(fact["offset"] for fact in bench.messages)[-20]
    file, position = bench.segment(last)
    whole = (bench.path / file).read_bytes()
    bench.write(file, position, bytes(len(whole) - position))
    bench.write("checkpoint", 0, struct.pack(">qqqqq", 0, 0, 0, 0, 0))
    for name in ("consumerOffset.json", "delayOffset.json"):
        (bench.path / "config" / name).unlink()
        (bench.path / "config" / f"{name}.bak").unlink()
    (bench.path / "abort").touch()

    def append() -> None:
        if appends:
            (bench.path / file).write_bytes(whole)

    work = tmp_path / "work"
    work.mkdir()
    conf = BrokerConf.of(str(bench.packed.broker_conf))
    request = VerifyRequest(Location.resolve(str(bench.path)), conf)
    checked = check_store(request, Location.resolve(str(work)), Appending(LocalTasks(1), append=append))
    found = {code for code in checked.report.counts if CODES[code].severity != Severity.NOTE}
    assert (found == set()) == is_silent, found


@pytest.mark.parametrize("is_running", [True, False])
def test_a_broker_that_runs_has_time_to_write_units(is_running: bool, unpacked: Unpack, tmp_path: Path) -> None:
    """The log is whole, and a queue's first file comes a moment after its messages."""
    bench = Bench.of(unpacked(RealStore("workload-533", OWN_STORES)), "workload-533", tmp_path)
    (bench.path / "abort").touch()
    folder = bench.path / "consumequeue" / "RetryDemo" / "0"
    later = tmp_path / "later"
    folder.rename(later)
    timer = Timer(0.3, lambda: later.rename(folder))
    work = tmp_path / "work"
    work.mkdir()
    conf, store = BrokerConf.of(str(bench.packed.broker_conf)), Location.resolve(str(bench.path))
    runner = Appending(LocalTasks(1), append=timer.start if is_running else list)
    with store_lock(store) if is_running else nullcontext():
        checked = check_store(VerifyRequest(store, conf), Location.resolve(str(work)), runner)
    assert ("QUEUE_MISSING" in checked.report.counts) != is_running
