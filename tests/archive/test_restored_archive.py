"""Stores out of an archive: the bytes of the brokers that wrote them, and stores that brokers accept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_mq import MessageStore, expire, restore
from spark_mq.archive.writer import archive
from spark_mq.errors import OptionError
from spark_mq.format.record import Record
from spark_mq.testing import LogWriter
from tests.support.rebuilt import rebuild_here
from tests.support.soak import SOAKS
from tests.support.store_history import cut_log, record_ends
from tests.support.stores import OWN_STORES, RealStore, Unpack, all_stores, index_of, tree_of
from tests.support.verified import check, grave

pytestmark = pytest.mark.archive

WHOLE, EXPIRED = RealStore("workload-49x", OWN_STORES), RealStore("deleted-533", OWN_STORES)
BATCHES = RealStore("fBatchcq533", OWN_STORES / "forms")
SOUND = [store for store in all_stores() if store.name.startswith(("workload", "crc", "deleted", "visible", "edge"))]


def assert_comes_back(spark: SparkSession, packed: RealStore, table: str, unpacked: Unpack, folder: Path) -> None:
    """The archive gives the store's files again: those of the broker, or of its rebuild if segments had expired."""
    new, store = folder / str(packed), unpacked(packed)
    version = packed.broker_version
    report = restore(
        spark, table, str(new), broker=str(packed), broker_conf=str(packed.broker_conf), broker_version=version
    )
    assert (report.messages, report.gaps) == (len(packed.facts("msg")), 0)
    judge = packed.unpack(folder / "judge" / str(packed), "rebuilt") if packed.has("rebuilt") else store
    assert tree_of(new / "commitlog") == tree_of(store / "commitlog")
    queues, judged = tree_of(new / "consumequeue"), tree_of(judge / "consumequeue")
    assert {name: queues[name] for name in judged} == judged
    assert list(tree_of(new / "index").values()) == list(tree_of(judge / "index").values())
    assert judge != store or tree_of(new / "index").keys() == tree_of(store / "index").keys()
    expired = {fact["topic"] for fact in packed.facts("queue") if fact["max"] and fact["min"] == fact["max"]}
    assert {name.split("/")[0] for name in queues.keys() - judged.keys()} == (expired if judge != store else set())
    old, config = tree_of(store / "config"), tree_of(new / "config")
    for name in {"subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"} & old.keys():
        assert config[name] == old[name]
    assert grave(check(new, packed.broker_conf)[1]) == []


@pytest.mark.skipif(not SOAKS, reason="a soak")
def test_two_stores_of_an_archive_come_back(delta: SparkSession, unpacked: Unpack, tmp_path: Path) -> None:
    """One is whole. Of the other one, the first segments had expired, and with them all messages of two queues."""
    table = str(tmp_path / "messages")
    for packed in (WHOLE, EXPIRED):
        archive(delta, str(unpacked(packed)), table, broker=str(packed))
    with pytest.raises(OptionError, match="workload-49x"):
        restore(delta, table, str(tmp_path / "any"))
    for packed in (WHOLE, EXPIRED):
        assert_comes_back(delta, packed, table, unpacked, tmp_path)


def test_an_upgraded_store_comes_back_without_its_version(
    delta: SparkSession, unpacked: Unpack, tmp_path: Path
) -> None:
    """Which tags have index entries is in no message: the snapshots show it."""
    packed = RealStore("upgraded-550", OWN_STORES / "versions")
    archive(delta, str(unpacked(packed)), str(tmp_path / "messages"))
    restore(delta, str(tmp_path / "messages"), str(tmp_path / "new"), broker_conf=str(packed.broker_conf))
    assert index_of(tmp_path / "new") == index_of(unpacked(packed))


@pytest.mark.skipif(not SOAKS, reason="a soak")
@pytest.mark.parametrize("packed", SOUND, ids=str)
def test_every_sound_store_comes_back(delta: SparkSession, packed: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    table = str(tmp_path / "messages")
    archive(delta, str(unpacked(packed)), table, broker=str(packed))
    assert_comes_back(delta, packed, table, unpacked, tmp_path)


def test_batch_consume_queues_come_back(delta: SparkSession, unpacked: Unpack, tmp_path: Path) -> None:
    """Out of two runs, and after the first messages expired: the broker's bytes; or one of the two queues."""
    table, store, end = str(tmp_path / "messages"), tmp_path / "store", record_ends(BATCHES)[240]
    whole = unpacked(BATCHES)
    cut_log(whole, store, end)
    shutil.rmtree(store / "batchconsumequeue")
    rebuild_here(store, broker_conf=str(BATCHES.broker_conf))
    assert archive(delta, str(store), table).rows == 241
    shutil.rmtree(store)
    shutil.copytree(whole, store)
    assert archive(delta, str(store), table).rows == len(BATCHES.facts("msg")) - 241
    expire(str(store), min_offset=end, apply=True)
    assert len(list((store / "commitlog").iterdir())) < len(list((whole / "commitlog").iterdir()))
    assert archive(delta, str(store), table).rows == 0
    conf = str(BATCHES.broker_conf)
    restore(delta, table, str(tmp_path / "new"), broker_conf=conf)
    for tree in ("commitlog", "consumequeue", "batchconsumequeue"):
        assert tree_of(tmp_path / "new" / tree) == tree_of(whole / tree), tree
    where = "topic <> 'b1bcq' OR queue_id = 0"
    restore(delta, table, str(tmp_path / "part"), where=where, renumber=True, broker_conf=conf)
    with MessageStore(str(whole)) as before, MessageStore(str(tmp_path / "part")) as after:
        assert after.get_max_offset_in_queue("b1bcq", 0) == before.get_max_offset_in_queue("b1bcq", 0) > 0
    assert not (tmp_path / "part/batchconsumequeue/b1bcq/1").exists()
    assert grave(check(tmp_path / "part", BATCHES.broker_conf)[1]) == []


def test_new_offsets_are_in_the_order_of_the_log_also_if_the_clock_was_set_back(
    delta: SparkSession, tmp_path: Path
) -> None:
    log, table, conf = LogWriter(4096), str(tmp_path / "messages"), str(WHOLE.broker_conf)
    for number in range(40):
        seconds = number if number < 20 else number - 40
        log.append(1_795_000_000_000 + 1000 * seconds, b"%d" % number, topic=b"orders", queue_offset=number)
    archive(delta, str(log.write(tmp_path / "store")), table)
    restore(delta, table, str(tmp_path / "new"), where="queue_offset <> 7", renumber=True, broker_conf=conf)
    with MessageStore(str(tmp_path / "new")) as store:
        found = [one for one in store.messages_of_topic("orders") if isinstance(one, Record)]
    assert [(record.queue_offset, int(record.body)) for record in found] == list(enumerate([*range(7), *range(8, 40)]))
