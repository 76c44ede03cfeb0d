"""Files of `config/` that a broker keeps in RocksDB, in each of the three layouts."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from spark_mq.errors import ConfigError
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import configured_topics, load_config, load_consumer_offsets
from tests.support.rocksdb import ROCKS, write_database

TOPIC = {"topicName": "t", "readQueueNums": 4}


def rdb_key(table: int, rest: bytes) -> bytes:
    """`TablePrefix.TABLE`, the table, `RecordPrefix.DATA`@5.3.3."""
    return struct.pack(">bhb", 1, table, 2) + rest


def named(name: str) -> bytes:
    return struct.pack(">h", len(name.encode())) + name.encode()


def write(folder: Path, entries: dict[str, dict[bytes, bytes]]) -> Location:
    write_database(folder, entries)
    return Location.resolve(str(folder.parent.parent))


def test_a_real_broker_s_databases(tmp_path: Path) -> None:
    """The broker wrote `offsetTable` as JSON; the facts have the topics of its messages."""
    store = Location.resolve(str(ROCKS.unpack(tmp_path)))
    offsets = {(one.consumer_group, one.topic, one.queue_id): one.offset for one in load_consumer_offsets(store)}
    ends = {(fact["topic"], fact["queueId"]): fact["max"] for fact in ROCKS.facts("queue")}
    consumed = {key[1:]: value for key, value in offsets.items() if key[0] == "GID_failing"}
    assert consumed == {queue: ends[queue] for queue in (("RetryDemo", 0), ("%RETRY%GID_failing", 0))}
    own = {fact["topic"] for fact in ROCKS.facts("msg") if fact["topic"].endswith("Demo")}
    topics = configured_topics(store)
    assert own
    assert topics is not None
    assert own <= topics
    groups = load_config(store, "subscriptionGroup.json", lambda content: content["subscriptionGroupTable"])
    assert groups is not None
    assert groups["GID_failing"]["groupName"] == "GID_failing"


def test_the_second_version(tmp_path: Path) -> None:
    """`ConsumerOffsetManagerV2.keyOfConsumerOffset`, `TopicConfigManagerV2`@5.3.3."""
    queue = named("g") + b"\1" + named("t") + b"\1" + struct.pack(">i", 3)
    entries = {
        rdb_key(3, named("t")): b"\1" + json.dumps(TOPIC).encode(),
        rdb_key(1, queue): struct.pack(">q", 77),
        rdb_key(2, queue): struct.pack(">q", 78),  # offsets of pulls
        struct.pack(">bhb", 1, 3, 1) + b"data_version": struct.pack(">qqq", 1, 2, 3),
    }
    store = write(tmp_path / "config" / "rdb", {"default": entries})
    assert configured_topics(store) == frozenset({"t"})
    assert [(one.consumer_group, one.topic, one.queue_id, one.offset) for one in load_consumer_offsets(store)] == [
        ("g", "t", 3, 77)
    ]
    version = load_config(store, "topics.json", lambda content: content["dataVersion"])
    assert version == {"stateVersion": 1, "timestamp": 2, "counter": 3}


def test_one_database_for_all(tmp_path: Path) -> None:
    """`RocksDBTopicConfigManager`, `RocksDBConsumerOffsetManager`@5.5.0 with `useSingleRocksDBForAllConfigs`."""
    families = {
        "topic": {b"t": json.dumps(TOPIC).encode()},
        "topicVersion": {b"kvDataVersionKey": b'{"counter":9,"stateVersion":4,"timestamp":5}'},
        "consumerOffset": {b"t@g": b'{"offsetTable":{0:5,"1":6}}'},
    }
    store = write(tmp_path / "config" / "metadata", families)
    assert configured_topics(store) == frozenset({"t"})
    assert [(one.queue_id, one.offset) for one in load_consumer_offsets(store)] == [(0, 5), (1, 6)]
    version = load_config(store, "topics.json", lambda content: content["dataVersion"])
    assert version == {"counter": 9, "stateVersion": 4, "timestamp": 5}
    assert load_config(store, "subscriptionGroup.json", lambda content: content["subscriptionGroupTable"]) == {}


@pytest.mark.parametrize(
    "entries",
    [
        {rdb_key(1, b"\0"): b""},
        {rdb_key(1, struct.pack(">h", 99) + b"g"): struct.pack(">q", 1)},
        {rdb_key(1, named("g") + b"\1" + named("t") + b"\1\0"): struct.pack(">q", 1)},
        {rdb_key(1, named("g") + b"\1" + named("t") + b"\1" + bytes(4)): b"short"},
        {rdb_key(1, named("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"))): b"\xff"},
    ],
)
def test_entries_of_another_form_are_an_error_that_names_the_database(
    entries: dict[bytes, bytes], tmp_path: Path
) -> None:
    store = write(tmp_path / "config" / "rdb", {"default": entries})
    with pytest.raises(ConfigError, match=r"config/rdb: the entries of consumerOffset\.json cannot be read"):
        load_consumer_offsets(store)


def test_a_database_that_does_not_open_is_an_error_that_names_it(tmp_path: Path) -> None:
    store = write(tmp_path / "config" / "rdb", {"default": {}})
    (tmp_path / "config" / "rdb" / "CURRENT").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="config/rdb: RocksDB does not open this database"):
        load_consumer_offsets(store)
    assert configured_topics(store) is None
