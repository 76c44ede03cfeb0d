"""The index rebuilt into RocksDB: records of a broker's own database, and of what Java read of other messages."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.errors import CorruptLogError, MissingPackageError, OptionError
from spark_mq.indexer import rebuild, rebuild_request, staged_files
from tests.support.rebuilt import rebuild_here
from tests.support.rocksdb import ALL_IN_ROCKS, cut_manifest, flip_tables, opened
from tests.support.rocksdb import records as records_in
from tests.support.stores import SHARED_STORES, WORKLOAD, Fact, RealStore, Unpack

FAMILIES = "default", "timer", "trans"
STORES = [ALL_IN_ROCKS, RealStore("fIdxRocks550", SHARED_STORES / "forms")]
HOUR = 3_600_000


def records(database: Path) -> dict[str, dict[bytes, bytes]]:
    return {family: records_in(database, family) for family in FAMILIES}


def records_of(fact: Fact) -> dict[bytes, bytes]:
    """`IndexRocksDBStore.buildIndex`, `IndexRocksDBRecord.getKeyBytes`@5.5.0."""
    if not fact["uniqKey"] or fact["sysFlag"] & 0xC == 0xC:
        return {}
    names = [f"K@{key}@" for key in (fact["keys"] or "").split(" ") if key]
    names += [f"T@{fact['tags']}@"] if fact["tags"] else []
    time, begin, end = fact["storeTimestamp"], f"@{fact['topic']}@", f"{fact['uniqKey']}@"
    texts = [begin + name + end for name in (*names, "U@")]
    hour, offset = struct.pack(">q", time // HOUR * HOUR), struct.pack(">q", fact["offset"])
    return {hour + text.encode() + offset: struct.pack(">q", time) for text in texts}


def with_odd_key(store: Path, fact: Fact) -> Fact:
    """A message after the first byte of its keys became one that is not UTF-8."""
    segment = max(file for file in (store / "commitlog").iterdir() if int(file.name) <= fact["offset"])
    data = bytearray(segment.read_bytes())
    name = b"KEYS\1"
    data[data.index(name + fact["keys"].encode(), fact["offset"] - int(segment.name)) + len(name)] = 0xFF
    segment.write_bytes(data)
    return {**fact, "keys": "\ufffd" + fact["keys"][1:]}


@pytest.fixture
def conf(tmp_path: Path) -> str:
    """The settings of the broker of `WORKLOAD`, with an index in RocksDB."""
    file = tmp_path / "broker.conf"
    file.write_text(WORKLOAD.broker_conf.read_text() + "\nindexRocksDBEnable=true\n")
    return str(file)


@pytest.mark.parametrize("sizes", [(128 << 20, 32 << 20), (40_000, 5_000)], ids=["one table", "many tables"])
@pytest.mark.parametrize("store", STORES, ids=str)
def test_the_records_are_those_of_the_broker(
    store: RealStore, sizes: tuple[int, int], unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not store.broker_conf.is_file():
        pytest.skip("the shared stores are not here")
    split_size, table_size = sizes
    monkeypatch.setattr(staged_files, "_TABLE_SIZE", table_size)
    original = unpacked(store)
    report = rebuild_here(original, tmp_path, broker_conf=str(store.broker_conf), only="index", split_size=split_size)
    made, wanted = records(tmp_path / "rocksdbstore"), records(original / "rocksdbstore")
    assert made == wanted
    assert report.index_records == len(wanted["default"]) - 2
    assert report.trees == ["index", "rocksdbstore"]
    assert report.notes == []


@pytest.mark.parametrize("table_size", [32 << 20, 2_000])
def test_any_message_has_the_records_of_its_keys(
    table_size: int, conf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that are not UTF-8, repeated keys, messages without a unique key, and rolled back transactions."""
    monkeypatch.setattr(staged_files, "_TABLE_SIZE", table_size)
    store, facts = WORKLOAD.unpack(tmp_path), WORKLOAD.facts("msg")
    assert any(len(set(keys)) < len(keys) for keys in ((fact["keys"] or "").split(" ") for fact in facts))
    with_keys = [fact for fact in facts if fact["keys"] and fact["keys"].isascii()]
    changed = [with_odd_key(store, fact) for fact in with_keys[:20]]
    facts = [*changed, *(fact for fact in facts if fact["offset"] not in {one["offset"] for one in changed})]
    rebuild_here(store, tmp_path / "out", broker_conf=conf, only="index")
    found = records(tmp_path / "out" / "rocksdbstore")
    wanted = {key: value for fact in facts for key, value in records_of(fact).items()}
    ends = {found["default"].pop(name) for name in (b"lastOffsetPy", b"lastStoreTimeStamp")}
    assert found == {"default": wanted, "timer": {}, "trans": {}}
    indexed = [fact for fact in facts if records_of(fact)]
    last = max(fact["offset"] for fact in indexed), max(fact["storeTimestamp"] for fact in indexed)
    assert ends == {struct.pack(">q", number) for number in last}


