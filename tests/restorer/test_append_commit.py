"""The commit of an append is killed at every step: all files are old, or all are new when it is finished."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.errors import NoRoomError, StorageError, UnfinishedAppendError
from spark_mq.io.location import Location
from spark_mq.restorer import append
from spark_mq.restorer.append import append_folder, commit_append, discard_append, finish_append
from spark_mq.store.log.segment_files import list_segment_files
from tests.support.committed import ABOUT, AFTER, NEW, OLD, REMOVED, prepare
from tests.support.paused_process import killed
from tests.support.stores import files_of, tree_of

MARKER = "commitlog/append-unfinished"


@dataclass(frozen=True)
class Moment:
    """A call before which the process is killed, what is in the folder of the append then, and what becomes of it."""

    call: str
    has_commit: bool
    has_marker: bool
    staged: int
    is_in_place: bool


ALL = len(NEW)
MOMENTS = {
    "commit.json is written": Moment("os:fsync:1:", False, False, ALL, False),
    "commit.json is named": Moment("os:replace:1:commit.json", False, False, ALL, False),
    "it is decided": Moment("os:rename:1:append-unfinished", True, False, ALL, False),
    "the first file is in place": Moment("os:replace:1:/store/consumequeue/", True, True, ALL, True),
    "the log is in place": Moment("os:replace:1:/store/commitlog/", True, True, 3, True),
    "a file is removed": Moment(f"pathlib:Path.unlink:1:{REMOVED}", True, True, 0, True),
    "the marker is removed": Moment("pathlib:Path.unlink:1:append-unfinished", True, True, 0, True),
    "commit.json is removed": Moment("pathlib:Path.unlink:1:commit.json", True, False, 0, True),
    "the folder is removed": Moment("shutil:rmtree:1:append", False, False, 0, False),
}
"""By step that comes next. In the last one, the store is complete, and nothing has to be known of the append."""


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=list(MOMENTS))
def test_killed_at_a_step_and_finished(moment: Moment, tmp_path: Path) -> None:
    store = tmp_path / "store"
    location = prepare(store)
    killed([sys.executable, "-m", "tests.support.committed", str(store)], moment.call, tmp_path)
    folder, left = store / ".spark_mq" / "append", files_of(store)
    assert (folder / "commit.json").exists() == moment.has_commit
    assert (MARKER in left) == moment.has_marker
    assert sum((folder / name).exists() for name in NEW) == moment.staged
    if moment.has_marker:
        assert left.pop(MARKER).strip()
        with pytest.raises(UnfinishedAppendError, match=r"append-unfinished.*run it again"):
            list_segment_files(location)
        assert all(data in (OLD.get(name), AFTER.get(name)) for name, data in left.items())
    else:
        list_segment_files(location)
        assert left in (OLD, AFTER)
        assert (left == AFTER) == (moment.staged == 0)
    assert finish_append(location) == (ABOUT if moment.is_in_place else None)
    assert files_of(store) == (OLD if moment.staged and not moment.has_marker else AFTER)
    assert not (store / ".spark_mq").exists()
    assert finish_append(location) is None


@pytest.fixture
def store(tmp_path: Path) -> Location:
    return prepare(tmp_path / "store")


def test_a_commit(store: Location) -> None:
    commit_append(store, [REMOVED], ABOUT)
    assert files_of(Path(store.path)) == AFTER
    assert not (Path(store.path) / ".spark_mq").exists()
    assert finish_append(store) is None


def test_backups_of_repairs_stay(store: Location) -> None:
    backup = Path(store.path, ".spark_mq", "backup-1", "changes.json")
    backup.parent.mkdir()
    backup.write_text("[]")
    commit_append(store)
    assert backup.read_text() == "[]"
    assert not Path(append_folder(store).path).exists()


@contextmanager
def failing(owner: object, name: str, number: int, code: int) -> Iterator[None]:
    """A context in which the n-th call of a function fails with an error of the operating system."""
    count, function = 0, getattr(owner, name)

    def call(*arguments: object) -> object:
        nonlocal count
        count += 1
        if count == number:
            raise OSError(code, os.strerror(code))
        return function(*arguments)

    with mock.patch.object(owner, name, call):
        yield


def test_an_error_before_the_decision_changes_nothing(store: Location) -> None:
    with failing(append, "publish", 1, errno.ENOSPC), pytest.raises(NoRoomError, match="nothing was appended"):
        commit_append(store)
    with failing(os, "rename", 1, errno.EACCES), pytest.raises(StorageError, match="nothing was appended"):
        commit_append(store)
    discard_append(store)
    assert tree_of(Path(store.path)) == OLD


def interrupt(store: Location, in_place: int = 2) -> None:
    """So many files are in place when the next one cannot be changed; before that, two have got their names."""
    with (
        failing(os, "replace", 2 + in_place + 1, errno.EIO),
        pytest.raises(StorageError, match="has to be finished: run it again"),
    ):
        commit_append(store, [REMOVED], ABOUT)


def test_an_error_after_the_decision_is_finished_later(store: Location) -> None:
    interrupt(store)
    discard_append(store)
    assert finish_append(store) == ABOUT
    assert files_of(Path(store.path)) == AFTER


def test_a_broker_that_does_not_start_can_write_config_files(store: Location) -> None:
    interrupt(store, in_place=5)
    root = Path(store.path)
    assert (root / "config" / "topics.json").read_bytes() == NEW["config/topics.json"]
    (root / "config" / "topics.json").write_bytes(b"of the broker")
    assert finish_append(store) == ABOUT
    assert files_of(root) == {**AFTER, "config/topics.json": b"of the broker"}


def test_what_a_person_removed_is_named(store: Location) -> None:
    interrupt(store)
    root = Path(store.path)
    (root / MARKER).unlink()
    with pytest.raises(UnfinishedAppendError, match=r"only 6 of the 8 files .*append-unfinished was removed"):
        finish_append(store)
    (root / MARKER).touch()
    kept = shutil.move(root / ".spark_mq" / "append" / "checkpoint", root.parent / "kept")
    with pytest.raises(UnfinishedAppendError, match="checkpoint is not the file of the interrupted append"):
        finish_append(store)
    shutil.move(kept, root / ".spark_mq" / "append" / "checkpoint")
    assert finish_append(store) == ABOUT
    assert files_of(root) == AFTER


def test_a_lost_folder_is_named(store: Location) -> None:
    interrupt(store)
    shutil.rmtree(Path(store.path, ".spark_mq"))
    with pytest.raises(UnfinishedAppendError, match="is gone: put that folder back"):
        finish_append(store)
