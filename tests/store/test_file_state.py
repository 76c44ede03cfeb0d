"""The state of files differs after each change."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.io.location import Location
from spark_mq.store import store_lock as module
from spark_mq.store.store_lock import file_state


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLED_NANOS", -(1 << 62))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"before")
    return tmp_path / "file"


def state(*files: Path, about: object = None) -> bytes | None:
    return file_state([Location.resolve(str(file)) for file in files], about)


def replaced(file: Path) -> None:
    shutil.copy2(file, file.with_name("copy"))
    os.replace(file.with_name("copy"), file)


def rewritten(file: Path) -> None:
    """Other bytes of the same size, and the time of modification from before."""
    before = file.stat()
    with file.open("r+b") as stream:
        stream.write(b"after!")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [replaced, rewritten, lambda file: file.write_bytes(b"longer than before")])
def test_each_change_of_a_file_is_another_state(change: Callable[[Path], object], file: Path, settled: None) -> None:
    before = state(file)
    assert before is not None
    assert state(file) == before
    time.sleep(0.02)
    change(file)
    assert state(file) not in (before, None)


def test_other_files_and_other_values_are_other_states(file: Path, settled: None) -> None:
    other = file.with_name("other")
    other.write_bytes(b"before")
    states = [state(file), state(other), state(file, other), state(other, file), state(file, about=1)]
    assert len(set(states)) == len(states)


def test_a_file_that_changed_just_now_has_no_state(file: Path) -> None:
    assert state(file) is None


def test_a_file_that_does_not_exist_has_a_state_until_it_does(file: Path, settled: None) -> None:
    before = state(file, file.with_name("abort"))
    assert before not in (state(file), None)
    file.with_name("abort").touch()
    assert state(file, file.with_name("abort")) not in (before, None)


def test_a_file_of_which_the_system_tells_nothing_has_no_state(file: Path, settled: None) -> None:
    assert state(file / "below a file") is None


def test_a_file_over_a_network_has_no_state(file: Path, settled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Location, "is_local", False)
    assert state(file) is None
