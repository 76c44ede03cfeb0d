"""A power loss at each moment of an archive run: the next run completes the archive, or names a file and what to do.

Delta Lake and Spark write their files in the JVM, where nobody sees each change. So a run is made once. The files that
it left are then written again, in the order in which they got their names, with each `fsync` of this process between
them, and `spark_mq.testing.disk` makes the states that a power loss can leave. A usual run tries few of them.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_mq.archive.writer import archive
from spark_mq.errors import StorageError
from spark_mq.io.local import flush_to_disk
from spark_mq.testing.disk import FileSystem, Recording, recorded
from tests.support.delta_rows import delta_rows
from tests.support.soak import SOAKS, cases
from tests.support.store_history import cut_log, record_ends
from tests.support.stores import WORKLOAD, Unpack

pytestmark = [pytest.mark.archive, pytest.mark.timeout(1200)]

MOST = 60 if SOAKS else 1
"""States that are tried of a run on a filesystem."""
TABLES = ("messages", "messages_keys", "messages_segments")
_CLOCK = 5
"""CLOCK_REALTIME_COARSE of Linux, from which files get their times."""


@dataclass
class Run:
    """A run that ended; the archive as it was before and after it; when `fsync` was called of which inode."""

    before: Path
    after: Path
    synced: list[tuple[int, int]]

    def replayed(self, folder: Path) -> Recording:
        """The changes of the run, as if this process had made them."""
        shutil.copytree(self.before, folder)
        changes: list[tuple[int, bool, str]] = []
        names = {}
        for path in (self.after, *self.after.rglob("*")):
            name, info = str(path.relative_to(self.after)), path.stat()
            names[info.st_ino] = name
            old = self.before / name
            if path.is_file() and not (old.is_file() and old.read_bytes() == path.read_bytes()):
                changes.append((info.st_ctime_ns, False, name))
        changes += [(moment, True, names[inode]) for moment, inode in self.synced if inode in names]
        synced_first = set()  # files that were flushed under another name
        with recorded(folder) as recording:
            for _, is_sync, name in sorted(changes):
                target = folder / name
                if is_sync and target.exists():
                    flush_to_disk(str(target))
                elif is_sync:
                    synced_first.add(name)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    new = target.with_name("new")
                    new.write_bytes((self.after / name).read_bytes())
                    if name in synced_first:
                        flush_to_disk(str(new))
                    new.replace(target)
        return recording


@contextmanager
def syncs_noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """When `fsync` is called in this process, and of which inode."""
    found: list[tuple[int, int]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        found.append((time.clock_gettime_ns(_CLOCK), os.fstat(descriptor).st_ino))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", noted)
        yield found


def run(spark: SparkSession, store: Path, lake: Path) -> None:
    archive(spark, str(store), str(lake / "messages"), store_name="s")


def rows_of(lake: Path) -> dict[str, list[str]]:
    """All rows of each table, in one order."""
    return {name: sorted(map(str, delta_rows(lake / name))) for name in TABLES}


def complete(spark: SparkSession, store: Path, lake: Path) -> int:
    """Archive until it succeeds, and do what each error says; returns the number of errors."""
    for count in range(9):
        try:
            run(spark, store, lake)
        except StorageError as error:
            do_what_is_said(str(error), lake)
        else:
            return count
    raise AssertionError("nine errors")


def do_what_is_said(error: str, lake: Path) -> None:
    out_of = re.search(rf"out of ({re.escape(str(lake))}\S*_delta_log),", error)
    assert out_of is not None, error
    log = Path(out_of[1])
    version = re.search(r"Move the files of version (\d+) and of later ones", error)
    if version is None:
        Path(error.split()[0]).unlink()
    else:
        for file in log.iterdir():
            number = re.match(r"\.?(\d{20})\.", file.name)
            if number is not None and int(number[1]) >= int(version[1]):
                file.unlink()
        shutil.rmtree(lake / "messages_checkpoints")
    (log / "_last_checkpoint").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def half(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store when it had half of its messages."""
    ends = record_ends(WORKLOAD)
    return cut_log(unpacked(WORKLOAD), tmp_path_factory.mktemp("half") / "store", ends[len(ends) // 2])


@pytest.mark.parametrize("is_first", cases([False], [False, True]))
def test_the_next_run_completes_the_archive(
    is_first: bool, delta: SparkSession, half: Path, unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first run, or of one over a log that has grown, after whose commits Delta writes checkpoints."""
    lake, store = tmp_path / "lake", half if is_first else unpacked(WORKLOAD)
    lake.mkdir()
    if not is_first:
        run(delta, half, lake)
        for name in TABLES:
            delta.sql(f"ALTER TABLE delta.`{lake / name}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    before = shutil.copytree(lake, tmp_path / "before")
    with syncs_noted(monkeypatch) as synced:
        run(delta, store, lake)
    right = rows_of(lake)
    recording = Run(before, lake, synced).replayed(tmp_path / "replayed")
    for file_system in cases([FileSystem.UNORDERED], [*FileSystem]):
        states, wrong, errors = list(recording.states(file_system)), list[str](), Counter[int]()
        for number, state in enumerate(random.Random(41).sample(states, min(MOST, len(states)))):
            left = tmp_path / f"{file_system}-{number}"
            state.write(left)
            errors[complete(delta, store, left)] += 1
            if rows_of(left) != right:
                wrong.append(f"{number}: {state.about}")
            shutil.rmtree(left)
        print(f"{file_system}: {sum(errors.values())} of {len(states)} states; by number of errors: {dict(errors)}")
        assert not wrong
