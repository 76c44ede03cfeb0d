"""The files of a snapshot, read as those of a store. No Spark here."""

from __future__ import annotations

import pytest
from pyarrow import fs

from spark_mq.archive.snapshot_files import snapshot_location
from spark_mq.errors import ConfigError
from spark_mq.store.config.config_file import ConsumerOffset, load_config, load_consumer_offsets

OFFSETS = b'{"offsetTable":{"orders@billing":{0:5}}}'


def test_files_are_read_as_those_of_a_store() -> None:
    store = snapshot_location({"config/consumerOffset.json": OFFSETS, "checkpoint": b"abc"}, "/lake/m_snapshots")
    assert load_consumer_offsets(store) == [ConsumerOffset("billing", "orders", 0, 5)]
    assert load_config(store, "topics.json", dict) is None
    assert (store / "checkpoint").read_bytes() == b"abc"
    assert [info.base_name for info in (store / "config").entries()] == ["consumerOffset.json"]
    assert [info.type for info in store.entries()] == [fs.FileType.File, fs.FileType.Directory]
    assert (store / "timerlog").entries() == []
    with pytest.raises(FileNotFoundError):
        (store / "abort").read_bytes()
    with pytest.raises(OSError, match="cannot be changed"):
        (store / "checkpoint").delete()


def test_a_backup_and_a_database_count_as_in_a_store() -> None:
    broken = {"config/consumerOffset.json": b"{", "config/consumerOffset.json.bak": OFFSETS}
    assert load_consumer_offsets(snapshot_location(broken, "s"))[0].offset == 5
    del broken["config/consumerOffset.json.bak"]
    with pytest.raises(ConfigError, match=r"^/lake/m_snapshots/config/consumerOffset.json: "):
        load_consumer_offsets(snapshot_location(broken, "/lake/m_snapshots"))
    database = {"config/rdb/CURRENT": b"", "config/rdb/MANIFEST-000004": b""}
    with pytest.raises(ConfigError, match="config/rdb: RocksDB does not open this database"):
        load_consumer_offsets(snapshot_location(database, "s"))
