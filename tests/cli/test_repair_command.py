"""`spark-mq repair`: the plan, the repair by both engines, and the undo."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from spark_mq.cli.exit_status import DAMAGED, FAILED, FOUND
from spark_mq.cli.main import main
from spark_mq.format.amounts import size_text
from spark_mq.io.location import Location
from spark_mq.store.store_lock import store_lock
from spark_mq.store.store_state import store_state
from spark_mq.store.verdict import verdict
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of
from tests.support.verified import Bench


@pytest.fixture
def bench(unpacked: Unpack, tmp_path: Path) -> Bench:
    packed = RealStore("workload-533", OWN_STORES)
    return Bench(packed, Path(shutil.copytree(unpacked(packed), tmp_path / "store")))


@pytest.fixture
def repair(bench: Bench) -> Callable[..., int]:
    """Runs the command."""
    common = ["repair", str(bench.path), "--broker-conf", str(bench.packed.broker_conf), "--quiet"]
    return lambda *arguments: main([*common, *map(str, arguments)])


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree_of(folder).items() if not name.startswith((".spark_mq", "lock"))}


def test_a_plan_a_repair_an_undo_and_another_folder(
    repair: Callable[..., int],
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The repair into another folder by tasks of Spark, in the tests' own session; all others without Spark."""

    @contextmanager
    def session(name: str, **settings: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("spark_mq.cli.spark.spark_session", session)
    original = files_of(bench.path)
    unit, position = bench.unit("SequenceDemo", 0, 7)
    bench.flip(unit, position + 6)
    shutil.rmtree(bench.path / "consumequeue/OrderEvents")
    lost = bench.index_file(2)
    (bench.path / lost).unlink()
    damaged = files_of(bench.path)
    changed = sorted(name for name in original if damaged.get(name) != original[name])

    assert repair() == FOUND
    text = capsys.readouterr().out
    assert f"verdict: a plan for {len(changed)} files; nothing was changed" in text
    assert "QUEUE_UNIT_WRONG 1" in text
    assert "the next boot, if nothing is repaired:" in text
    assert files_of(bench.path) == damaged

    output = tmp_path / "output"
    assert repair("--output", output, "--apply", "--json", "--engine", "spark") == FOUND
    report = json.loads(capsys.readouterr().out)
    assert report["before"]["engine"] == "spark"
    assert sorted(action["file"] for action in report["actions"]) == changed
    assert files_of(output) == {name: original[name] for name in changed}
    assert files_of(bench.path) == damaged

    assert repair("--apply") == FOUND
    text = capsys.readouterr().out
    assert f"verdict: {len(changed)} files repaired" in text
    assert "check             sound" in text
    assert files_of(bench.path) == original
    assert repair() == FOUND
    assert "verdict: nothing to repair: the store is sound" in capsys.readouterr().out

    assert repair("--undo") == FOUND
    assert f"{len(changed)} changes of " in capsys.readouterr().out
    assert files_of(bench.path) == original
    assert repair("--undo", "--apply", "--json") == FOUND
    assert sorted(change["file"] for change in json.loads(capsys.readouterr().out)["changes"]) == changed
    assert files_of(bench.path) == damaged


def test_what_cannot_be_repaired_is_named(
    repair: Callable[..., int], bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    fact = next(fact for fact in bench.messages if fact["bodyLenRaw"] > 20)
    offset = int(fact["offset"])
    file, position = bench.segment(offset)
    bench.flip(file, position + 9)
    assert repair("--apply") == DAMAGED
    text = capsys.readouterr().out
    queue = f"topic {fact['topic']} queue {fact['queueId']}"
    place = f"{file}, byte {position}, {queue}, commit log offset {offset}"
    assert f"not repaired: RECORD_BODY_CRC 1\n  where           {place}\n" in text
    assert "verdict: nothing to repair; 1 kind of findings cannot be repaired" in text


def test_a_plan_says_how_much_room_it_needs(
    repair: Callable[..., int], bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = next(iter((bench.path / "consumequeue" / "OrderEvents" / "0").iterdir()))
    size = queue.stat().st_size
    queue.unlink()
    assert repair("--json") == FOUND
    plan = json.loads(capsys.readouterr().out)
    assert plan["room_needed"] == size
    assert plan["room_free"] > size
    assert repair() == FOUND
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"room              about {size_text(size)}; ") for line in lines)
    assert any(line.startswith("time              ") for line in lines)


def test_a_bak_that_is_put_back_keeps_its_time(repair: Callable[..., int], bench: Bench) -> None:
    file = bench.path / "config" / "consumerOffset.json"
    kept = file.with_name("consumerOffset.json.bak")
    os.utime(kept, (1_700_000_000, 1_700_000_000))
    file.write_text("{")
    assert repair("--apply") == FOUND
    assert file.read_bytes() == kept.read_bytes()
    assert file.stat().st_mtime == 1_700_000_000


def test_records_are_taken_out_only_when_told(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(bench.path)
    command = ["repair", str(bench.path), "--cut-log-at", "524288"]
    assert main(command) == FOUND
    assert "from commit log offset 524288 on, would be moved into a backup" in capsys.readouterr().out
    assert files_of(bench.path) == before
    assert main([*command, "--apply"]) == FOUND
    assert "run `spark-mq repair STORE --apply` now" in capsys.readouterr().out
    assert set(before) - set(files_of(bench.path)) == {f"commitlog/{524288:020d}"}
    assert main(["repair", str(bench.path), "--undo", "--apply", "--json"]) == FOUND
    assert files_of(bench.path) == before


def test_a_store_with_a_broker_is_not_changed(
    repair: Callable[..., int], bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    (bench.path / bench.index_file(2)).unlink()
    before = files_of(bench.path)
    with store_lock(Location.resolve(str(bench.path))):
        assert repair("--apply") == FAILED
        assert main(["repair", str(bench.path), "--cut-log-at", "524288", "--apply"]) == FAILED
    assert capsys.readouterr().err.count("is locked: a broker runs on this store") == 2
    assert files_of(bench.path) == before


@pytest.mark.parametrize("name", ["killed-533", "lagging-533", "stale-49x"])
def test_the_log_is_not_read_again_for_the_boot_after_a_repair(
    name: str, unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check of the repair has shown what `state --full` reads the whole log for."""
    packed = RealStore(name, OWN_STORES)
    store = shutil.copytree(unpacked(packed), tmp_path / "store")
    with mock.patch("spark_mq.store.recovery.next_recoveries") as read:
        assert main(["repair", str(store), "--broker-conf", str(packed.broker_conf), "--quiet", "--apply"]) == FOUND
    assert not read.called
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    boot = said[said.index("the next boot, with the store as it is now:") + 1 :]
    assert boot == verdict(store_state(str(store), None, str(packed.broker_conf), full=True))
    assert "loses nothing" in boot[-1]
