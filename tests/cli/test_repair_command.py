"""`spark-mq repair`: the plan, the repair by both engines, and the undo."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from spark_mq.cli.exit_status import DAMAGED, FAILED
from spark_mq.format.amounts import size_text
from spark_mq.io.location import Location
from spark_mq.store.store_lock import store_lock
from spark_mq.store.store_state import store_state
from spark_mq.store.verdict import verdict
from tests.support.said import Run
from tests.support.stores import OWN_STORES, RealStore, Unpack, files_of
from tests.support.verified import Bench


@pytest.fixture
def bench(unpacked: Unpack, tmp_path: Path) -> Bench:
    packed = RealStore("workload-533", OWN_STORES)
    return Bench(packed, Path(shutil.copytree(unpacked(packed), tmp_path / "store")))


@pytest.fixture
def repair(bench: Bench, run: Run) -> Run:
    """Runs the command."""
    return partial(run, "repair", bench.path, "--broker-conf", bench.packed.broker_conf, "--quiet")


def test_a_plan_a_repair_an_undo_and_another_folder(
    repair: Run, bench: Bench, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair into another folder by tasks of Spark, in the tests' own session; all others without Spark."""
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", lambda *_, **_how: nullcontext(spark))
    original = files_of(bench.path)
    unit, position = bench.unit("SequenceDemo", 0, 7)
    bench.flip(unit, position + 6)
    shutil.rmtree(bench.path / "consumequeue/OrderEvents")
    lost = bench.index_file(2)
    (bench.path / lost).unlink()
    damaged = files_of(bench.path)
    changed = sorted(name for name in original if damaged.get(name) != original[name])

    text = repair().out
    assert f"verdict: a plan for {len(changed)} files; nothing was changed" in text
    assert "QUEUE_UNIT_WRONG 1" in text
    assert "the next boot, if nothing is repaired:" in text
    assert files_of(bench.path) == damaged

    output = tmp_path / "output"
    report = repair("--output", output, "--apply", "--json", "--engine", "spark").report
    assert report["before"]["engine"] == "spark"
    assert sorted(action["file"] for action in report["actions"]) == changed
    assert files_of(output) == {name: original[name] for name in changed}
    assert files_of(bench.path) == damaged

    text = repair("--apply").out
    assert f"verdict: {len(changed)} files repaired" in text
    assert "check             sound" in text
    assert files_of(bench.path) == original
    assert "verdict: nothing to repair: the store is sound" in repair().out

    assert f"{len(changed)} changes of " in repair("--undo").out
    assert files_of(bench.path) == original
    said = repair("--undo", "--apply", "--json")
    assert sorted(change["file"] for change in said.report["changes"]) == changed
    assert files_of(bench.path) == damaged


def test_what_cannot_be_repaired_is_named(repair: Run, bench: Bench) -> None:
    fact = next(fact for fact in bench.messages if fact["bodyLenRaw"] > 20)
    offset = int(fact["offset"])
    file, position = bench.segment(offset)
    bench.flip(file, position + 9)
    text = repair("--apply", status=DAMAGED).out
    queue = f"topic {fact['topic']} queue {fact['queueId']}"
    place = f"{file}, byte {position}, {queue}, commit log offset {offset}"
    assert f"not repaired: RECORD_BODY_CRC 1\n  where           {place}\n" in text
    assert "verdict: nothing to repair; 1 kind of findings cannot be repaired" in text


def test_a_plan_says_how_much_room_it_needs(repair: Run, bench: Bench) -> None:
    queue = next(iter((bench.path / "consumequeue" / "OrderEvents" / "0").iterdir()))
    size = queue.stat().st_size
    queue.unlink()
    plan = repair("--json").report
    assert plan["room_needed"] == size
    assert plan["room_free"] > size
    lines = repair().lines
    assert any(line.startswith(f"room              about {size_text(size)}; ") for line in lines)
    assert any(line.startswith("time              ") for line in lines)


def test_a_bak_that_is_put_back_keeps_its_time(repair: Run, bench: Bench) -> None:
    file = bench.path / "config" / "consumerOffset.json"
    kept = file.with_name("consumerOffset.json.bak")
    os.utime(kept, (1_700_000_000, 1_700_000_000))
    file.write_text("{")
    repair("--apply")
    assert file.read_bytes() == kept.read_bytes()
    assert file.stat().st_mtime == 1_700_000_000


def test_records_are_taken_out_only_when_told(bench: Bench, run: Run) -> None:
    before = files_of(bench.path)
    command = ["repair", str(bench.path), "--cut-log-at", "524288"]
    assert "from commit log offset 524288 on, would be moved into a backup" in run(*command).out
    assert files_of(bench.path) == before
    assert "run `spark-mq repair STORE --apply` now" in run(*command, "--apply").out
    assert set(before) - set(files_of(bench.path)) == {f"commitlog/{524288:020d}"}
    run("repair", bench.path, "--undo", "--apply", "--json")
    assert files_of(bench.path) == before


def test_a_store_with_a_broker_is_not_changed(repair: Run, bench: Bench, run: Run) -> None:
    (bench.path / bench.index_file(2)).unlink()
    before = files_of(bench.path)
    with store_lock(Location.resolve(str(bench.path))):
        for said in (
            repair("--apply", status=FAILED),
            run("repair", bench.path, "--cut-log-at", "524288", "--apply", status=FAILED),
        ):
            assert "is locked: a broker runs on this store" in said.err
    assert files_of(bench.path) == before


@pytest.mark.parametrize("name", ["killed-533", "lagging-533", "stale-49x"])
def test_the_log_is_not_read_again_for_the_boot_after_a_repair(
    name: str, unpacked: Unpack, tmp_path: Path, run: Run
) -> None:
    """The check of the repair has shown what `state --full` reads the whole log for."""
    packed = RealStore(name, OWN_STORES)
    store = shutil.copytree(unpacked(packed), tmp_path / "store")
    with mock.patch("spark_mq.store.recovery.next_recoveries") as read:
        repaired = run("repair", store, "--broker-conf", packed.broker_conf, "--quiet", "--apply")
    assert not read.called
    said = [line.strip() for line in repaired.lines]
    boot = said[said.index("the next boot, with the store as it is now:") + 1 :]
    assert boot == verdict(store_state(str(store), None, str(packed.broker_conf), full=True))
    assert "loses nothing" in boot[-1]
