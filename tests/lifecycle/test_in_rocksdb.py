"""Timers and transactions of a broker that keeps them in RocksDB (`timerRocksDBEnable`, `transRocksDBEnable`).

The tables are made of the log, which has all of it. The judge is the database: what a broker still has to do.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.main import main
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import RocksDatabase
from tests.support.rocksdb import ALL_IN_ROCKS
from tests.support.stores import SHARED_STORES, RealStore, Unpack

STORES = [ALL_IN_ROCKS]
if (SHARED_STORES / "forms" / "fTimerRocks550.tar.gz").is_file():
    STORES.append(RealStore("fTimerRocks550", SHARED_STORES / "forms"))
OPEN = ("WAITING", "OVERDUE")


@pytest.fixture(params=STORES, ids=str)
def store(request: pytest.FixtureRequest, unpacked: Unpack) -> Path:
    return unpacked(request.param)


@pytest.fixture
def database(store: Path) -> Iterator[RocksDatabase]:
    opened = RocksDatabase(Location.resolve(str(store / "rocksdbstore")))
    yield opened
    opened.close()


def rows(table: str, store: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert main([table, str(store), "--json"]) == FOUND
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_open_timers_are_those_of_the_timeline(
    store: Path, database: RocksDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record has due time and unique key, and size and offset; a broker removes delivered ones some time later."""
    timeline = dict(database.items("timer"))
    (checkpoint,) = struct.unpack(">q", timeline[b"timeline_checkpoint"])
    records = {
        (key[8:].decode(), struct.unpack(">iq", value)[1])
        for key, value in timeline.items()
        if len(value) == 12 and struct.unpack_from(">q", key)[0] >= checkpoint
    }
    found = [row for row in rows("delayed", store, capsys) if row["delayed_by"] == "TIMER"]
    assert any(row["state"] == "DELIVERED" for row in found)
    waiting = [(row["unique_key"], row["waiting_offsets"]) for row in found if row["state"] in OPEN]
    assert sorted(waiting) == sorted((key, [offset]) for key, offset in records)
    assert records


def test_no_half_message_is_open_if_the_broker_has_none(
    store: Path, database: RocksDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker deletes the record of a half message that is committed, rolled back, or given up."""
    assert [key for key, _ in database.items("trans") if key != b"lastOffsetPy"] == []
    states = {row["state"] for row in rows("transactions", store, capsys)}
    assert states == {"COMMITTED", "ROLLED_BACK", "DISCARDED"}
