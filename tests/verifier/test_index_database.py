"""A check of an index in RocksDB: its records against the log."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict

from tests.support.rocksdb import ALL_IN_ROCKS, cut_manifest, flip_tables, opened
from tests.support.verified import check

HOUR = 3_600_000
FACT = next(fact for fact in ALL_IN_ROCKS.facts("msg") if fact["keys"] and fact["uniqKey"] and fact["offset"] > 5000)
KEY = next(key for key in FACT["keys"].split(" ") if key)
Change = Callable[[Rdict], None]


def record(kind: str, text: str, offset: int = FACT["offset"], time: int = FACT["storeTimestamp"]) -> bytes:
    """`IndexRocksDBRecord.getKeyBytes`@5.5.0."""
    names = f"@{FACT['topic']}@{kind}@{text}@" if kind == "U" else f"@{FACT['topic']}@{kind}@{text}@{FACT['uniqKey']}@"
    return struct.pack(">q", time // HOUR * HOUR) + names.encode() + struct.pack(">q", offset)


def _delete(key: bytes) -> Change:
    def delete(database: Rdict) -> None:
        assert key in database
        del database[key]

    return delete


def _put(key: bytes, time: int = FACT["storeTimestamp"]) -> Change:
    def put(database: Rdict) -> None:
        database[key] = struct.pack(">q", time)

    return put


def changed(store: Path, change: Change) -> None:
    with opened(store / "rocksdbstore") as database:
        change(database)


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        (lambda database: None, None, None),
        (_delete(record("K", KEY)), f"K {KEY}", "nothing else"),
        (_delete(record("U", FACT["uniqKey"])), f"U {FACT['uniqKey']}", "nothing else"),
        (_put(record("K", "other")), "nothing else", "K other"),
        (_put(record("K", KEY), 5), f"K {KEY}", "nothing else"),
        (_put(record("K", KEY), FACT["storeTimestamp"] // HOUR * HOUR), f"K {KEY}", f"K {KEY}"),
    ],
    ids=["sound", "no key", "no unique key", "another key", "time of another hour", "time"],
)
def test_records_are_held_against_the_log(
    change: Change, expected: str | None, found: str | None, tmp_path: Path
) -> None:
    store = ALL_IN_ROCKS.unpack(tmp_path)
    changed(store, change)
    _, findings = check(store, ALL_IN_ROCKS.broker_conf)
    of_index = [(one.commit_log_offset, one.expected, one.found) for one in findings if one.code == "INDEX_DATABASE"]
    assert of_index == ([] if expected is None else [(FACT["offset"], expected, found)])
    assert {one.code for one in findings} <= {"INDEX_DATABASE", "NOT_CHECKED"}


@pytest.mark.parametrize("millis", [-HOUR, HOUR, HOUR // 2, 1 << 50, 128, -1])
def test_a_record_of_another_hour_is_found(millis: int, tmp_path: Path) -> None:
    """A broker looks only into the hours of the time range that it is asked for."""
    store = ALL_IN_ROCKS.unpack(tmp_path)
    right = record("K", KEY)
    changed(store, _delete(right))
    changed(store, _put(struct.pack(">q", int.from_bytes(right[:8], "big") + millis) + right[8:]))
    _, findings = check(store, ALL_IN_ROCKS.broker_conf)
    assert [one.expected for one in findings if one.code == "INDEX_DATABASE"] == [f"K {KEY}"]


def test_a_record_that_leads_to_no_message_is_found(tmp_path: Path) -> None:
    store = ALL_IN_ROCKS.unpack(tmp_path)
    changed(store, _put(record("K", KEY, FACT["offset"] + 1)))
    _, findings = check(store, ALL_IN_ROCKS.broker_conf)
    assert [one.found for one in findings if one.code == "INDEX_DATABASE"] == [f"K {KEY}"]


def test_an_index_that_begins_later_has_a_note(tmp_path: Path) -> None:
    """The setting was switched on later: the broker puts no earlier messages into the database."""
    store = ALL_IN_ROCKS.unpack(tmp_path)
    first = FACT["offset"]

    def delete_before(database: Rdict) -> None:
        for key in list(database.keys()):
            assert isinstance(key, bytes)
            if key.startswith(b"\0") and struct.unpack(">q", key[-8:])[0] < first:
                del database[key]

    changed(store, delete_before)
    _, findings = check(store, ALL_IN_ROCKS.broker_conf)
    assert {one.code for one in findings} == {"NOT_CHECKED"}
    assert any(f"from commit log offset {first} on" in (one.found or "") for one in findings)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip_tables, "RocksDB does not"),
        (cut_manifest, ".sst"),
        (lambda folder: (folder / "CURRENT").unlink(), "RocksDB does not open"),
    ],
    ids=["table", "list of tables", "no list of tables"],
)
def test_a_database_that_is_damaged_is_a_finding(damage: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    store = ALL_IN_ROCKS.unpack(tmp_path)
    damage(store / "rocksdbstore")
    _, findings = check(store, ALL_IN_ROCKS.broker_conf)
    assert any(said in (one.found or "") for one in findings if one.code == "INDEX_DATABASE")
