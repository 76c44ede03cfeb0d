"""A check of queues in RocksDB: the units of the database against the log, and no repair of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from tests.support.repaired import repair_here
from tests.support.rocksdb import ROCKS, key_of
from tests.support.verified import check, grave

TOPIC, QUEUE = "b1_Main", 1
Change = Callable[[Rdict], None]


def _put(offset: int, at: int, size: int) -> Change:
    def put(database: Rdict) -> None:
        database[key_of(TOPIC, QUEUE, offset)] = struct.pack(">qiqq", at, size, 0, 0)

    return put


def _delete(offset: int) -> Change:
    def delete(database: Rdict) -> None:
        del database[key_of(TOPIC, QUEUE, offset)]

    return delete


def changed(store: Path, change: Change) -> None:
    families = Rdict.list_cf(str(store / "consumequeue"), Options(raw_mode=True))
    options = {name: Options(raw_mode=True) for name in families}
    database = Rdict(str(store / "consumequeue"), Options(raw_mode=True), options)
    change(database)
    database.close()


def test_a_sound_database(tmp_path: Path) -> None:
    _, findings = check(ROCKS.unpack(tmp_path), ROCKS.broker_conf)
    assert grave(findings) == []
    assert {finding.code for finding in findings} == {"NOT_CHECKED"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_put(3, 4258, 99), "QUEUE_UNIT_WRONG"),
        (_delete(3), "QUEUE_UNIT_MISSING"),
        (_delete(46), "QUEUE_LAGS_CLEAN"),
        (_put(47, 10**12, 99), "QUEUE_UNIT_STALE"),
    ],
    ids=["wrong", "missing", "last", "later"],
)
def test_a_damage_is_found_and_left(change: Change, code: str, tmp_path: Path) -> None:
    store = ROCKS.unpack(tmp_path)
    changed(store, change)
    _, findings = check(store, ROCKS.broker_conf)
    assert {finding.code for finding in findings} - {"NOT_CHECKED"} == {code}
    assert {finding.file for finding in findings if finding.code == code} == {f"consumequeue/{TOPIC}/{QUEUE}/{0:020d}"}
    report = repair_here(store, str(ROCKS.broker_conf), tmp_path / "repaired")
    assert not (tmp_path / "repaired" / "consumequeue").exists()
    assert [one.reason for one in report.left if one.code == code] == [
        f"consumequeue/{TOPIC}/{QUEUE}/{0:020d} is in a RocksDB database, which is not changed: rebuild with --output"
    ]
