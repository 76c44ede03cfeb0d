"""Files of a store have a state, which differs after each change, while nobody can change them without a trace."""

from __future__ import annotations

import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_mq.io.location import Location
from spark_mq.store import store_lock as module
from spark_mq.store.store_lock import StateMemory, settled_state, store_lock


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a store whose broker was stopped, which changed long enough ago."""
    monkeypatch.setattr(module, "_SETTLED_NANOS", -(1 << 62))
    (tmp_path / "lock").write_bytes(b"lock")
    (tmp_path / "file").write_bytes(b"before")
    return tmp_path / "file"


def state(*files: Path, about: object = None) -> bytes | None:
    store = Location.resolve(str(files[0].parent))
    return settled_state(store, [Location.resolve(str(file)) for file in files], about)


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
def test_each_change_of_a_file_is_another_state(change: Callable[[Path], object], file: Path) -> None:
    before = state(file)
    assert before is not None
    assert state(file) == before
    time.sleep(0.02)
    change(file)
    assert state(file) not in (before, None)


def test_other_files_and_other_values_are_other_states(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"before")
    states = [state(file), state(other), state(file, other), state(other, file), state(file, about=1)]
    assert len(set(states)) == len(states)


def test_a_file_that_changed_just_now_has_no_state(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLED_NANOS", 1 << 62)
    assert state(file) is None


def test_a_file_of_which_the_system_tells_nothing_has_no_state(file: Path) -> None:
    assert state(file, file / "below a file") is None


def test_a_file_over_a_network_has_no_state(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Location, "is_local", False)
    assert state(file) is None


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
    monkeypatch.setattr(module, "_ON_DISK_NANOS", -(1 << 62))
    assert state(file) not in (None, before)


@pytest.mark.parametrize("name", ["lock", "abort"])
def test_a_start_of_a_broker_is_another_state(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the file that it writes through a map has the times from before, as on tmpfs."""
    monkeypatch.setattr(module, "_ON_DISK_NANOS", -(1 << 62))
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


def test_the_facts_that_were_used_last_are_kept() -> None:
    memory = StateMemory[str]()
    for number in range(20):
        memory.keep((b"state", number), str(number))
        assert memory.recall((b"state", 0)) == "0"
    assert [number for number in range(20) if memory.recall((b"state", number)) is None] == [1, 2, 3, 4]
    assert memory.recall((b"another state", 0)) is None
    memory.clear()
    assert memory.recall((b"state", 0)) is None


def test_threads_share_a_memory() -> None:
    """Those that plan reads in one process of Sail, for example."""
    memory = StateMemory[int]()

    def use(first: int) -> None:
        for number in range(first, first + 20_000):
            memory.keep(number % 37, number)
            memory.recall((number + 30) % 37)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(use, range(0, 40, 10)))
    finally:
        sys.setswitchinterval(interval)
