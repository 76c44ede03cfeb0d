"""`spark-mq archive --stores`: two brokers' stores in one archive, under the names of the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_mq.cli.main import main
from tests.support.delta_rows import delta_rows
from tests.support.stores import STORES, Unpack

pytestmark = pytest.mark.archive

BROKERS = {"broker-new": STORES["workload-533"], "broker-old": STORES["workload-49x"]}


def test_two_stores_are_archived_and_a_missing_one_is_left_out(
    delta: SparkSession,
    unpacked: Unpack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def session(*_: object, **_how: object) -> Iterator[SparkSession]:
        yield delta

    monkeypatch.setattr("spark_mq.cli.spark.spark_session", session)
    file, table = tmp_path / "stores.json", tmp_path / "lake" / "messages"
    entries = [
        {"name": f"of {name}", "cluster": "prod", "broker": name, "path": str(unpacked(store))}
        for name, store in BROKERS.items()
    ]
    file.write_text(json.dumps([*entries, {"path": "none"}]))
    assert main(["archive", "--stores", str(file), str(table), "--json"]) == 1
    assert f"{tmp_path}/none" in capsys.readouterr().err
    assert not table.exists()
    assert main(["archive", "--stores", str(file), str(table), "--json", "--skip-unreadable"]) == 0
    said = capsys.readouterr()
    assert "left out: DefaultCluster/DEFAULT_BROKER" in said.err
    reports = [json.loads(line) for line in said.out.splitlines()]
    counts = [len(store.facts("msg")) for store in BROKERS.values()]
    assert [(report["broker"], report["rows"]) for report in reports] == list(zip(BROKERS, counts, strict=True))
    rows = delta_rows(table)
    for name, store in BROKERS.items():
        own = [row for row in rows if row["broker"] == name]
        assert {(row["cluster"], row["store"]) for row in own} == {("prod", f"of {name}")}
        assert sorted(row["offset_message_id"] for row in own) == sorted(fact["msgId"] for fact in store.facts("msg"))
