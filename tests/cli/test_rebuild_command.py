"""The command and the job, as a user starts them: with Spark, with tasks in this process, or in one of their own."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from spark_mq.cli.exit_status import DAMAGED, FAILED, NOT_UNDERSTOOD
from spark_mq.format.index_file import read_entries
from spark_mq.io.location import Location
from spark_mq.job.output_committer import OutputCommitter, output_lock
from spark_mq.job.tasks import ENGINES
from spark_mq.testing import LogWriter
from tests.support.index_stores import layout_of
from tests.support.paused_process import environment, killed, paused, spark_mq
from tests.support.rebuilt import rebuild_here, rebuild_process
from tests.support.said import Run
from tests.support.soak import SOAKS
from tests.support.store_history import cut_log, expire, grow_log, record_ends
from tests.support.stores import OWN_STORES, Unpack, index_of, stores_in, tree_of

STORE = next((store for store in stores_in(OWN_STORES) if store.name.startswith("workload")), None)


SETTINGS: dict[str, Any] = {"split_size": 16 << 10, "broker_conf": "" if STORE is None else str(STORE.broker_conf)}
"""Options of a job that `finish` runs again."""

AS_FINISHED = ["--split-size", "16k", "--broker-conf", SETTINGS["broker_conf"]]
"""The same, as words of a command."""


@pytest.fixture(scope="module")
def store(unpacked: Unpack) -> Path:
    assert STORE is not None
    return unpacked(STORE)


@pytest.fixture
def spark_command(run: Run, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in the tests' own session."""
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", lambda *_, **_how: nullcontext(spark))
    return partial(run, "rebuild", "--engine", "spark")


