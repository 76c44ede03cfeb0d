"""A repair that is killed at any moment: each file is old or new, and the same command again gives the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from pathlib import Path

import pytest

from spark_mq.errors import StoreLockedError
from spark_mq.repairer.changes import undo_repair
from tests.support.paused_process import paused
from tests.support.repaired import repair_here
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, RealStore, Unpack, files_of
from tests.support.verified import Bench

KILLS = 50 if SOAKS else 5
MOMENTS = {
    "before a new file is written": ("spark_mq.io.publish:publish", "/.spark_mq/repair/", 3),
    "before an old file is kept": ("os:link", "/store/", 3),
    "before a new file is in place": ("os:replace", "/.spark_mq/repair/", 5),
    "before a file is moved aside": ("os:rename", "/store/consumequeue/", 1),
    "before a change is on the disk": ("spark_mq.repairer.changes:flush_to_disk", "", 11),
}
"""By moment: a function, a text in its argument, and the number of such calls."""


def moments() -> list[tuple[str, int]]:
    """Each kind once; in a soak 50 of all kinds."""
    chance = random.Random(19)
    kinds = list(MOMENTS) if not SOAKS else chance.choices(list(MOMENTS), k=KILLS)
    return [(kind, chance.randint(1, MOMENTS[kind][2])) for kind in kinds]


@pytest.fixture
def bench(unpacked: Unpack, tmp_path: Path) -> Bench:
    """A store with damage of several kinds."""
    packed = RealStore("workload-533", OWN_STORES)
    bench = Bench(packed, Path(shutil.copytree(unpacked(packed), tmp_path / "store")))
    file, position = bench.unit("SequenceDemo", 0, 7)
    bench.flip(file, position + 6)
    (bench.path / file).with_name("notes.txt").write_text("do not delete")
    (bench.path / bench.unit("SequenceDemo", 1, 0)[0]).unlink()
    (bench.path / bench.index_file(2)).unlink()
    bench.flip(bench.index_file(4), bench.entry(20) + 2)
    os.truncate(bench.path / "checkpoint", 100)
    return bench


@pytest.fixture(scope="module")
def original(unpacked: Unpack) -> dict[str, bytes]:
    """The files of the broker, all of which the repair makes again."""
    return files_of(unpacked(RealStore("workload-533", OWN_STORES)))


@pytest.mark.parametrize(("kind", "number"), moments())
def test_killed_at_a_moment_and_run_again(
    kind: str, number: int, bench: Bench, original: dict[str, bytes], tmp_path: Path
) -> None:
    damaged = files_of(bench.path)
    function, text, _ = MOMENTS[kind]
    conf = bench.packed.broker_conf
    command = [sys.executable, "-m", "tests.support.repaired", str(bench.path), str(conf)]
    with paused(command, f"{function}:{number}:{text}", tmp_path) as process:
        with pytest.raises(StoreLockedError):
            repair_here(bench.path, conf, apply=True)
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL
    left = files_of(bench.path)
    for name in {*damaged, *original, *left}:
        assert left.get(name) in (damaged.get(name), original.get(name))
    repair_here(bench.path, conf, apply=True, offsets=True)
    assert files_of(bench.path) == original
    while list((bench.path / ".spark_mq").glob("backup-*")):
        undo_repair(str(bench.path))
    assert files_of(bench.path) == damaged
