"""Real brokers boot from stores whose derived files were built here, and serve every message of the log.

The check consumes every queue from its first live offset to its end, compares every unit with what the broker's own
dispatch gives, looks every message up by its offset id and its keys, and then sends new messages and reads those.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_mq import rebuild
from tests.broker import harness
from tests.support.stores import OWN_STORES, RealStore

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]

V5, V4 = harness.VERSIONS


def settings_of(name: str) -> Path:
    return harness.STORES / f"{name}.conf"


def with_our_files(spark: SparkSession, name: str, folder: Path) -> Path:
    """The store `name` with consume queues, index files and checkpoint made here."""
    store = harness.unpack_store(name, folder)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    (store / "checkpoint").unlink()
    rebuild(spark, str(store), broker_conf=str(settings_of(name)))
    return store


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (V5, "workload-533"),
        (V4, "workload-49x"),
        (V5, "killed-533"),
        (V4, "killed-49x"),
        (V5, "stale-533"),
        (V4, "stale-49x"),
        (V5, "lagging-533"),
        (V5, "deleted-533"),
    ],
)
def test_a_broker_serves_every_message(spark: SparkSession, tmp_path: Path, version: str, name: str) -> None:
    store = with_our_files(spark, name, tmp_path)
    report = harness.check_served(store, settings_of(name), index=True, version=version)
    assert report["problemCount"] == 0


def test_a_4_9_broker_serves_a_log_without_its_first_segments(spark: SparkSession, tmp_path: Path) -> None:
    store = harness.unpack_store("workload-49x", tmp_path)
    for segment in sorted((store / "commitlog").iterdir())[:2]:
        segment.unlink()
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    rebuild(spark, str(store), broker_conf=str(settings_of("workload-49x")))
    report = harness.check_served(store, settings_of("workload-49x"), index=True, version=V4)
    assert report["problemCount"] == 0


@pytest.mark.parametrize(("version", "name"), [(V5, "workload-533"), (V4, "workload-49x"), (V5, "crc-533")])
def test_key_and_window_queries_are_answered_as_from_the_broker_s_own_files(
    spark: SparkSession, tmp_path: Path, version: str, name: str
) -> None:
    """Keys, unique keys and windows to the millisecond, asked of the Java store over our index files."""
    store = with_our_files(spark, name, tmp_path)
    answered = tmp_path / "answered.jsonl"
    harness.describe(store, settings_of(name), answered, version)
    facts = map(json.loads, answered.read_text(encoding="utf-8").splitlines())
    answers = [fact for fact in facts if fact["t"] == "query"]
    asked = RealStore(name, OWN_STORES).facts("query")
    windows = [fact for fact in answers if fact["begin"] > 0]
    assert len(windows) > 100
    assert answers == asked


@pytest.mark.parametrize(
    ("version", "name"), [(V5, "killed-533"), (V4, "killed-49x"), (V5, "stale-533"), (V5, "lagging-533")]
)
def test_a_broker_serves_what_it_left_and_a_resumed_rebuild_completed(
    spark: SparkSession, tmp_path: Path, version: str, name: str
) -> None:
    store = harness.unpack_store(name, tmp_path)
    report = rebuild(spark, str(store), broker_conf=str(settings_of(name)), resume=True)
    assert report.files_completed > 0
    served = harness.check_served(store, settings_of(name), index=True, version=version)
    assert served["problemCount"] == 0
