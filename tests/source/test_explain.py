"""Why a read takes the whole log: what a person has to add."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from spark_mq import RocketMQDataSource, explain
from tests.support.stores import WORKLOAD, Unpack


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "nothing limits the read"),
        ({"topic": "OrderEvents"}, "reading the units of all queues costs as much"),
        ({"key": "k"}, "give the topic"),
        ({"topic": "OrderEvents", "key": "k", "checkCrc": "true"}, "look-ups do not check CRCs"),
        ({"topic": "OrderEvents", "startQueueOffset": "5"}, "give one topic and one queue id"),
        ({"topic": "OrderEvents", "queueId": "77", "startQueueOffset": "5"}, "no files of queue OrderEvents/77"),
    ],
    ids=str,
)
def test_the_reason_is_a_note(unpacked: Unpack, options: dict[str, str], reason: str) -> None:
    lines = explain(str(unpacked(WORKLOAD)), **options).splitlines()
    assert lines[0] == "path   whole log"
    assert [line for line in lines if line.startswith("note   why: ") and reason in line]


def test_a_store_without_an_index_says_so(unpacked: Unpack, tmp_path: Path) -> None:
    store = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    shutil.rmtree(store / "index")
    assert "why: the store has no index file with entries" in explain(str(store), topic="OrderEvents", key="k")


def test_an_access_path_needs_no_reason(unpacked: Unpack) -> None:
    assert "why" not in explain(str(unpacked(WORKLOAD)), topic="OrderEvents", queueId="0", startQueueOffset="5")


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({}, 22, ["all 22 columns of 527.8 KiB of the log", ".where(...) does not shorten it"]),
        ({"startTimestamp": "1795258800000"}, 22, ["all 22 columns"]),
        ({"table": "messages_by_key"}, 24, ["all 24 columns", ".where(...)"]),
        ({}, 21, ["this read takes 527.8 KiB of the log; .where(...) does not shorten it: options such as topic"]),
        ({"startTimestamp": "1795258800000"}, 21, []),
        ({"topic": "OrderEvents", "queueId": "0", "startQueueOffset": "5"}, 22, []),
    ],
    ids=str,
)
def test_a_read_that_pays_for_all_columns_or_the_whole_log_is_told_once(
    unpacked: Unpack,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    columns: int,
    said: list[str],
) -> None:
    """From 1 GiB on; here from less."""
    monkeypatch.setattr("spark_mq.source.explain._MUCH", 100_000)
    source = RocketMQDataSource({"path": str(unpacked(WORKLOAD)), **options})
    source.reader(StructType(source.schema().fields[:columns])).partitions()
    assert len(caplog.messages) == bool(said)
    assert all(part in caplog.text for part in said), caplog.text
    assert ("where" in caplog.text) == any("where" in part for part in said)
    assert ("columns" in caplog.text) == any("columns" in part for part in said)
    caplog.clear()
    monkeypatch.undo()
    source.reader(source.schema()).partitions()
    assert caplog.messages == []
