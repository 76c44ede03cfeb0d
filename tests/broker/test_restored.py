"""Real brokers boot from restored stores, serve every message, and take new ones.

The check is that of `test_rebuilt.py`: every queue, id and key, and new messages after them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.broker import harness
from tests.support.restored import delivered, restore_here
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, RealStore
from tests.support.verified import check, grave

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]

V5, V4 = harness.VERSIONS


def later_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The messages after the first segments, without a third of them."""
    offsets = batch["commit_log_offset"].to_numpy()
    return batch.filter(pa.array((offsets > 400_000) & (offsets % 3 != 0)))


@pytest.mark.parametrize(
    ("version", "name", "is_filtered", "options"),
    [
        (V5, "workload-533", False, {}),
        (V4, "workload-49x", False, {}),
        (V5, "workload-533", False, {"renumber": True}),
        (V4, "workload-49x", False, {"renumber": True}),
        (V5, "workload-533", True, {"where": "later"}),
        (V4, "workload-49x", True, {"where": "later"}),
    ],
)
def test_a_broker_serves_every_message(
    tmp_path: Path, version: str, name: str, is_filtered: bool, options: dict[str, Any]
) -> None:
    packed = RealStore(name, OWN_STORES)
    store, new = packed.unpack(tmp_path), tmp_path / "new"
    keep = later_messages if is_filtered else lambda batch: batch
    report = restore_here(store, new, packed.broker_conf, keep, **options)
    assert report.messages > 100
    _, findings = check(new, packed.broker_conf)
    assert grave(findings) == []
    served = harness.check_served(new, packed.broker_conf, index=True, version=version)
    assert served["problemCount"] == 0


@pytest.mark.parametrize(
    ("version", "name", "target"), [(V5, "crc-533", "workload-533"), (V4, "workload-49x", "stale-49x")]
)
def test_a_broker_serves_what_was_appended(tmp_path: Path, version: str, name: str, target: str) -> None:
    source = RealStore(name, OWN_STORES).unpack(tmp_path / "source")
    packed = RealStore(target, OWN_STORES)
    store = packed.unpack(tmp_path)
    report = restore_here(source, store, packed.broker_conf, delivered, append=True, only_delivered=True)
    assert report.messages > 100
    served = harness.check_served(store, packed.broker_conf, index=True, version=version)
    assert served["problemCount"] == 0


def test_a_data_frame_becomes_a_store_that_a_broker_serves(spark: SparkSession, tmp_path: Path) -> None:
    """20,000 rows made in Spark; a million in a soak."""
    rows = 1_000_000 if SOAKS else 20_000
    columns = (
        "'orders' AS topic",
        "CAST(id % 8 AS INT) AS queue_id",
        "array(concat('order-', id)) AS keys",
        "IF(id % 2 = 0, 'paid', 'open') AS tags",
        "repeat(concat('body of ', id, ' '), 1 + CAST(id % 9 AS INT)) AS body",
        "timestamp_millis(1760000000000 + id) AS born_timestamp",
    )
    conf, store = tmp_path / "broker.conf", tmp_path / "store"
    conf.write_text("mappedFileSizeCommitLog=67108864\nmaxHashSlotNum=500000\nmaxIndexNum=2000000\n")
    made = spark.range(rows).selectExpr(*columns)
    made.write.format("rocketmq").mode("append").option("brokerConf", str(conf)).save(str(store))
    _, findings = check(store, conf)
    assert grave(findings) == []
    served = harness.check_served(store, conf, index=True, version=V5)
    assert (served["problemCount"], served["messages"]) == (0, rows)
