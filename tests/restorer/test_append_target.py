"""Stores to which nothing can be appended, and why. No Spark here."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.errors import StoreLockedError, UnfinishedAppendError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.restorer.append import appending
from spark_mq.restorer.append_target import AppendTarget
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.store_lock import store_lock
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of

CRC = RealStore("crc-533", OWN_STORES)
CONF = BrokerConf.of(str(CRC.broker_conf))


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(CRC), tmp_path / "store"))


def target_of(store: Path, conf: BrokerConf = CONF) -> AppendTarget:
    return AppendTarget(Location.resolve(str(store)), conf)


def in_rocksdb(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").mkdir()
    for name in ("CURRENT", "MANIFEST-000001"):
        (store / "consumequeue" / name).touch()


def without_last_entry(store: Path) -> None:
    """A broker that was killed between two keys of the last message."""
    file = max((store / "index").iterdir())
    data = bytearray(file.read_bytes())
    data[36:40] = (int.from_bytes(data[36:40], "big") - 1).to_bytes(4, "big")
    file.write_bytes(data)


def consumed_too_far(store: Path) -> None:
    table = {"offsetTable": {"OrderEvents@GID": {"0": 1 << 40}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table))


def without_a_segment(store: Path) -> None:
    first, *_ = sorted((store / "commitlog").iterdir())
    shutil.copy(first, first.with_name(f"{1 << 40:020d}"))


def with_a_link(store: Path) -> None:
    """As in a folder `commitlog/` of links to the segments of several folders of `storePathCommitLog`."""
    segment = max((store / "commitlog").iterdir())
    segment.rename(store.parent / segment.name)
    segment.symlink_to(store.parent / segment.name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_a_link, "is a link: its broker would not find what is appended"),
        (lambda store: (store / "abort").touch(), "abort .*stop it cleanly"),
        (in_rocksdb, "RocksDB"),
        (lambda store: max((store / "index").iterdir()).unlink(), "the index lacks the keys of the message at commit"),
        (lambda store: shutil.rmtree(store / "index"), "the index lacks .* offset 0.*messageIndexEnable"),
        (without_last_entry, "the index lacks the keys|the last entry is of|the header ends"),
        (lambda store: shutil.rmtree(store / "consumequeue"), "has no files that can be read, but the log has"),
        (lambda store: shutil.rmtree(store / "consumequeue/OrderEvents/0"), "OrderEvents/0: it has no files"),
        (lambda store: (store / "commitlog/notes.txt").touch(), "no broker starts on it: commitlog/notes.txt"),
        (lambda store: os.truncate(max((store / "commitlog").iterdir()), 100_000), "100,000 bytes|no broker starts"),
        (without_a_segment, "is not a segment of this log"),
        (consumed_too_far, "OrderEvents/0: .*a consumer group has consumed it up to"),
    ],
)
def test_a_store_that_is_refused(change: Callable[[Path], object], reason: str, store: Path) -> None:
    target_of(store)
    change(store)
    before = tree_of(store)
    with pytest.raises(UnsupportedStoreError, match=f"(?s){reason}"):
        target_of(store)
    with pytest.raises(UnsupportedStoreError), appending(Location.resolve(str(store)), CONF):
        pass
    (store / "lock").unlink(missing_ok=True)
    assert tree_of(store) == before


def test_a_store_whose_queues_lack_messages(unpacked: Unpack) -> None:
    lagging = RealStore("lagging-533", OWN_STORES)
    with pytest.raises(UnsupportedStoreError, match=r"LastQueue/0: it lacks at least 3 messages.*rebuild"):
        target_of(unpacked(lagging), BrokerConf.of(str(lagging.broker_conf)))


def test_a_store_with_a_lock(store: Path) -> None:
    location = Location.resolve(str(store))
    with store_lock(location):
        assert target_of(store).log_end
        with pytest.raises(StoreLockedError), appending(location, CONF):
            pass


def test_a_store_that_is_not_local() -> None:
    location = Location.resolve("s3://bucket/store")
    with pytest.raises(UnsupportedStoreError, match="local"):
        AppendTarget(location, CONF)
    with pytest.raises(UnsupportedStoreError, match="local"), appending(location, CONF):
        pass


def test_a_store_without_an_index(store: Path) -> None:
    shutil.rmtree(store / "index")
    assert not target_of(store, BrokerConf({**CONF.settings, "messageIndexEnable": "false"})).has_index


def test_nobody_reads_a_store_with_some_files_of_an_append(store: Path) -> None:
    (store / "commitlog" / "append-unfinished").write_text("text")
    for read in (lambda: MessageStore(str(store)), lambda: target_of(store)):
        with pytest.raises(UnfinishedAppendError, match="spark-mq restore --append"):
            read()
