"""The command and the job, each in a process of its own, as a user starts them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.format.index_file import read_entries
from tests.grown_stores import cut_log, expire, grow_log, record_ends
from tests.index_stores import layout_of
from tests.real_stores import OWN_STORES, PROJECT, RealStore, index_of, stores_in, tree_of

Unpack = Callable[[RealStore], Path]
STORE = next((store for store in stores_in(OWN_STORES) if store.name.startswith("workload")), None)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable}


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False, timeout=300)


def spark_mq(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "spark_mq.cli.main", *arguments]


@pytest.fixture(scope="module")
def store(unpacked: Unpack) -> Path:
    assert STORE is not None
    return unpacked(STORE)


def test_the_command_rebuilds_and_reports(store: Path, tmp_path: Path) -> None:
    assert STORE is not None
    conf = ["--broker-conf", str(STORE.broker_conf)]
    done = run(spark_mq("rebuild", str(store), "--output", str(tmp_path), "--json", "--quiet", *conf))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["messages"] == len(STORE.facts("msg"))
    assert tree_of(tmp_path / "consumequeue") == tree_of(store / "consumequeue")
    assert index_of(tmp_path) == index_of(store)


def test_an_error_is_one_line_and_exit_status_1(tmp_path: Path) -> None:
    done = run(spark_mq("rebuild", str(tmp_path / "nothing"), "--quiet"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        f"spark-mq: {tmp_path / 'nothing'} does not exist: give the broker's store directory (storePathRootDir)"
    )
    assert "Traceback" not in done.stderr


def test_unknown_arguments_exit_with_status_2() -> None:
    assert run(spark_mq("rebuild", "store", "--frobnicate")).returncode == 2


def test_killed_at_random_moments_and_run_again(store: Path, tmp_path: Path) -> None:
    """Under a final name there is a whole file or none, and the next run comes to the same bytes."""
    assert STORE is not None
    queues, index = tree_of(store / "consumequeue"), index_of(store)
    output = tmp_path / "store"
    shutil.copytree(store, output)
    command = spark_mq(
        "rebuild", str(output), "--replace", "--split-size", "16k", "--broker-conf", str(STORE.broker_conf)
    )
    for moment in kill_moments():
        killed(command, moment)
        for name, wanted in (("consumequeue", list(queues.values())), ("index", index)):
            kept = output / name
            aside = output / ".spark_mq" / f"replaced-{name}"
            found = sorted(tree_of(kept if kept.is_dir() else aside).items())
            assert [content for _, content in found] == wanted
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert tree_of(output / "consumequeue") == queues
    assert index_of(output) == index
    assert not (output / ".spark_mq").exists()


def test_killed_at_random_moments_and_resumed(store: Path, tmp_path: Path) -> None:
    """While the log grows, and loses its first segment: what is there is always the beginning of what comes."""
    assert STORE is not None
    output, ends = tmp_path / "store", record_ends(STORE)
    cut_log(store, output, ends[len(ends) // 2])
    whole = {name: data for name, data in tree_of(store).items() if name.startswith("consumequeue/")}
    command = spark_mq(
        "rebuild", str(output), "--resume", "--split-size", "16k", "--broker-conf", str(STORE.broker_conf)
    )
    done = run(command)
    assert done.returncode == 0, done.stderr
    moments = kill_moments()
    for number, moment in enumerate(moments):
        grow_log(store, output, ends[len(ends) // 2 + len(ends) * number // len(moments) // 2])
        expire(output, 1)
        killed([*command, "--quiet"], moment)
        for name, data in tree_of(output).items():
            assert not name.startswith("consumequeue/") or whole[name].startswith(data.rstrip(b"\0")), name
        for data, wanted in zip(index_of(output), index_of(store), strict=False):
            entries = read_entries(data, layout_of(STORE), "")
            assert entries.tobytes() == read_entries(wanted, layout_of(STORE), "")[: entries.size].tobytes()
    grow_log(store, output, ends[-1])
    expire(output, 1)
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert {name: data for name, data in tree_of(output).items() if name.startswith("consumequeue/")} == whole
    assert index_of(output) == index_of(store)
    assert not (output / ".spark_mq").exists()


def kill_moments() -> list[float]:
    """Seconds from a job's start to its end by SIGKILL, for each kill of a test."""
    return [random.Random(kill).uniform(4.0, 14.0) for kill in range(int(os.environ.get("SPARK_MQ_KILLS", "1")))]


def killed(command: list[str], moment: float) -> None:
    """Run a command, and kill it and all its processes."""
    process = subprocess.Popen(
        command, env=environment(), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(moment)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
