"""The state of files for which a cover is kept."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.io.location import Location
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue import cover_memory
from spark_mq.store.queue.cover_memory import keep, recall, state_of
from spark_mq.store.queue.unit_cover import LogCover

_LOG = LogRange(0, 100)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cover_memory, "_SETTLED_NANOS", -(1 << 62))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"before")
    return tmp_path / "file"


def state(*files: Path, log: LogRange = _LOG) -> bytes | None:
    return state_of([Location.resolve(str(file)) for file in files], [log])


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


def test_other_files_and_other_ranges_are_other_states(file: Path, settled: None) -> None:
    other = file.with_name("other")
    other.write_bytes(b"before")
    states = [state(file), state(other), state(file, other), state(other, file), state(file, log=LogRange(0, 101))]
    assert len(set(states)) == len(states)


def test_a_file_that_changed_just_now_has_no_state(file: Path) -> None:
    assert state(file) is None


def test_a_file_that_is_gone_has_no_state(file: Path, settled: None) -> None:
    assert state(file.with_name("gone")) is None


def test_a_file_over_a_network_has_no_state(file: Path, settled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Location, "is_local", False)
    assert state(file) is None


def test_the_covers_that_were_used_last_are_kept() -> None:
    covers = [LogCover((LogRange(0, stop),), (), 0) for stop in range(20)]
    for number, cover in enumerate(covers):
        keep(b"%d" % number, cover)
        assert recall(b"0") == covers[0]
    assert [number for number in range(20) if recall(b"%d" % number) is None] == [1, 2, 3, 4]
    keep(None, covers[0])
    assert recall(None) is None
