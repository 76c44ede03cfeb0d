"""A store to which a broker appends while it is checked: what is newer than the end that was seen is left out."""

from __future__ import annotations

import struct
from contextlib import nullcontext
from pathlib import Path
from threading import Timer

import pytest

from spark_mq.io.location import Location
from spark_mq.store.store_lock import store_lock
from tests.support.verified import Bench, check, grave


@pytest.mark.parametrize(("appends", "is_silent"), [(True, True), (False, False)])
def test_what_is_newer_than_the_end_is_left_out(appends: bool, is_silent: bool, bench: Bench) -> None:
    """Queues and index have units and entries of messages that come into the log only later, or never."""
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

    found = grave(check(bench.path, bench.packed.broker_conf, append=append)[1])
    assert (found == []) == is_silent, found


@pytest.mark.parametrize("is_running", [True, False])
def test_a_broker_that_runs_has_time_to_write_units(is_running: bool, bench: Bench, tmp_path: Path) -> None:
    """The log is whole, and a queue's first file comes a moment after its messages."""
    (bench.path / "abort").touch()
    folder = bench.path / "consumequeue" / "RetryDemo" / "0"
    later = tmp_path / "later"
    folder.rename(later)
    timer = Timer(0.3, lambda: later.rename(folder))
    with store_lock(Location.resolve(str(bench.path))) if is_running else nullcontext():
        report, _ = check(bench.path, bench.packed.broker_conf, append=timer.start if is_running else list)
    assert ("QUEUE_MISSING" in report.counts) != is_running
