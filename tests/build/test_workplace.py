"""Trees in their place, or where they were: a job can end anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.build.workplace import WORK_FOLDER, Workplace
from spark_mq.store.filesystem import Location
from tests.real_stores import tree_of

NAMES = ("consumequeue", "index")
OLD = {"consumequeue/a": b"old", "index/b": b"old"}
NEW = {"consumequeue/a": b"new", "index/b": b"new"}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def job(output: Path) -> Workplace:
    """A job that is about to publish new trees in the place of old ones."""
    write(output, OLD)
    workplace = Workplace(Location.resolve(str(output)), NAMES)
    workplace.prepare(replace=True)
    write(output / WORK_FOLDER, NEW)
    return workplace


def test_new_trees_take_the_old_ones_place(tmp_path: Path) -> None:
    job(tmp_path).publish()
    assert tree_of(tmp_path) == NEW


@pytest.mark.parametrize("renames", range(4))
@pytest.mark.parametrize("is_killed", [True, False])
def test_wherever_it_ends_each_tree_is_whole(renames: int, is_killed: bool, tmp_path: Path) -> None:
    """A job that is killed cleans nothing up, and the next one does; one that fails cleans up itself."""
    workplace = job(tmp_path)
    rename, calls = os.rename, 0

    def failing(source: str, target: str) -> None:
        nonlocal calls
        calls += 1
        if calls > renames:
            raise OSError("the machine is going down")
        rename(source, target)

    with mock.patch("os.rename", failing), pytest.raises(OSError, match="going down"):
        workplace.publish()
    if is_killed:
        workplace.prepare(replace=True)
    workplace.discard()
    done = {0: 0, 1: 0, 2: 1, 3: 1}[renames]  # two renames for each tree
    kept = {name: (NEW if NAMES.index(name.split("/")[0]) < done else OLD)[name] for name in OLD}
    assert tree_of(tmp_path) == kept
