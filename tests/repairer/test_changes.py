"""Changes of files, with their backup: an error at any step leaves each file old or new, and all can be undone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_mq.errors import OptionError, StorageError
from spark_mq.format.record import encode_blank
from spark_mq.io.location import Location
from spark_mq.repairer.changes import CHANGES, Backup, Change, ChangeKind, undo_repair
from tests.support.stores import files_of

LOG = bytes(range(1, 101))
FIRST, SECOND = (f"commitlog/{base:020d}" for base in (0, 100))
ALL = [
    Change(ChangeKind.ASIDE, "consumequeue/a/0/notes.txt"),
    Change(ChangeKind.CLEAR, FIRST, 60, 90),
    Change(ChangeKind.BLANK, SECOND, 20, 50),
    Change(ChangeKind.REPLACE, "consumequeue/a/0/00"),
    Change(ChangeKind.CREATE, "index/2"),
]
NEW = {
    FIRST: LOG[:60] + bytes(30) + LOG[90:],
    SECOND: LOG[:20] + encode_blank(30) + LOG[50:],
    "consumequeue/a/0/00": b"new units",
    "index/1": b"index",
    "index/2": b"new index",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    old = {FIRST: LOG, SECOND: LOG, "consumequeue/a/0/00": b"units", "index/1": b"index"}
    for name, data in {**old, "consumequeue/a/0/notes.txt": b"notes"}.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(data)
    for name in ("consumequeue/a/0/00", "index/2"):
        new = store.with_name("new") / name
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(NEW[name])
    return store


def apply(store: Path, changes: list[Change] | None = None) -> Backup:
    location = Location.resolve(str(store))
    backup = Backup.create(location)
    backup.apply(ALL if changes is None else changes, Location.resolve(str(store.with_name("new"))))
    return backup


def test_changes_are_made_and_undone(store: Path) -> None:
    before = files_of(store)
    backup = apply(store)
    assert files_of(store) == NEW
    folder, plan = undo_repair(str(store), apply=False)
    assert (folder, plan) == (str(backup.folder), ALL[::-1])
    assert files_of(store) == NEW
    assert undo_repair(str(store)) == (folder, ALL[::-1])
    assert files_of(store) == before
    with pytest.raises(OptionError, match="no backup of a repair"):
        undo_repair(str(store))


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_folder_in_the_place_of_a_file_is_moved_away_and_put_back(is_killed: bool, store: Path) -> None:
    """Also if a job was killed after the folder was moved away, before the file was put there."""
    folder = store / "consumequeue/a/0/00"
    folder.unlink()
    (folder / "inner").mkdir(parents=True)
    before = files_of(store)
    backup = apply(store, [Change(ChangeKind.REPLACE, "consumequeue/a/0/00")])
    assert folder.read_bytes() == b"new units"
    assert (backup.folder / "consumequeue/a/0/00/inner").is_dir()
    if is_killed:
        folder.unlink()
    undo_repair(str(store))
    assert (folder / "inner").is_dir()
    assert files_of(store) == before


def test_undo_leaves_no_folder_that_the_repair_made(store: Path) -> None:
    (store / "consumequeue/old").mkdir()
    for name in ("consumequeue/b/7/00", "consumequeue/old/0/00"):
        new = store.with_name("new") / name
        new.parent.mkdir(parents=True)
        new.write_bytes(b"units")
    before = set(store.rglob("*"))
    apply(store, [Change(ChangeKind.CREATE, name) for name in ("consumequeue/b/7/00", "consumequeue/old/0/00")])
    undo_repair(str(store))
    assert set(store.rglob("*")) - {store / "lock"} == before


def test_the_newest_of_two_backups_is_undone_first(store: Path) -> None:
    before = files_of(store)
    first, second = apply(store, ALL[:2]), apply(store, ALL[2:])
    assert undo_repair(str(store))[0] == str(second.folder)
    assert files_of(store)["consumequeue/a/0/00"] == b"units"
    assert undo_repair(str(store))[0] == str(first.folder)
    assert files_of(store) == before


STEPS = ("rename", "replace", "link", "fsync")


@pytest.mark.parametrize("number", range(60))
def test_an_error_at_any_step_leaves_each_file_old_or_new(
    number: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th change of the filesystem fails, as on a full disk; then all is undone, or done again."""
    before, calls = files_of(store), 0

    def failing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number + 1:
                raise OSError(28, "No space left on device")
            return function(*arguments, **options)

        return call

    backup = Backup.create(Location.resolve(str(store)))
    for name in STEPS:
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    failure = ""
    try:
        backup.apply(ALL, Location.resolve(str(store.with_name("new"))))
    except (StorageError, OSError) as error:
        failure = str(error)
    monkeypatch.undo()
    assert ("No space left" in failure) == (calls > number)
    now = files_of(store)
    kept = files_of(backup.folder)
    for name in {*before, *NEW}:
        states = [before.get(name), NEW.get(name)]
        assert now.get(name) in states
        if now.get(name) != before.get(name) and name in before:
            change = next(change for change in ALL if change.file == name)
            assert kept[name] == before[name][change.start : change.stop or None]
    if (backup.folder / CHANGES).exists():
        undo_repair(str(store))
    assert files_of(store) == before


def test_there_are_fewer_steps_than_were_tried(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return function(*arguments, **options)

        return call

    for name in STEPS:
        monkeypatch.setattr(os, name, counting(name, getattr(os, name)))
    apply(store)
    assert 15 < len(calls) < 60


@pytest.mark.parametrize("change", ALL[1:], ids=lambda change: change.kind)
def test_a_file_that_a_broker_wrote_since_is_not_put_back(change: Change, store: Path) -> None:
    apply(store)
    written = files_of(store) | {change.file: b"x" + NEW[change.file]}
    (store / change.file).write_bytes(written[change.file])
    for is_applied in (False, True):
        with pytest.raises(StorageError, match="has changed since the repair"):
            undo_repair(str(store), apply=is_applied)
    assert files_of(store) == written


def test_a_file_that_was_put_where_another_one_was_moved_away_stays(store: Path) -> None:
    apply(store)
    (store / ALL[0].file).write_bytes(b"other notes")
    with pytest.raises(StorageError, match="has changed since the repair"):
        undo_repair(str(store))
    assert (store / ALL[0].file).read_bytes() == b"other notes"
