"""Copies of compacted topics: each damage is found, or changes no byte that a broker reads."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from spark_mq.format.consume_queue import BATCH_UNIT_SIZE
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, RealStore, Unpack
from tests.support.verified import check, grave

STORE = RealStore("fCompact533", OWN_STORES / "forms")
TRIES = 500 if SOAKS else 40
UNITS = (27, 29)
LOG, QUEUE = "compaction/compactionLog/b1comp/0", "compaction/compactionCq/b1comp/0"


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(STORE), tmp_path / "store", ignore=shutil.ignore_patterns("timer*")))


def found(store: Path) -> dict[str, set[str | None]]:
    """The files by the codes of findings."""
    files: dict[str, set[str | None]] = {}
    for one in grave(check(store, STORE.broker_conf)[1]):
        files.setdefault(one.code, set()).add(one.file)
    return files


def test_the_copies_of_a_broker_are_sound(unpacked: Unpack) -> None:
    findings = check(unpacked(STORE), STORE.broker_conf)[1]
    assert grave(findings) == []
    assert not [one for one in findings if one.code == "NOT_CHECKED"]


def test_each_damage_is_found_or_is_in_bytes_that_nobody_reads(store: Path) -> None:
    """After the last unit of a file, brokers read nothing: the next unit is written over it."""
    files = sorted(file for file in (store / "compaction").rglob("0*0") if file.is_file())
    before = {file: file.read_bytes() for file in files}
    for seed in range(TRIES):
        chance = random.Random(seed)
        file = chance.choice(files)
        is_queue = "compactionCq" in str(file)
        used = len(before[file].rstrip(b"\0")) if not is_queue else UNITS[int(file.parent.name)] * BATCH_UNIT_SIZE
        position = chance.randrange(used)
        data = bytearray(before[file])
        data[position] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        folder = str(file.parent.relative_to(store))
        damaged = {name for code, names in found(store).items() if code.startswith("COMPACTION") for name in names}
        assert folder in damaged, (seed, folder, position)
        assert all((name or "").endswith(f"b1comp/{file.parent.name}") for name in damaged), seed
        file.write_bytes(before[file])
    assert found(store) == {}


def test_units_in_another_order_are_found(store: Path) -> None:
    file = store / QUEUE / f"{0:020d}"
    data = file.read_bytes()
    first, second = data[:BATCH_UNIT_SIZE], data[BATCH_UNIT_SIZE : 2 * BATCH_UNIT_SIZE]
    file.write_bytes(second + first + data[2 * BATCH_UNIT_SIZE :])
    assert found(store) == {"COMPACTION_UNIT": {QUEUE}}


def test_a_copy_that_lost_its_end_is_found(store: Path) -> None:
    """The broker cut log and queue at the same place, or a snapshot did."""
    log, queue = store / LOG / f"{0:020d}", store / QUEUE / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:32_458].ljust(log.stat().st_size, b"\0"))
    queue.write_bytes(queue.read_bytes()[: 25 * BATCH_UNIT_SIZE].ljust(queue.stat().st_size, b"\0"))
    assert found(store) == {"COMPACTION_MISSING": {LOG}}


@pytest.mark.parametrize(("position", "is_sound"), [(26, True), (27, False), ("x", False), (None, False)])
def test_a_position_after_the_end_of_its_copy_is_found(store: Path, position: object, is_sound: bool) -> None:
    file = store / "compaction" / "position-checkpoint"
    file.write_text("{" if position is None else json.dumps({"queueOffsetMap": {"b1comp_0": position}}))
    expected = {} if is_sound else {"COMPACTION_POSITION": {"compaction/position-checkpoint"}}
    assert found(store) == expected
