"""A check of queues in RocksDB: the units of the database against the log, and its repair."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict

from spark_mq.repairer.changes import undo_repair
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.rocksdb import ROCKS, key_of, opened, records
from tests.support.stores import files_of
from tests.support.verified import check

TOPIC, QUEUE = "PaymentLog", 1
LAST, AT = next(
    (fact["max"] - 1, fact["lastPhy"])
    for fact in ROCKS.facts("queue")
    if (fact["topic"], fact["queueId"]) == (TOPIC, QUEUE)
)
"""Queue offset and commit log offset of the queue's last message."""
Change = Callable[[Rdict], None]


def _put(offset: int, at: int, size: int) -> Change:
    def put(database: Rdict) -> None:
        database[key_of(TOPIC, QUEUE, offset)] = struct.pack(">qiqq", at, size, 0, 0)

    return put


def _delete(offset: int) -> Change:
    def delete(database: Rdict) -> None:
        del database[key_of(TOPIC, QUEUE, offset)]

    return delete


def changed(store: Path, change: Change, name: str = "consumequeue") -> None:
    with opened(store / name) as database:
        change(database)


def test_a_sound_database(tmp_path: Path) -> None:
    _, findings = check(ROCKS.unpack(tmp_path), ROCKS.broker_conf)
    assert findings == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_put(3, 4258, 99), "QUEUE_UNIT_WRONG"),
        (_delete(3), "QUEUE_UNIT_MISSING"),
        (_delete(LAST), "QUEUE_LAGS_CLEAN QUEUE_OFFSET_TABLE"),
        (_put(LAST + 1, 10**12, 99), "QUEUE_UNIT_STALE"),
    ],
    ids=["wrong", "missing", "last", "later"],
)
def test_a_damage_is_found_and_made_again(change: Change, code: str, tmp_path: Path) -> None:
    store = ROCKS.unpack(tmp_path)
    changed(store, change)
    _, findings = check(store, ROCKS.broker_conf)
    assert {finding.code for finding in findings} == set(code.split())
    code, *_ = code.split()
    assert {finding.file for finding in findings if finding.code == code} == {f"consumequeue/{TOPIC}/{QUEUE}/{0:020d}"}
    damaged = files_of(store)
    (left,) = {one.reason for one in repair_here(store, None).left}
    assert left.endswith("give them (--broker-conf)")
    report = repair_here(store, ROCKS.broker_conf, apply=True)
    assert report.after is not None
    assert report.after.is_sound
    assert records(store / "consumequeue", "default") == records(
        ROCKS.unpack(tmp_path / "sound") / "consumequeue", "default"
    )
    assert repair_here(store, ROCKS.broker_conf).actions == ()
    undo_repair(str(store))
    assert files_of(store) == damaged


def _put_end(kind: bytes, at: int, offset: int, queue: tuple[str, int] = (TOPIC, QUEUE)) -> Change:
    def put(database: Rdict) -> None:
        topic = queue[0].encode()
        key = struct.pack(">ib", len(topic), 1) + topic + b"\1" + kind + struct.pack(">bi", 1, queue[1])
        database.get_column_family("offset")[key] = struct.pack(">qq", at, offset)

    return put


def _put_checkpoint(value: int) -> Change:
    def put(database: Rdict) -> None:
        key = struct.pack(">ib", 16, 1) + b"CHECKPOINT_TOPIC\1max\1" + bytes(4)
        database.get_column_family("offset")[key] = struct.pack(">q", value)

    return put


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_put_end(b"max", AT, LAST - 1), f"max: queue offset {LAST - 1}, at commit log offset {AT}"),
        (_put_end(b"max", AT - 1, LAST), f"max: queue offset {LAST}, at commit log offset {AT - 1}"),
        (_put_end(b"min", AT, LAST), f"min: queue offset {LAST}, at commit log offset {AT}"),
        (_put_checkpoint(10**9), "checkpoint 1000000000"),
    ],
    ids=["queue offset", "commit log offset", "min", "checkpoint"],
)
def test_the_table_of_ends_is_held_against_the_units(change: Change, found: str, tmp_path: Path) -> None:
    store = ROCKS.unpack(tmp_path)
    changed(store, change)
    _, findings = check(store, ROCKS.broker_conf)
    assert [(one.code, one.found) for one in findings] == [("QUEUE_OFFSET_TABLE", found)]


