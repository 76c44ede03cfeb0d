"""Files of a store have a state only while nobody changes them without a trace."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from spark_mq.io.location import Location
from spark_mq.store import store_lock as settled_files
from spark_mq.store.store_lock import settled_state, store_lock


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a store whose broker was stopped, which changed long enough ago."""
    monkeypatch.setattr(settled_files, "_SETTLED_NANOS", -(1 << 62))
    (tmp_path / "lock").write_bytes(b"lock")
    (tmp_path / "file").write_bytes(bytes(100))
    return tmp_path / "file"


def state(file: Path, about: object = None) -> bytes | None:
    store = Location.resolve(str(file.parent))
    return settled_state(store, [store / file.name], about)


def test_the_files_of_a_stopped_broker_have_a_state(file: Path) -> None:
    assert state(file) == state(file) is not None
    assert state(file) != state(file, about=1)


def test_nothing_has_a_state_while_a_broker_has_the_lock(file: Path) -> None:
    before = state(file)
    with store_lock(Location.resolve(str(file.parent))):
        assert state(file) is None
    assert state(file) == before


def test_after_a_crash_the_files_have_a_state_later(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker may run on another machine, whose lock is not seen."""
    before = state(file)
    (file.parent / "abort").touch()
    assert state(file) is None
    monkeypatch.setattr(settled_files, "_ON_DISK_NANOS", -(1 << 62))
    assert state(file) not in (None, before)


@pytest.mark.parametrize("name", ["lock", "abort"])
def test_a_start_of_a_broker_is_another_state(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the file that it writes through a map has the times from before, as on tmpfs."""
    monkeypatch.setattr(settled_files, "_ON_DISK_NANOS", -(1 << 62))
    (file.parent / "abort").touch()
    before, times = state(file), file.stat()
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        time.sleep(0.02)
        mapped[0] = 1
    real_stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **rest: times if path == str(file) else real_stat(path, **rest))
    assert state(file) == before
    (file.parent / name).write_bytes(b"lock")
    assert state(file) not in (None, before)


def test_a_store_over_a_network_has_no_state(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Location, "is_local", False)
    assert state(file) is None
