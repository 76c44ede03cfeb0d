"""Real brokers boot from repaired stores, and serve every message of the log; a store that is repaired loses nothing.

The check is that of `test_rebuilt.py`: every queue, id and key, and new messages after them.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from spark_mq.format.record import Record
from spark_mq.store.store_state import store_state
from tests.broker import harness
from tests.support.repaired import repair_here
from tests.support.soak import cases
from tests.support.stores import STORES
from tests.support.verified import Bench, check, grave

pytestmark = pytest.mark.broker

V5, V4 = harness.VERSIONS


def bench_of(name: str, folder: Path) -> Bench:
    return Bench(STORES[name], STORES[name].unpack(folder))


def do_damage(bench: Bench) -> None:
    """Damage of every kind that a repair mends, in one store."""
    file, position = bench.unit("SequenceDemo", 0, 7)
    bench.write(file, position, bench.read(file, position, 400)[20:] + bytes(20))
    for queue in ("SequenceDemo/1", "SequenceDemo/2"):
        shutil.rmtree(bench.path / "consumequeue" / queue)
    (bench.path / bench.unit("SequenceDemo", 0, 0)[0]).with_name("notes.txt").write_text("do not delete")
    (bench.path / bench.index_file(2)).unlink()
    bench.write(bench.index_file(0), bench.entry(20), bytes(20))
    os.truncate(bench.path / bench.index_file(-1), 5000)
    os.truncate(bench.path / "checkpoint", 100)
    os.truncate(bench.path / "config/topics.json", 10)


def repaired(bench: Bench) -> None:
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert (report.is_applied, report.left) == (True, ())
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert grave(findings) == []


@pytest.mark.parametrize(
    ("version", "name"), cases([(V5, "workload-533")], [(V5, "workload-533"), (V4, "workload-49x")])
)
def test_a_broker_serves_every_message_of_a_repaired_store(tmp_path: Path, version: str, name: str) -> None:
    bench = bench_of(name, tmp_path)
    do_damage(bench)
    repaired(bench)
    harness.check_served(bench.path, bench.packed.broker_conf, index=True, version=version)


@pytest.mark.parametrize(("version", "name"), cases([(V4, "killed-49x")], [(V5, "killed-533"), (V4, "killed-49x")]))
def test_a_broker_boots_from_a_killed_store_whose_lag_was_repaired(tmp_path: Path, version: str, name: str) -> None:
    """`abort` stays: the boot dispatches a part of the log again, which the queues ignore."""
    bench = bench_of(name, tmp_path)
    repaired(bench)
    assert (bench.path / "abort").exists()
    harness.check_served(bench.path, bench.packed.broker_conf, index=True, version=version)


def test_a_clean_boot_of_5_3_3_loses_nothing_of_a_lagging_queue_that_was_repaired(tmp_path: Path) -> None:
    """`test_boot.py` shows that the same boot of the store as it is loses a message, and shifts two."""
    bench = bench_of("lagging-533", tmp_path)
    assert store_state(str(bench.path), V5, str(bench.packed.broker_conf)).boots[0].lost == 1
    repaired(bench)
    assert not (bench.path / "abort").exists()
    harness.check_served(bench.path, bench.packed.broker_conf, index=True, version=V5)


def test_a_store_that_such_a_boot_shifted_is_put_right(tmp_path: Path) -> None:
    bench = bench_of("lagging-533", tmp_path)
    settings = dict(line.split("=", 1) for line in bench.packed.broker_conf.read_text().splitlines())
    with harness.Broker(V5, bench.path, settings):
        pass
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert {"QUEUE_UNIT_MISPLACED"} <= {finding.code for finding in grave(findings)}
    repaired(bench)
    harness.check_served(bench.path, bench.packed.broker_conf, index=True, version=V5)


def let_old_records_follow(bench: Bench) -> int:
    """Append a message that ends where an old record begins, as a broker can; returns the new live end."""
    (fact,) = bench.packed.facts("store")
    end = int(fact["maxPhyOffset"])
    last = bench.record(max(int(message["offset"]) for message in bench.messages))
    old = next(offset for offset in range(end + 100, end + 10_000) if is_record(bench, offset))
    topic = next(queue for queue in bench.packed.facts("queue") if queue["topic"] == "SequenceDemo")
    new = Record(
        topic=b"SequenceDemo",
        queue_id=topic["queueId"],
        queue_offset=topic["max"],
        commit_log_offset=end,
        store_timestamp=last.store_timestamp + 1,
        born_timestamp=last.store_timestamp,
        store_host=last.store_host,
        born_host=last.born_host,
    )
    new = replace(new, body=b"x" * (old - end - new.size))
    file, position = bench.segment(end)
    bench.write(file, position, new.encode())
    return old


def is_record(bench: Bench, offset: int) -> bool:
    file, position = bench.segment(offset)
    size = int.from_bytes(bench.read(file, position, 4), "big")
    return bench.read(file, position + 4, 4) == b"\xda\xa3\x20\xa7" and 90 < size < 5000


def live_end_after_a_boot(bench: Bench, version: str) -> int:
    """The end of the log as the Java store has it after its start."""
    (fact,) = harness.facts(bench.path, bench.packed.broker_conf, version)["store"]
    return int(fact["maxPhyOffset"])


@pytest.mark.parametrize(("version", "name"), cases([(V5, "stale-533")], [(V5, "stale-533"), (V4, "stale-49x")]))
def test_a_boot_revives_old_records_unless_they_were_repaired(tmp_path: Path, version: str, name: str) -> None:
    bench = bench_of(name, tmp_path)
    end = let_old_records_follow(bench)
    assert live_end_after_a_boot(bench, version) > end
    repaired(bench)
    assert live_end_after_a_boot(bench, version) == end
    harness.check_served(bench.path, bench.packed.broker_conf, index=True, version=version)