@pytest.mark.parametrize(
    ("queue", "beyond", "is_sound"),
    [
        ((TOPIC, QUEUE), 0, True),
        ((TOPIC, QUEUE), 1, False),
        (("RMQ_SYS_TRANS_HALF_TOPIC", 0), 0, True),
        (("RMQ_SYS_TRANS_HALF_TOPIC", 0), 1, False),
    ],
)
def test_a_queue_begins_after_expired_messages_whose_units_are_left(
    queue: tuple[str, int], beyond: int, is_sound: bool, tmp_path: Path
) -> None:
    """A broker removes such units later (`RocksDBConsumeQueueOffsetTable.correctMinCqOffset`@5.5.0)."""
    store, start = ROCKS.unpack(tmp_path), ROCKS.facts("store")[0]["mappedFileSizeCommitLog"]
    (store / f"commitlog/{0:020d}").unlink()
    expired = [
        fact["queueOffset"]
        for fact in ROCKS.facts("msg")
        if (fact["topic"], fact["queueId"]) == queue and fact["offset"] < start
    ]
    changed(store, _put_end(b"min", start, max(expired) + 1 + beyond, queue))
    _, findings = check(store, ROCKS.broker_conf)
    codes = {(one.code, one.topic) for one in findings if one.severity != "note"}
    assert codes == (set() if is_sound else {("QUEUE_OFFSET_TABLE", queue[0])})


@pytest.fixture(params=["consumequeue", "consumequeue_rocksdb"])
def double(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A store whose queues are in files, too; and its database."""
    store = ROCKS.unpack(tmp_path)
    database = store / "consumequeue"
    rebuild_here(store, tmp_path / "files", broker_conf=str(ROCKS.broker_conf), only="consumequeue")
    if request.param != database.name:
        database = database.rename(store / request.param)
    shutil.copytree(tmp_path / "files" / "consumequeue", store / "consumequeue", dirs_exist_ok=True)
    return store, database


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda database: None, None),
        (_put(3, 4258, 99), "QUEUE_UNIT_WRONG"),
        (_delete(3), "QUEUE_UNIT_MISSING"),
        (_put_checkpoint(10**9), "QUEUE_OFFSET_TABLE"),
    ],
    ids=["sound", "wrong", "missing", "checkpoint"],
)
def test_a_database_beside_files_is_held_against_the_log(
    change: Change, code: str | None, double: tuple[Path, Path], tmp_path: Path
) -> None:
    store, database = double
    changed(store, change, database.name)
    _, findings = check(store, ROCKS.broker_conf)
    assert [one.code for one in findings] == ([] if code is None else [code])
    assert all((one.file or "").startswith(f"{database.name} (RocksDB)") for one in findings)
    repair_here(store, ROCKS.broker_conf, tmp_path / "repaired", apply=True)
    made = {path.parent.name for path in (tmp_path / "repaired").glob("*/CURRENT")}
    assert made == (set() if code is None else {database.name})
    report = repair_here(store, ROCKS.broker_conf, apply=True)
    assert (report.after or report.before).is_sound
    assert {Path(action.change.file).parent.name for action in report.actions} == made


def test_offsets_of_consumers_in_a_database_stay_as_they_are(tmp_path: Path) -> None:
    store = ROCKS.unpack(tmp_path)
    _, *others = sorted((store / "commitlog").iterdir())
    for segment in others:
        segment.unlink()
    report = repair_here(store, ROCKS.broker_conf, apply=True, offsets=True)
    assert "OFFSET_PAST_END" in {left.code for left in report.left}
    assert not (store / "config/consumerOffset.json").exists()
    assert repair_here(store, ROCKS.broker_conf, offsets=True).actions == ()


def test_no_database_is_made_of_a_log_without_messages(tmp_path: Path) -> None:
    store = ROCKS.unpack(tmp_path)
    for segment in (store / "commitlog").iterdir():
        os.truncate(segment, 0)
    for _ in range(2):
        report = repair_here(store, ROCKS.broker_conf, apply=True)
        assert "the log has no message of which units could be made" in {left.reason for left in report.left}
    assert report.actions == ()