@pytest.fixture
def command(run: Run) -> Run:
    """Runs the command as it is, without Spark."""
    return partial(run, "rebuild")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_command_rebuilds_and_reports(
    engine: str, request: pytest.FixtureRequest, store: Path, tmp_path: Path
) -> None:
    assert STORE is not None
    command: Run = request.getfixturevalue("spark_command" if engine == "spark" else "command")
    said = command(store, "--output", tmp_path, "--json", "--quiet", "--broker-conf", STORE.broker_conf)
    report = said.report
    assert report["engine"] == engine
    assert report["messages"] == len(STORE.facts("msg"))
    assert f"index files: 100 slots and 500 entries each ({STORE.broker_conf})" in report["settings"]
    assert tree_of(tmp_path / "consumequeue") == tree_of(store / "consumequeue")
    assert index_of(tmp_path) == index_of(store)


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(
    command: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full index files of the store show their slots and entries, so no settings file is needed."""
    assert STORE is not None
    before = tree_of(store)
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", mock.Mock(side_effect=AssertionError("Spark starts")))
    plan = command(store, "--replace", "--dry-run", "--json").report
    assert plan["replaced"] == plan["trees"] == ["consumequeue", "index"]
    assert plan["segments"] == len(list((store / "commitlog").iterdir()))
    assert [setting for setting in plan["settings"] if "100 slots and 500 entries" in setting]
    assert 0 < plan["room_needed"] < plan["room_free"]
    said = command(store, "--resume", "--topic", "OrderEvents", "--dry-run")
    assert f"continues  {store}/consumequeue/OrderEvents" in said.out
    assert tree_of(store) == before


def test_unknown_arguments_exit_with_status_2() -> None:
    command = spark_mq("rebuild", "store", "--frobnicate")
    assert subprocess.run(command, capture_output=True, env=environment(), check=False).returncode == NOT_UNDERSTOOD


KILLS = 5 if SOAKS else 1
"""How often a job is killed at each kind of moment."""


@dataclass(frozen=True)
class Moment:
    """A moment of a job: the n-th call of a function, of those that get an argument with `text` in it."""

    function: str
    text: str = ""
    most: int = 1
    """The calls that every job makes."""

    def pause(self, number: int) -> str:
        """What `SPARK_MQ_PAUSE` says for the n-th call."""
        return f"{self.function}:{number}:{self.text}"


MOMENTS = {
    "staging": Moment("spark_mq.job.progress:mark_done", "/dispatch", 4),
    "planning": Moment("spark_mq.indexer.queue_plan:QueuePlan.assign"),
    "writing queues": Moment("spark_mq.io.publish:publish", "/.spark_mq/consumequeue/", 5),
    "writing index": Moment("spark_mq.io.publish:publish", "/.spark_mq/index/", 2),
    "publishing": Moment("os:rename", "/.spark_mq/", 4),
    "clearing": Moment("os:unlink", "/.spark_mq/", 50),
}


def kills(*kinds: str) -> list[tuple[str, str]]:
    """The moments at which a test kills, by kind: one of each of `kinds`; in a soak many of all kinds, shuffled."""
    chance = random.Random(14)
    chosen = [kind for kind in (MOMENTS if SOAKS else kinds) for _ in range(KILLS)]
    if SOAKS:
        chance.shuffle(chosen)
    return [(kind, MOMENTS[kind].pause(chance.randint(1, MOMENTS[kind].most))) for kind in chosen]


def finish(store: Path, output: Path | None = None, **options: Any) -> None:
    """What the same command does when nothing kills it. It runs in this process, whose start costs nothing."""
    rebuild_here(store, output, **SETTINGS, **options)


def test_killed_at_every_kind_of_moment_and_run_again(store: Path, tmp_path: Path) -> None:
    """Under a final name there is a whole file or none, and the next run gives the same bytes. No Spark here."""
    assert STORE is not None
    queues, index = tree_of(store / "consumequeue"), index_of(store)
    output = tmp_path / "store"
    shutil.copytree(store, output)
    command = rebuild_process(output, replace=True, **SETTINGS)
    # The first one leaves a tree that is set aside, and something to clear.
    for _, pause in [("publishing", MOMENTS["publishing"].pause(2)), *kills()]:
        killed(command, pause, tmp_path)
        for name, expected in (("consumequeue", list(queues.values())), ("index", index)):
            kept = output / name
            aside = output / ".spark_mq" / "kept-1" / name
            found = sorted(tree_of(kept if kept.is_dir() else aside).items())
            assert [content for _, content in found] == expected
    finish(output, replace=True)
    assert tree_of(output / "consumequeue") == queues
    assert index_of(output) == index
    assert not (output / ".spark_mq").exists()


@pytest.mark.cluster
def test_killed_at_every_kind_of_moment_and_resumed(store: Path, tmp_path: Path) -> None:
    """While the log grows, and loses its first segment: what is there is always the beginning of what comes.

    The command, whose tasks are processes of Spark.
    """
    assert STORE is not None
    output, ends = tmp_path / "store", record_ends(STORE)
    cut_log(store, output, ends[len(ends) // 2])
    whole = {name: data for name, data in tree_of(store).items() if name.startswith("consumequeue/")}
    command = spark_mq("rebuild", str(output), "--resume", "--engine", "spark", *AS_FINISHED)
    finish(output, resume=True)
    # A job that continues makes few of the calls that `MOMENTS` counts; the first it always makes.
    chosen = [kind for kind, _ in kills("writing queues") if kind != "clearing"]
    for number, pause in enumerate(MOMENTS[kind].pause(1) for kind in chosen):
        grow_log(store, output, ends[len(ends) // 2 + len(ends) * (number + 1) // (len(chosen) + 1) // 2])
        expire(output, 1)
        killed([*command, "--quiet"], pause, tmp_path)
        for name, data in tree_of(output).items():
            assert not name.startswith("consumequeue/") or whole[name].startswith(data.rstrip(b"\0")), name
        for data, expected in zip(index_of(output), index_of(store), strict=False):
            entries = read_entries(data, layout_of(STORE), "")
            assert entries.tobytes() == read_entries(expected, layout_of(STORE), "")[: entries.size].tobytes()
    grow_log(store, output, ends[-1])
    expire(output, 1)
    finish(output, resume=True)
    assert {name: data for name, data in tree_of(output).items() if name.startswith("consumequeue/")} == whole
    assert index_of(output) == index_of(store)
    assert not (output / ".spark_mq").exists()


def test_killed_while_the_work_folder_is_cleared_and_resumed(store: Path, tmp_path: Path) -> None:
    """The manifest goes first: what is left of a folder that was half cleared is never taken for complete.

    No Spark here.
    """
    left = tmp_path / "left"
    with mock.patch.object(OutputCommitter, "commit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        finish(store, left)
    assert (left / ".spark_mq" / "manifest.json").exists()
    for number in range(50 if SOAKS else 1):
        output = tmp_path / f"out{number}"
        shutil.copytree(left, output)
        before = len(tree_of(output))
        killed(
            rebuild_process(store, output, **SETTINGS), MOMENTS["clearing"].pause(2 + number if SOAKS else 9), tmp_path
        )
        assert 0 < len(tree_of(output)) < before
        finish(store, output, resume=True)
        assert tree_of(output / "consumequeue") == tree_of(store / "consumequeue")
        assert index_of(output) == index_of(store)
        shutil.rmtree(output)


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.cluster)])
def test_an_interrupt_is_one_line_and_leaves_the_work(engine: str, store: Path, tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to every process of the command."""
    output = tmp_path / "out"
    command = spark_mq("rebuild", str(store), "--output", str(output), "--engine", engine, *AS_FINISHED)
    with paused(command, MOMENTS["writing queues"].pause(2), tmp_path) as process:
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    said = (tmp_path / "output").read_text()
    assert said.splitlines()[-1] == f"spark-mq: interrupted; --resume continues with what is in {output}/.spark_mq"
    assert "Traceback" not in said
    assert "ERROR" not in said
    finish(store, output, resume=True)
    assert tree_of(output / "consumequeue") == tree_of(store / "consumequeue")
    assert not (output / ".spark_mq").exists()


def test_skipped_damage_has_a_status_of_its_own_and_names_queue_offsets(command: Run, tmp_path: Path) -> None:
    log = LogWriter(segment_size=1 << 16)
    for number in range(6):
        log.append(1_795_000_000_000 + number, queue_offset=number)
    log.segments[0][log.offsets[2] + 4] ^= 0xFF
    log.write(tmp_path / "store")
    words = [tmp_path / "store", "--output", tmp_path / "out", "--quiet", "--assume-defaults"]
    command(*words, status=FAILED)
    out = command(*words, "--mode", "permissive", status=DAMAGED).out
    assert re.search(r"skipped +\S+/0: queue offset 2 has no message$", out, re.MULTILINE), out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that is too small for a rebuild."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small disk needs the right to mount one (tmpfs)")
    yield disk
    # A Python process of Spark can still have a file open there.
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_is_one_line_that_says_how_to_continue(spark_command: Run, store: Path, small_disk: Path) -> None:
    """A task of Spark meets it."""
    output = small_disk / "out"
    (line,) = spark_command(store, "--output", output, "--quiet", *AS_FINISHED, status=FAILED).err.splitlines()
    assert line.startswith(f"spark-mq: the disk of {output} is full, ")
    assert re.search(r"the job needs about [\d.]+ [KM]iB there in all\. .*--resume", line)
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    finish(store, output, resume=True)
    assert tree_of(output / "consumequeue") == tree_of(store / "consumequeue")


