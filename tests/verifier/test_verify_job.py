"""The job and the command: the same findings as in one process, as rows, as a report and as files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import spark_mq
from spark_mq.cli.main import main
from spark_mq.cli.verify import report_lines
from tests.support.stores import OWN_STORES, RealStore, Unpack
from tests.support.verified import Bench, check


def test_tasks_find_what_one_process_finds(spark: SparkSession, unpacked: Unpack, tmp_path: Path) -> None:
    bench = Bench.of(unpacked(RealStore("stale-533", OWN_STORES)), "stale-533", tmp_path)
    file, position = bench.unit("SequenceDemo", 0, 7)
    bench.flip(file, position + 7)
    _, expected = check(bench.path, bench.packed.broker_conf)
    conf, scratch = str(bench.packed.broker_conf), tmp_path / "scratch"
    result = spark_mq.verify(spark, str(bench.path), broker_conf=conf, scratch=str(scratch), split_size=64 << 10)
    rows = [tuple(row) for row in result.findings.collect()]
    assert sorted(rows, key=str) == sorted((tuple(vars(finding).values()) for finding in expected), key=str)
    assert (result.is_sound, result.counts["QUEUE_UNIT_WRONG"]) == (False, 1)
    result.write(str(tmp_path / "findings.parquet"))
    result.write(str(tmp_path / "findings.jsonl"))
    lines = (tmp_path / "findings.jsonl").read_text().splitlines()
    assert pq.read_table(tmp_path / "findings.parquet").num_rows == len(lines) == len(expected)
    text = list(report_lines(result.report))
    assert text[-1] == f"verdict: {result.verdict}" == "verdict: not sound: 1 error, 52 warnings"
    result.close()
    assert list(scratch.iterdir()) == []


def test_a_quick_check_needs_no_spark(
    unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", None)
    store = RealStore("lagging-533", OWN_STORES)
    report = tmp_path / "findings.jsonl"
    arguments = ["verify", str(unpacked(store)), "--quick", "--broker-conf", str(store.broker_conf)]
    assert main([*arguments, "--report", str(report)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "verdict: not sound: 1 error"
    (row,) = map(json.loads, report.read_text().splitlines())
    assert (row["code"], row["topic"], row["queue_id"]) == ("QUEUE_LAGS_CLEAN", "LastQueue", 0)
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"] == {"QUEUE_LAGS_CLEAN": 1}


@pytest.mark.parametrize("name", ["workload-533", "crc-533"])
def test_a_quick_check_of_a_sound_store_finds_nothing(
    name: str, unpacked: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RealStore(name, OWN_STORES)
    assert main(["verify", str(unpacked(store)), "--quick", "--broker-conf", str(store.broker_conf)]) == 0
    assert "verdict: sound, as far as a quick check can see" in capsys.readouterr().out


def test_more_runs_than_the_driver_holds_give_the_same_findings(
    spark: SparkSession, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs are then read by tasks, also to find the queue files whose messages are all lost."""
    monkeypatch.setattr("spark_mq.indexer.queue_runs._MAX_RUNS_IN_DRIVER", 0)
    (bench.path / "commitlog" / f"{2 * 131072:020d}").unlink()
    _, expected = check(bench.path, bench.packed.broker_conf)
    result = spark_mq.verify(spark, str(bench.path), broker_conf=str(bench.packed.broker_conf))
    rows = [tuple(row) for row in result.findings.collect()]
    assert sorted(rows, key=str) == sorted((tuple(vars(finding).values()) for finding in expected), key=str)
    assert result.counts["SEGMENT_GAP"] == 1
    result.close()
