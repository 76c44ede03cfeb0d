"""Trees in their place, or where they were: a job can end anywhere."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.io.location import Location
from spark_mq.job.output_committer import WORK_FOLDER, OutputCommitter
from tests.support.stores import tree_of

NAMES = ("consumequeue", "index")
OLD = {"consumequeue/a": b"old", "index/b": b"old"}
NEW = {"consumequeue/a": b"new", "index/b": b"new"}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def job(output: Path) -> OutputCommitter:
    """A job that is about to publish new trees in the place of old ones."""
    write(output, OLD)
    committer = OutputCommitter(Location.resolve(str(output)), NAMES)
    committer.setup(replace=True)
    write(output / WORK_FOLDER, NEW)
    return committer


def test_new_trees_take_the_old_ones_place(tmp_path: Path) -> None:
    job(tmp_path).commit()
    assert tree_of(tmp_path) == NEW


@pytest.mark.parametrize("renames", range(4))
@pytest.mark.parametrize("is_killed", [True, False])
def test_wherever_it_ends_each_tree_is_whole(renames: int, is_killed: bool, tmp_path: Path) -> None:
    """A job that is killed cleans nothing up, and the next one does; one that fails cleans up itself."""
    committer = job(tmp_path)
    rename, calls = os.rename, 0

    def failing(source: str, target: str) -> None:
        nonlocal calls
        calls += 1
        if calls > renames:
            raise OSError("the machine is going down")
        rename(source, target)

    with mock.patch("os.rename", failing), pytest.raises(OSError, match="going down"):
        committer.commit()
    if is_killed:
        committer.setup(replace=True)
    committer.abort()
    done = {0: 0, 1: 0, 2: 1, 3: 1}[renames]  # two renames for each tree
    kept = {name: (NEW if NAMES.index(name.split("/")[0]) < done else OLD)[name] for name in OLD}
    assert tree_of(tmp_path) == kept


@pytest.mark.parametrize("renames", range(4))
def test_a_tree_that_is_continued_gets_its_files_in_order(renames: int, tmp_path: Path) -> None:
    """Killed anywhere, it has the beginning of what comes, and the next job puts the rest."""
    write(tmp_path, {"index/1": b"full", "index/2": b"half", "index/9": b"stale"})
    new = {"index/2": b"whole", "index/3": b"new", "index/4": b"new"}
    committer = OutputCommitter(Location.resolve(str(tmp_path)), ("index",))
    assert committer.resume() == ("index",)
    write(tmp_path / WORK_FOLDER, {**new, "index/.5.tmp": b"a killed task's", "index/6": b"another plan's"})
    committer.keep_only("index", {"2", "3", "4"}.__contains__)
    rename, calls = os.rename, 0

    def failing(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls > renames:
            raise KeyboardInterrupt
        rename(source, target)

    stale = [committer.target("index") / "9"]
    with suppress(KeyboardInterrupt), mock.patch("os.rename", failing):
        committer.commit(("index",), stale)
    there = {"index/1": b"full", "index/2": b"half", **dict(list(new.items())[:renames])}
    found = tree_of(tmp_path)
    assert {name: data for name, data in found.items() if name < "index/9"} == there | {
        f"{WORK_FOLDER}/{name}": data for name, data in list(new.items())[renames:]
    }
    assert ("index/9" in found) == (renames < 3)
    if renames < 3:
        assert committer.resume() == ("index",)
        committer.commit(("index",), stale)
    assert tree_of(tmp_path) == {"index/1": b"full", **new}


def test_a_job_that_goes_on_keeps_what_is_there(tmp_path: Path) -> None:
    """But a tree that was set aside comes back, or goes, if it was replaced."""
    write(tmp_path / WORK_FOLDER, {"replaced-consumequeue/a": b"old", "replaced-index/b": b"old", "index/c": b"staged"})
    write(tmp_path, {"index/b": b"new"})
    committer = OutputCommitter(Location.resolve(str(tmp_path)), NAMES)
    assert committer.resume() == NAMES
    assert tree_of(tmp_path) == {"consumequeue/a": b"old", "index/b": b"new", f"{WORK_FOLDER}/index/c": b"staged"}
