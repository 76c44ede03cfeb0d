"""The writer of the format `rocketmq`: its steps as Spark runs them, one after the other. No Spark here."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.datasource import RocketMQDataSource
from spark_mq.errors import (
    EmptyStoreError,
    InvalidMessageError,
    NotSharedError,
    OptionError,
    OutputExistsError,
    StorageError,
    StoreLockedError,
    UnfinishedAppendError,
    UnsupportedStoreError,
)
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.io.location import Location
from spark_mq.restorer import new_store as put_in_place
from spark_mq.store.store_lock import store_lock
from tests.support.in_process import read_rows
from tests.support.stores import WORKLOAD, Unpack, index_of, tree_of
from tests.support.verified import check, grave
from tests.support.written import BORN, CONF, FIELDS, rows, save, writer_of


@pytest.fixture
def conf(tmp_path: Path) -> str:
    """The settings of a broker with small files."""
    (tmp_path / "broker.conf").write_text(CONF)
    return str(tmp_path / "broker.conf")


def test_rows_become_a_sound_store_in_their_order(tmp_path: Path, conf: str) -> None:
    store = tmp_path / "store"
    save(store, [rows("orders", 300), rows("invoices", 200)], brokerConf=conf, topicMap="invoices=bills")
    found = [(row["topic"], row["queue_id"], row["queue_offset"], row["body"]) for row in read_rows(path=str(store))]
    expected = [
        (topic, number % 2, number // 2, f"{name} number {number} \u4e2d".encode())
        for name, topic, count in (("orders", "orders", 300), ("invoices", "bills", 200))
        for number in range(count)
    ]
    assert found == expected
    assert grave(check(store, conf)[1]) == []
    (row,) = read_rows(path=str(store), topic="bills", key="invoices-7", brokerConf=conf)
    assert (row["tags"], row["born_timestamp"]) == ("paid", BORN)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.conf", "store"]


def test_rows_with_offsets_give_the_same_files(unpacked: Unpack, tmp_path: Path) -> None:
    """Log, queues and index are those of the broker that wrote the messages; the rows come in any order."""
    source, names = unpacked(WORKLOAD), [name for name in ALL_MESSAGE_FIELDS if name != "encoded_body"]
    schema = pa.schema([ALL_MESSAGE_FIELDS[name] for name in names])
    reader = RocketMQDataSource({"path": str(source), "splitSize": "64k"}).reader(from_arrow_schema(schema))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert len(batches) > 3
    rows = [batch for batch in (*batches[2:], *batches[:2]) if isinstance(batch, pa.RecordBatch)]
    save(tmp_path / "store", rows, brokerConf=str(WORKLOAD.broker_conf), brokerVersion=WORKLOAD.broker_version)
    for tree in ("commitlog", "consumequeue"):
        assert tree_of(tmp_path / "store" / tree) == tree_of(source / tree)
    assert index_of(tmp_path / "store") == index_of(source)


@pytest.mark.parametrize("has_exchange", [True, False])
def test_overwrite_sets_the_old_store_aside(tmp_path: Path, conf: str, has_exchange: bool) -> None:
    store = tmp_path / "store"
    save(store, [rows("orders", 3)], brokerConf=conf)
    before = tree_of(store)
    with mock.patch.object(put_in_place, "_exchange", put_in_place._exchange if has_exchange else lambda *names: False):
        save(store, [rows("bills", 2)], overwrite=True, brokerConf=conf)
    assert [row["topic"] for row in read_rows(path=str(store))] == ["bills", "bills"]
    (backup,) = tmp_path.glob("store.backup-*")
    assert tree_of(backup) == {**before, "lock": b"lock"}
    assert len(list(tmp_path.iterdir())) == 3


def test_overwrite_makes_a_store_that_does_not_exist(tmp_path: Path, conf: str) -> None:
    save(tmp_path / "store", [rows("orders", 3)], overwrite=True, brokerConf=conf)
    assert len(read_rows(path=str(tmp_path / "store"))) == 3


def test_overwrite_leaves_other_folders_and_running_brokers_alone(tmp_path: Path, conf: str) -> None:
    (tmp_path / "home" / "work").mkdir(parents=True)
    with pytest.raises(OutputExistsError, match="is not a message store"):
        writer_of(tmp_path / "home", FIELDS, overwrite=True)
    with pytest.raises(OutputExistsError, match="is not a message store"):
        writer_of(tmp_path / "home", FIELDS)
    store = tmp_path / "store"
    save(store, [rows("orders", 3)], brokerConf=conf)
    before = tree_of(tmp_path)
    with store_lock(Location.resolve(str(store))), pytest.raises(StoreLockedError, match="stop the broker first"):
        writer_of(store, FIELDS, overwrite=True)
    assert tree_of(tmp_path) == {**before, "store/lock": b"lock"}


def test_append_continues_the_store(tmp_path: Path, conf: str) -> None:
    store, whole = tmp_path / "store", tmp_path / "whole"
    save(store, [rows("orders", 300)], brokerConf=conf)
    save(store, [rows("orders", 300), rows("bills", 5)], brokerConf=conf)
    save(store, [rows("orders", 0)], brokerConf=conf)  # nothing
    save(whole, [rows("orders", 300), rows("orders", 300), rows("bills", 5)], brokerConf=conf)
    found, expected = (
        [(row["topic"], row["queue_offset"], row["body"]) for row in read_rows(path=str(s))] for s in (store, whole)
    )
    assert found == expected
    assert grave(check(store, conf)[1]) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.conf", "store", "whole"]


def test_an_interrupted_append_of_rows_is_finished_and_named(tmp_path: Path, conf: str) -> None:
    """Nobody can know whether the rows of the next write are the same: they are neither lost nor doubled silently."""
    store = tmp_path / "store"
    save(store, [rows("orders", 3)], brokerConf=conf)
    killed = mock.patch("spark_mq.restorer.append._put_in_place", side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        save(store, [rows("orders", 2)], brokerConf=conf)
    with pytest.raises(UnfinishedAppendError, match=r"of 2 messages .* is complete now"):
        writer_of(store, FIELDS, brokerConf=conf)
    assert len(read_rows(path=str(store))) == 5
    save(store, [rows("orders", 1)], brokerConf=conf)
    assert len(read_rows(path=str(store))) == 6
    assert grave(check(store, conf)[1]) == []


def test_rows_are_not_encoded_for_a_store_that_cannot_be_appended_to(tmp_path: Path, conf: str) -> None:
    store = tmp_path / "store"
    save(store, [rows("orders", 3)], brokerConf=conf)
    with store_lock(Location.resolve(str(store))), pytest.raises(StoreLockedError, match="broker"):
        writer_of(store, FIELDS, brokerConf=conf)
    (store / "abort").touch()
    with pytest.raises(UnsupportedStoreError, match="abort"):
        writer_of(store, FIELDS, brokerConf=conf)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.conf", "store"]


def test_a_broker_that_starts_while_rows_are_written_keeps_its_store(tmp_path: Path, conf: str) -> None:
    store = tmp_path / "store"
    save(store, [rows("orders", 3)], brokerConf=conf)
    before = tree_of(store)
    writer = writer_of(store, FIELDS, overwrite=True, brokerConf=conf)
    message = writer.write(iter([rows("bills", 2)]))
    with store_lock(Location.resolve(str(store))), pytest.raises(StoreLockedError):
        writer.commit([message])
    assert tree_of(store) == {**before, "lock": b"lock"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.conf", "store"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, conf: str) -> None:
    store, before = tmp_path / "store", tree_of(tmp_path)
    wrong = pa.RecordBatch.from_arrays([pa.array(["orders", None]), pa.array(["one", "two"])], ["topic", "body"])
    writer = writer_of(store, wrong.schema, brokerConf=conf)
    message = writer.write(iter([wrong.slice(0, 1)]))
    with pytest.raises(InvalidMessageError, match="row 1"):
        writer.write(iter([wrong]))
    writer.abort([message, None])
    assert tree_of(tmp_path) == before
    writer = writer_of(store, FIELDS, brokerConf=conf)
    message = writer.write(iter([rows("orders", 3)]))
    failing = mock.patch("spark_mq.restorer.new_store.rebuild_with", side_effect=StorageError("no room"))
    with failing, pytest.raises(StorageError, match="no room"):
        writer.commit([message])
    assert tree_of(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]


def test_no_row_is_an_error(tmp_path: Path, conf: str) -> None:
    with pytest.raises(EmptyStoreError):
        save(tmp_path / "store", [rows("orders", 0)], brokerConf=conf)
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]


def test_a_task_that_does_not_see_the_folder_of_the_driver_stops(tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "store", FIELDS)
    (folder,) = tmp_path.iterdir()
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(NotSharedError, match="every machine"):
        writer.write(iter([rows("orders", 3)]))


def test_messages_that_keep_their_offsets_keep_their_topics(tmp_path: Path) -> None:
    schema = pa.schema(
        [ALL_MESSAGE_FIELDS[name] for name in ("topic", "commit_log_offset", "queue_id", "queue_offset")]
    )
    with pytest.raises(OptionError, match="renumber=true"):
        writer_of(tmp_path / "store", schema, topicMap="a=b")
    assert writer_of(tmp_path / "store", schema, topicMap="a=b", renumber="true").job.request.is_renumbered


def test_columns_are_checked_before_any_row(tmp_path: Path) -> None:
    with pytest.raises(InvalidMessageError, match="similar: topic"):
        writer_of(tmp_path / "store", pa.schema([("topik", pa.string())]))
    assert list(tmp_path.iterdir()) == []
