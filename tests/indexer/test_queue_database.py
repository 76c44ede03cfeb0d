"""Queues rebuilt into RocksDB: the records of a broker's own database, and of stores whose queues are in files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_mq.errors import OptionError, OutputExistsError, UnsupportedStoreError
from spark_mq.store.message_store import MessageStore
from tests.support.rebuilt import rebuild_here
from tests.support.rocksdb import ALL_IN_ROCKS, ROCKS, records
from tests.support.stores import OWN_STORES, WORKLOAD, RealStore, Unpack
from tests.support.verified import check

DELETED = RealStore("deleted-533", OWN_STORES)


@pytest.mark.parametrize("store", [ROCKS, ALL_IN_ROCKS], ids=str)
def test_the_records_are_those_of_the_broker(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    """A broker writes `min` only when it is asked for it, and of queues without messages, too."""
    original = unpacked(store)
    conf = str(store.broker_conf)
    report = rebuild_here(original, tmp_path, broker_conf=conf, only="consumequeue", queue_store="rocksdb")
    made, wanted = tmp_path / "consumequeue", original / "consumequeue"
    assert records(made, "default") == records(wanted, "default")
    assert report.units == len(records(wanted, "default"))
    ends, of_broker = records(made, "offset"), records(wanted, "offset")
    assert {key: value for key, value in ends.items() if b"\1min\1" not in key} == {
        key: value for key, value in of_broker.items() if b"\1min\1" not in key
    }
    assert sum(b"\1min\1" in key for key in ends) == report.queues
    names = {path.name for path in made.iterdir()}
    assert not [name for name in names if name.startswith("LOG") or not name.isascii() or "rocksdict" in name]


@pytest.mark.parametrize("store", [WORKLOAD, DELETED], ids=str)
def test_queues_of_files_answer_the_same_in_a_database(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    """Queues whose messages have all expired go on at their next offset."""
    path, conf = tmp_path / "store", str(store.broker_conf)
    shutil.copytree(unpacked(store), path)
    rebuild_here(path, broker_conf=conf, only="consumequeue", queue_store="rocksdb", replace=True)
    assert (path / "consumequeue" / "CURRENT").is_file()
    first: dict[tuple[str, int], int] = {}
    for fact in store.facts("msg"):
        if fact["sysFlag"] & 0xC not in (0x4, 0xC):
            first.setdefault((fact["topic"], fact["queueId"]), fact["queueOffset"])
    with MessageStore(str(path), broker_conf=conf) as opened:
        assert set(opened.queues) == set(first)
        for fact in store.facts("queue"):
            queue = fact["topic"], fact["queueId"]
            if queue in first:  # in files, a queue can begin with pre-blank units
                ends = opened.get_min_offset_in_queue(*queue), opened.get_max_offset_in_queue(*queue)
                assert ends == (first[queue], fact["max"]), queue
            else:
                assert fact["min"] == fact["max"], queue
    ends_of_queues = records(path / "consumequeue", "offset")
    for fact in store.facts("queue"):
        name = fact["topic"].encode()
        key = len(name).to_bytes(4, "big") + b"\1" + name + b"\1max\1" + fact["queueId"].to_bytes(4, "big")
        assert int.from_bytes(ends_of_queues[key][8:], "big") == fact["max"] - 1, fact
    _, findings = check(path, store.broker_conf)
    assert not [one for one in findings if one.code.startswith("QUEUE")]


def test_files_of_a_database_and_a_database_of_files(unpacked: Unpack, tmp_path: Path) -> None:
    """Both ways, in place: the second database has the records of the broker's."""
    path, conf = tmp_path / "store", str(ROCKS.broker_conf)
    shutil.copytree(unpacked(ROCKS), path)
    wanted = [records(path / "consumequeue", family) for family in ("default", "offset")]
    rebuild_here(path, broker_conf=conf, only="consumequeue", queue_store="files", replace=True)
    assert not (path / "consumequeue" / "CURRENT").exists()
    assert check(path, ROCKS.broker_conf)[0].is_sound
    rebuild_here(path, broker_conf=conf, only="consumequeue", queue_store="rocksdb", replace=True)
    made = [records(path / "consumequeue", family) for family in ("default", "offset")]
    assert made[0] == wanted[0]
    assert made[1].keys() & wanted[1].keys() == {key for key in wanted[1] if key in made[1]}
    assert check(path, ROCKS.broker_conf)[0].is_sound


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue_store": "rock"}, "--queue-store 'rock' is none of files, rocksdb"),
        ({"queue_store": "rocksdb", "only": "index"}, "--queue-store has no effect on the index"),
        ({"queue_store": "rocksdb", "topic": "PaymentLog"}, "leave out --topic"),
        ({"queue_store": "rocksdb", "resume": True}, "is a database, which is not continued"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_an_error(options: dict[str, Any], said: str, unpacked: Unpack, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(unpacked(ROCKS), path)
    with pytest.raises(OptionError, match=said):
        rebuild_here(path, broker_conf=str(ROCKS.broker_conf), **options)


@pytest.mark.parametrize("packed", [ROCKS, RealStore("fLite550", OWN_STORES / "forms")], ids=str)
def test_a_database_that_does_not_open_is_replaced(packed: RealStore, tmp_path: Path) -> None:
    path, conf = packed.unpack(tmp_path), str(packed.broker_conf)
    (path / "consumequeue/CURRENT").write_text("MANIFEST-999999\n")
    rebuild_here(path, broker_conf=conf, only="consumequeue", replace=True, queue_store=_QUEUE_STORES[packed.name])
    assert check(path, packed.broker_conf)[0].is_sound


_QUEUE_STORES = {"fRocks550": "rocksdb", "fLite550": None}


def test_a_database_is_not_replaced_without_being_told(unpacked: Unpack, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(unpacked(ROCKS), path)
    before = records(path / "consumequeue", "default")
    with pytest.raises(OutputExistsError):
        rebuild_here(path, broker_conf=str(ROCKS.broker_conf), only="consumequeue", queue_store="rocksdb")
    for replace in (False, True):
        with pytest.raises(UnsupportedStoreError, match="give another --output"):
            rebuild_here(path, broker_conf=str(ROCKS.broker_conf), replace=replace)
    assert records(path / "consumequeue", "default") == before
