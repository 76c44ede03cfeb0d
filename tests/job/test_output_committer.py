"""Trees in their place, or where they were: a job can end anywhere."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.errors import OutputExistsError
from spark_mq.io.location import Location
from spark_mq.io.publish import remove_folder
from spark_mq.job.output_committer import BACKUP, WORK_FOLDER, OutputCommitter
from tests.support.local_objects import local_objects
from tests.support.stores import tree_of

NAMES = ("consumequeue", "index")
OLD = {"consumequeue/a": b"old", "index/b": b"old"}
NEW = {"consumequeue/a": b"new", "index/b": b"new"}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def job(output: Path, keeps_replaced: bool = True) -> OutputCommitter:
    """A job that is about to publish new trees in the place of old ones."""
    write(output, OLD)
    committer = OutputCommitter(Location.resolve(str(output)), NAMES, keeps_replaced=keeps_replaced)
    committer.setup(replace=True)
    write(output / WORK_FOLDER, NEW)
    return committer


def without_backup(tree: dict[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files outside of the backups, and those in them, by their names there."""
    kept = {name: data for name, data in tree.items() if not name.startswith(BACKUP)}
    return kept, {name.partition("/")[2]: data for name, data in tree.items() if name.startswith(BACKUP)}


def test_new_trees_take_the_old_ones_place(tmp_path: Path) -> None:
    backup = job(tmp_path).commit()
    assert without_backup(tree_of(tmp_path)) == (NEW, OLD)
    assert backup is not None
    assert tree_of(Path(backup)) == OLD


def test_without_a_backup_the_old_trees_are_removed(tmp_path: Path) -> None:
    assert job(tmp_path, keeps_replaced=False).commit() is None
    assert tree_of(tmp_path) == NEW


def test_two_backups_in_one_second_have_two_names(tmp_path: Path) -> None:
    first, second = (job(tmp_path).commit() for _ in range(2))
    assert first != second
    assert len(list(tmp_path.glob(f"{BACKUP}*"))) == 2


def test_one_queue_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    """Killed after the queue was set aside, the job puts it back, or goes on."""
    old = {"consumequeue/orders/0/a": b"old", "consumequeue/orders/1/a": b"stays"}
    write(tmp_path, old)
    committer = OutputCommitter(Location.resolve(str(tmp_path)), ("consumequeue/orders/0",))
    committer.setup(replace=True)
    write(tmp_path / WORK_FOLDER, {"consumequeue/orders/0/a": b"new"})
    with mock.patch("spark_mq.io.publish.flush_to_disk", side_effect=KeyboardInterrupt), suppress(KeyboardInterrupt):
        committer.commit()
    assert tree_of(tmp_path / "consumequeue") == {"orders/1/a": b"stays"}
    committer.setup(replace=True)
    assert tree_of(tmp_path) == old
    write(tmp_path / WORK_FOLDER, {"consumequeue/orders/0/a": b"new"})
    committer.commit()
    assert without_backup(tree_of(tmp_path)) == (
        {**old, "consumequeue/orders/0/a": b"new"},
        {"consumequeue/orders/0/a": b"old"},
    )


