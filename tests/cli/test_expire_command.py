"""`spark-mq expire`: what it prints, and that a killed deletion leaves a store that is whole, and can be finished."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.exit_status import FAILED
from spark_mq.store.store_lock import LOCK
from tests.support.paused_process import paused, spark_mq
from tests.support.said import Run
from tests.support.soak import SOAKS
from tests.support.stores import WORKLOAD, Unpack, tree_of

RULE = ("--min-offset", "524288")
KILLS = 50 if SOAKS else 5
MOMENTS = {
    "before a segment is deleted": ("os:unlink", "/commitlog/", 4),
    "before a queue file is deleted": ("os:unlink", "/consumequeue/", 7),
    "before an index file is deleted": ("os:unlink", "/index/", 7),
    "before a deletion is on the disk": ("spark_mq.expirer:flush_to_disk", "", 18),
    "before the plan": ("spark_mq.expirer:plan_expiry", "", 1),
}
"""By moment: a function, a text in its argument, and the number of such calls."""


def moments() -> list[tuple[str, str, int]]:
    """The moments at which a process is killed: each kind once, in a soak 50 of all kinds."""
    chance = random.Random(19)
    kinds = list(MOMENTS) if not SOAKS else chance.choices(list(MOMENTS), k=KILLS)
    return [(kind, MOMENTS[kind][0], chance.randint(1, MOMENTS[kind][2])) for kind in kinds]


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))


@pytest.fixture(scope="module")
def plan(unpacked: Unpack) -> list[str]:
    """The files that are deleted, in this order."""
    from spark_mq import expire

    return [file.path for file in expire(str(unpacked(WORKLOAD)), min_offset=524_288).files]


def test_the_moments_are_all_there_are(plan: list[str]) -> None:
    for function, text, calls in MOMENTS.values():
        if function == "os:unlink":
            assert sum(text in f"/{path}" for path in plan) == calls
    assert MOMENTS["before a deletion is on the disk"][2] == len(plan)
    assert len(moments()) == KILLS


@pytest.mark.parametrize(("kind", "function", "number"), moments())
def test_killed_at_a_moment_and_run_again(
    kind: str, function: str, number: int, store: Path, plan: list[str], tmp_path: Path, run: Run
) -> None:
    """What is gone is the beginning of the plan; files that are there are unchanged; the next run deletes the rest."""
    before = tree_of(store)
    command = ["expire", str(store), *RULE, "--apply"]
    with paused(spark_mq(*command), f"{function}:{number}:{MOMENTS[kind][1]}", tmp_path) as process:
        assert f"{store}/{LOCK} is locked" in run(*command, status=FAILED).err  # the paused process has the lock
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL
    left = tree_of(store)
    gone = [path for path in plan if path not in left]
    assert gone == plan[: len(gone)]
    at = next((index for index, path in enumerate(plan) if MOMENTS[kind][1] in f"/{path}"), 0)
    expected = {"os:unlink": at + number - 1, "spark_mq.expirer:flush_to_disk": number}.get(function, 0)
    assert len(gone) == expected
    assert left == {path: data for path, data in before.items() if path not in gone} | {LOCK: b"lock"}
    run(*command)
    assert tree_of(store) == {path: data for path, data in before.items() if path not in plan} | {LOCK: b"lock"}


def test_ctrl_c_is_one_line(store: Path, plan: list[str], tmp_path: Path) -> None:
    command = spark_mq("expire", str(store), *RULE, "--apply")
    with paused(command, "os:unlink:4:/store/", tmp_path) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert (tmp_path / "output").read_text() == (
        f"spark-mq: interrupted; 3 of {len(plan)} files are deleted, and the same command deletes the rest\n"
    )
    assert [path for path in plan if not (store / path).exists()] == plan[:3]


def test_the_report_names_the_files(store: Path, plan: list[str], run: Run) -> None:
    text = run("expire", store, *RULE).out
    assert text.splitlines()[0] == f"{store}: 18 files would be deleted, 597.0 KiB"
    assert text.splitlines()[-1] == "dry run: nothing was changed; --apply makes the changes"
    assert [line.strip() for line in text.splitlines() if line.startswith("    ")] == plan
    report: dict[str, Any] = run("expire", store, *RULE, "--json", "--dry-run").report
    assert [file["path"] for file in report["files"]] == plan
    assert (report["dry_run"], report["new_log_start"]) == (True, 524_288)
    assert run("expire", store, *RULE, "--apply").lines[0] == f"{store}: 18 files deleted, 597.0 KiB"
    assert run("expire", store, *RULE, "--apply").lines == [
        f"{store}: no file was deleted",
        "  log begins   at commit log offset 524,288, as before",
    ]


def test_by_time(store: Path, plan: list[str], run: Run) -> None:
    """The times of the segments are those that the broker left; `--at` stands for now."""
    report = run("expire", store, "--reserved-hours", "0.5", "--at", "2026-11-21T11:31:20Z", "--json").report
    assert [file["path"] for file in report["files"] if file["tree"] == "commitlog"] == plan[:4]
    said = run("expire", store, "--reserved-hours", "72", "--at", "2026-11-21T11:31:20Z")
    assert "no file would be deleted" in said.out


def test_hostile_names_steer_no_terminal(store: Path, run: Run) -> None:
    evil = "\x1b]0;evil\x07"
    shutil.copytree(store / "consumequeue" / "user_activity", store / "consumequeue" / evil)
    files = sorted((store / "consumequeue" / evil / "0").iterdir())
    os.truncate(files[1], 1990)
    text = run("expire", store, *RULE).out
    assert "\x1b" not in text
    assert f"consumequeue/\\x1b]0;evil\\x07/0/{files[0].name}" in text
    assert f"consumequeue/\\x1b]0;evil\\x07/0/{files[1].name} does not end at" in text
    assert "\x1b" not in run("retention", store, "--by-topic").out