def test_the_second_job_on_an_output_is_refused(command: Run, store: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with output_lock(Location.resolve(str(output))):
        said = command(store, "--output", output, "--quiet", *AS_FINISHED, status=FAILED)
        assert list(output.iterdir()) == []
    (line,) = said.err.splitlines()
    assert line.startswith(f"spark-mq: {output}: another job writes into this folder")


def test_a_full_or_read_only_disk_leaves_the_files_that_would_be_replaced(
    command: Run, store: Path, small_disk: Path
) -> None:
    """In place, with `--replace`: first the disk is full, then read-only, then neither."""
    place = small_disk / "store"

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", small_disk], check=True)

    remount("size=50m")
    shutil.copytree(store, place)
    (place / "lock").write_bytes(b"lock")
    before = tree_of(place)
    remount(f"size={(shutil.disk_usage(small_disk).used >> 10) + 60}k")
    words = [place, "--replace", "--quiet", *AS_FINISHED]
    assert command(*words, status=FAILED).err.startswith(f"spark-mq: the disk of {place} is full, ")
    assert {path: data for path, data in tree_of(place).items() if not path.startswith(".spark_mq/")} == before
    remount("ro,size=50m")
    assert "cannot be opened: Read-only file system" in command(*words, status=FAILED).err
    assert {path: data for path, data in tree_of(place).items() if not path.startswith(".spark_mq/")} == before
    remount("rw,size=50m")
    finish(place, replace=True)
    after = tree_of(place)
    assert {path: data for path, data in after.items() if path.startswith("consumequeue/")} == {
        path: data for path, data in before.items() if path.startswith("consumequeue/")
    }
    assert index_of(place) == index_of(store)
    assert not (place / ".spark_mq").exists()
