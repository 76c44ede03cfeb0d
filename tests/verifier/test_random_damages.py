"""Random damages: each is found, or it is in a field that no check can see, or it changes no byte.

The oracle (`spark_mq/testing/plain_check.py`) says which, from the broker's bytes and the facts. The other way round, a
store whose queues alone are damaged has findings at exactly the units that differ. `SPARK_MQ_SOAK=1` tries 10,000.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from spark_mq.testing.plain_check import Oracle
from tests.support.random_damages import FOLDERS, damage_bytes, files_of
from tests.support.soak import SOAKS
from tests.support.stores import WORKLOAD, Unpack
from tests.support.verified import check, grave

TRIES = 10_000 if SOAKS else 40


class Copy:
    """A copy of a store that is damaged and put right again and again."""

    def __init__(self, original: Path, path: Path) -> None:
        self.original, self.path = original, path
        shutil.copytree(original, path)

    def differs(self) -> bool:
        """Whether the damage changed a byte: zeros that are zeroed do not."""
        pairs = ((file, self.path / file.relative_to(self.original)) for f in FOLDERS for file in self._files(f))
        return any(file.read_bytes() != copy.read_bytes() for file, copy in pairs)

    def _files(self, folder: str) -> list[Path]:
        return files_of(self.original, folder)

    def restore(self) -> None:
        for folder in FOLDERS:
            for file in files_of(self.original, folder):
                copy = self.path / file.relative_to(self.original)
                content = file.read_bytes()
                if copy.read_bytes() != content:
                    copy.write_bytes(content)
                    stat = file.stat()
                    os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.fixture
def copy(unpacked: Unpack, tmp_path: Path) -> Copy:
    return Copy(unpacked(WORKLOAD), tmp_path / "store")


def test_every_damage_is_found_or_cannot_be_seen(copy: Copy) -> None:
    oracle, counts = Oracle(WORKLOAD, copy.original), Counter[str]()
    assert oracle.visible_changes(copy.path) == []
    _, before = check(copy.path, WORKLOAD.broker_conf)
    missed = []
    for seed in range(TRIES):
        done = damage_bytes(copy.path, random.Random(seed))
        visible = oracle.visible_changes(copy.path)
        _, findings = check(copy.path, WORKLOAD.broker_conf)
        found = grave([finding for finding in findings if finding not in before])
        if visible and not found:
            missed.append((seed, done, visible[:3]))
        counts["found" if found else "unseen" if copy.differs() else "harmless"] += 1
        copy.restore()
    print(dict(counts))
    assert not missed
    assert counts["found"] > TRIES // 2


def test_findings_about_queues_are_exactly_the_units_that_differ(copy: Copy) -> None:
    """A file that has another size or name is one finding; all others are named unit by unit."""
    for seed in range(TRIES // 4):
        chance = random.Random(seed)
        file = chance.choice(files_of(copy.path, "consumequeue"))
        before = file.read_bytes()
        data = bytearray(before)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        path = str(file.relative_to(copy.path))
        differ = {at for at in range(0, len(data), 20) if data[at : at + 20] != before[at : at + 20]}
        _, findings = check(copy.path, WORKLOAD.broker_conf)
        assert {(f.file, f.position) for f in grave(findings)} == {(path, at) for at in differ}, seed
        file.write_bytes(before)