def test_the_records_are_made_without_index_files(unpacked: Unpack, conf: str, tmp_path: Path) -> None:
    """`CommitLogDispatcherBuildIndex`@5.5.0 with indexFileWriteEnable=false."""
    with Path(conf).open("a") as file:
        file.write("indexFileWriteEnable=false\n")
    report = rebuild_here(unpacked(WORKLOAD), tmp_path / "out", broker_conf=conf, only="index")
    assert report.trees == ["rocksdbstore"]
    assert len(records(tmp_path / "out/rocksdbstore")["default"]) == report.index_records + 2 > 2


def test_a_killed_job_is_continued(tmp_path: Path) -> None:
    store, conf = ALL_IN_ROCKS.unpack(tmp_path), str(ALL_IN_ROCKS.broker_conf)
    killed = mock.patch.object(rebuild, "write_index_database", side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        rebuild_here(store, tmp_path / "out", broker_conf=conf, only="index")
    report = rebuild_here(store, tmp_path / "out", broker_conf=conf, only="index", resume=True)
    assert report.segments_staged_before == len(list((store / "commitlog").iterdir())) - 1
    assert records(tmp_path / "out" / "rocksdbstore") == records(store / "rocksdbstore")


@pytest.mark.parametrize("damage", [flip_tables, cut_manifest, lambda folder: (folder / "CURRENT").unlink()])
def test_timers_that_cannot_be_copied_are_not_lost_in_silence(damage: Callable[[Path], None], tmp_path: Path) -> None:
    store, conf = ALL_IN_ROCKS.unpack(tmp_path), str(ALL_IN_ROCKS.broker_conf)
    wanted = records(store / "rocksdbstore")["default"]
    damage(store / "rocksdbstore")
    with pytest.raises(CorruptLogError, match="timers and transactions are not copied"):
        rebuild_here(store, broker_conf=conf, only="index", replace=True)
    report = rebuild_here(store, broker_conf=conf, only="index", replace=True, mode="permissive")
    assert [corrupt.code for corrupt in report.corrupt] == ["INDEX_DATABASE"]
    assert records(store / "rocksdbstore") == {"default": wanted, "timer": {}, "trans": {}}


def test_what_cannot_be_done_is_an_error(unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, conf = tmp_path / "store", str(ALL_IN_ROCKS.broker_conf)
    shutil.copytree(unpacked(ALL_IN_ROCKS), store)
    with pytest.raises(OptionError, match="is a database, which is not continued"):
        rebuild_here(store, broker_conf=conf, only="index", resume=True)
    monkeypatch.setattr(rebuild_request, "can_read_rocksdb", lambda: False)
    with pytest.raises(MissingPackageError, match="indexRocksDBEnable: run pip install"):
        rebuild_here(store, tmp_path / "out", broker_conf=conf, only="index")


def test_transactions_are_copied(tmp_path: Path) -> None:
    store, conf = ALL_IN_ROCKS.unpack(tmp_path), str(ALL_IN_ROCKS.broker_conf)
    with opened(store / "rocksdbstore") as database:
        database.get_column_family("trans")[struct.pack(">q", 7) + b"@topic@key"] = bytes(8)
    wanted = records(store / "rocksdbstore")
    rebuild_here(store, broker_conf=conf, only="index", replace=True)
    assert records(store / "rocksdbstore") == wanted
    assert wanted["trans"]