@pytest.mark.parametrize("renames", range(6))
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
    done = min(renames // 2, len(NAMES))  # two renames for each tree, and one for each backup
    kept = {name: (NEW if NAMES.index(name.split("/")[0]) < done else OLD)[name] for name in OLD}
    backup = {name: data for name, data in OLD.items() if NAMES.index(name.split("/")[0]) < done}
    assert without_backup(tree_of(tmp_path)) == (kept, backup)


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
    write(
        tmp_path / WORK_FOLDER,
        {"replaced-1/consumequeue/a": b"old", "replaced-1/index/b": b"old", "index/c": b"staged"},
    )
    write(tmp_path, {"index/b": b"new"})
    committer = OutputCommitter(Location.resolve(str(tmp_path)), NAMES)
    assert committer.resume() == NAMES
    assert tree_of(tmp_path) == {"consumequeue/a": b"old", "index/b": b"new", f"{WORK_FOLDER}/index/c": b"staged"}


def elsewhere(folder: Path) -> Location:
    """`folder` on a filesystem that is not local, so trees cannot be renamed."""
    return local_objects(folder, "out")


def test_trees_that_cannot_be_renamed_count_when_the_job_has_ended(tmp_path: Path) -> None:
    committer = OutputCommitter(elsewhere(tmp_path), NAMES)
    committer.setup(replace=False)
    write(tmp_path / "out", NEW)
    assert committer.existing() == ()
    assert OutputCommitter(elsewhere(tmp_path), ("index",)).existing() == ()
    committer.commit()
    assert tree_of(tmp_path / "out") == NEW
    assert committer.existing() == NAMES
    for replace in (False, True):
        with pytest.raises(OutputExistsError):
            committer.check_targets(replace)


@pytest.mark.parametrize("how", ["setup", "clear", "abort"])
def test_unfinished_trees_that_cannot_be_renamed_are_removed_and_no_others(how: str, tmp_path: Path) -> None:
    write(tmp_path / "out", {"index/finished": b"x"})
    killed = OutputCommitter(elsewhere(tmp_path), ("consumequeue",))
    killed.setup(replace=False)
    write(tmp_path / "out", {"consumequeue/a/0": b"x"})
    if how == "setup":
        killed.setup(replace=False)
    elif how == "clear":
        killed.clear()
    else:
        killed.abort()
    files = {name for name in tree_of(tmp_path / "out") if not name.startswith(WORK_FOLDER)}
    assert files == {"index/finished"}


def test_a_continued_job_keeps_only_planned_files_where_they_cannot_be_renamed(tmp_path: Path) -> None:
    OutputCommitter(elsewhere(tmp_path), NAMES).setup(replace=False)
    write(tmp_path / "out", {"consumequeue/a/0": b"x", "consumequeue/b/1": b"x", "index/2": b"x"})
    committer = OutputCommitter(elsewhere(tmp_path), NAMES)
    assert committer.resume() == ()
    committer.keep_only("consumequeue", {"a/0"}.__contains__)
    committer.commit()
    assert set(tree_of(tmp_path / "out")) == {"consumequeue/a/0", "index/2"}


def test_a_file_of_unfinished_trees_leads_out_of_no_output(tmp_path: Path) -> None:
    write(tmp_path, {"kept/a": b"x"})
    committer = OutputCommitter(elsewhere(tmp_path), NAMES)
    committer.setup(replace=False)
    write(tmp_path / "out" / WORK_FOLDER, {"unfinished.json": b'["../kept", "/kept", "", ".", 7, "index"]'})
    committer.clear()
    assert tree_of(tmp_path / "kept") == {"a": b"x"}


def test_a_file_that_vanishes_while_a_tree_is_cleaned(tmp_path: Path) -> None:
    """A task of a failed job that still runs removes its temporary file itself."""
    write(tmp_path / "out", {"index/.5.tmp": b"a task's", "index/.6.tmp": b"a killed task's", "index/1": b"planned"})
    committer = OutputCommitter(elsewhere(tmp_path), NAMES)
    listed = committer.staging_path("index").files_below()
    (tmp_path / "out" / "index" / ".5.tmp").unlink()
    with mock.patch.object(Location, "files_below", return_value=listed):
        committer.keep_only("index", {"1"}.__contains__)
    assert tree_of(tmp_path / "out") == {"index/1": b"planned"}


def test_a_file_that_vanishes_while_its_folder_is_removed(tmp_path: Path) -> None:
    write(tmp_path, {"work/index/.5.tmp": b"a task's", "work/index/1": b"written"})
    unlink = os.unlink

    def after_its_task(path: str, **place: int) -> None:
        if str(path).endswith(".5.tmp"):
            unlink(path, **place)
        unlink(path, **place)

    with mock.patch("os.unlink", after_its_task):
        remove_folder(Location.resolve(str(tmp_path / "work")))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        remove_folder(Location.resolve(str(tmp_path / "work")))
