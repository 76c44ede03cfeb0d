"""Real brokers boot from restored stores, serve every message, and take new ones.

The check is that of `test_rebuilt.py`: every queue, id and key, and new messages after them.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.broker import harness
from tests.support.in_process import read_rows
from tests.support.restored import delivered, restore_here, restored_plain
from tests.support.soak import SOAKS, cases
from tests.support.store_times import assert_whole, descending, far_apart, partly_missing, permuted, with_times
from tests.support.stores import OWN_STORES, STORES, RealStore
from tests.support.verified import check, grave
from tests.support.written import CONF, rows, save

pytestmark = pytest.mark.broker

V5, V4 = harness.VERSIONS


def later_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The messages after the first segments, without a third of them."""
    offsets = batch["commit_log_offset"].to_numpy()
    return batch.filter(pa.array((offsets > 400_000) & (offsets % 3 != 0)))


RENUMBERED, FILTERED = {"renumber": True}, {"where": "later"}


@pytest.mark.parametrize(
    ("version", "name", "options"),
    [(V4, "workload-49x", {}), (V5, "workload-533", RENUMBERED), (V5, "workload-533", FILTERED)]
    + [(V5, "workload-533", {}), (V4, "workload-49x", RENUMBERED), (V4, "workload-49x", FILTERED)] * SOAKS,
)
def test_a_broker_serves_every_message(tmp_path: Path, version: str, name: str, options: dict[str, Any]) -> None:
    packed = STORES[name]
    store, new = packed.unpack(tmp_path), tmp_path / "new"
    keep = later_messages if options is FILTERED else lambda batch: batch
    report = restore_here(store, new, packed.broker_conf, keep, **options)
    assert report.messages > 100
    _, findings = check(new, packed.broker_conf)
    assert grave(findings) == []
    harness.check_served(new, packed.broker_conf, index=True, version=version)


@pytest.mark.parametrize(
    ("version", "name", "target"),
    cases([(V4, "workload-49x", "stale-49x")], [(V5, "crc-533", "workload-533"), (V4, "workload-49x", "stale-49x")]),
)
def test_a_broker_serves_what_was_appended(tmp_path: Path, version: str, name: str, target: str) -> None:
    source = STORES[name].unpack(tmp_path / "source")
    packed = STORES[target]
    store = packed.unpack(tmp_path)
    report = restore_here(source, store, packed.broker_conf, delivered, append=True, only_delivered=True)
    assert report.messages > 100
    harness.check_served(store, packed.broker_conf, index=True, version=version)


def made_of_rows(spark: SparkSession, folder: Path, rows: int) -> tuple[Path, Path]:
    """A store of rows that Spark made, which a check finds sound, and its settings."""
    columns = (
        "'orders' AS topic",
        "CAST(id % 8 AS INT) AS queue_id",
        "array(concat('order-', id)) AS keys",
        "IF(id % 2 = 0, 'paid', 'open') AS tags",
        "repeat(concat('body of ', id, ' '), 1 + CAST(id % 9 AS INT)) AS body",
        "timestamp_millis(1760000000000 + id) AS born_timestamp",
    )
    conf, store = folder / "broker.conf", folder / "store"
    conf.write_text("mappedFileSizeCommitLog=67108864\nmaxHashSlotNum=500000\nmaxIndexNum=2000000\n")
    made = spark.range(rows).selectExpr(*columns)
    made.write.format("rocketmq").mode("append").option("brokerConf", str(conf)).save(str(store))
    _, findings = check(store, conf)
    assert grave(findings) == []
    return store, conf


@pytest.mark.skipif(not SOAKS, reason="a soak: the rows of the next test come from the same writer")
def test_rows_become_a_store_that_a_broker_serves(spark: SparkSession, tmp_path: Path) -> None:
    rows = 20_000
    store, conf = made_of_rows(spark, tmp_path, rows)
    served = harness.check_served(store, conf, index=True, version=V5)
    assert served["messages"] == rows


@pytest.mark.parametrize("version", cases([V5], [V5, V4]))
def test_a_broker_serves_rows_whose_store_times_do_not_ascend(version: str, tmp_path: Path) -> None:
    """Of any order, from the year 1970 to 9999; after them the messages that the broker itself stores now."""
    random, store, conf = Random(1), tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(CONF)
    times = [*permuted(random), *far_apart(random), *descending(random)]
    random.shuffle(times)
    save(store, [with_times(rows("orders", 120), times)], brokerConf=str(conf))
    save(store, [with_times(rows("bills", 40), partly_missing(random))], brokerConf=str(conf))
    assert_whole(store, str(conf), 160)
    served = harness.check_served(store, conf, index=True, version=version)
    assert served["messages"] == 160
    more = harness.append(store, conf, 7, version)
    assert len(read_rows(path=str(store), brokerConf=str(conf))) == 160 + more > 160
    (store / "checkpoint").unlink()
    assert len(read_rows(path=str(store), brokerConf=str(conf))) == 160 + more


@pytest.mark.skipif(not SOAKS, reason="a soak")
def test_a_million_rows_become_a_store_that_a_broker_serves(spark: SparkSession, tmp_path: Path) -> None:
    rows = 1_000_000
    store, conf = made_of_rows(spark, tmp_path, rows)
    with harness.Broker(V5, store, conf) as broker:
        status = harness.mqadmin(broker, ["topicStatus", "-t", "orders"])
        lines = (re.match(r"\S+ +(\d+) +(\d+) +(\d+) ", line) for line in status.splitlines())
        ends = [tuple(map(int, line.groups())) for line in lines if line is not None]
        assert sorted(ends) == [(queue_id, 0, rows // 8) for queue_id in range(8)]
        for number in (0, 1, 500_003, rows - 1):
            found = harness.mqadmin(broker, ["queryMsgByKey", "-t", "orders", "-k", f"order-{number}"])
            assert [line.split()[1:] for line in found.splitlines()[1:]] == [[str(number % 8), str(number // 8)]]


@pytest.mark.parametrize("version", cases(["5.5.0"], [V5, "5.5.0"]))
def test_a_broker_serves_the_plain_store_of_a_dledger_node(version: str, tmp_path: Path) -> None:
    """Also of a node whose log has damage: all messages except those that are named."""
    packed, conf = RealStore("fDledger533", OWN_STORES / "forms"), tmp_path / "broker.conf"
    settings = packed.broker_conf.read_text().splitlines()
    conf.write_text("\n".join(line for line in settings if "dLeger" not in line and "DLeger" not in line))
    store = packed.unpack(tmp_path)
    report = restored_plain(store, tmp_path / "new", conf, broker_version=version)
    served = harness.check_served(tmp_path / "new", conf, index=True, version=version)
    assert served["messages"] == report.messages == 327
    with (store / "dledger-n0" / "data" / f"{300140:020d}").open("r+b") as file:
        file.seek(70_000)
        file.write(bytes(600))
    report = restored_plain(store, tmp_path / "damaged", conf, broker_version=version)
    served = harness.check_served(tmp_path / "damaged", conf, index=True, version=version)
    assert served["messages"] == report.messages
    assert 320 < report.messages < 327
