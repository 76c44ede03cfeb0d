"""The commands `transactions` and `delayed`; `tests/lifecycle` tests the rules of their rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from tests.support.stores import OWN_STORES, WORKLOAD, Unpack, stores_in

CONF = ["--broker-conf", str(WORKLOAD.broker_conf)]


def test_rows_as_json(unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(unpacked(WORKLOAD))
    assert main(["transactions", store, "--json", "--at", "2026-11-21T12:00:00Z", *CONF]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["state"] for row in rows} == {"COMMITTED", "ROLLED_BACK", "DISCARDED", "PENDING"}
    pending = next(row for row in rows if row["state"] == "PENDING")
    assert pending["next_step"] == "CHECK"
    assert 0 < pending["age_millis"] < 3_600_000
    assert main(["delayed", store, "--json", "--at", "2026-11-21T12:00:00Z", "--columns", "state", *CONF]) == 0
    states = [json.loads(line)["state"] for line in capsys.readouterr().out.splitlines()]
    assert set(states) == {"DELIVERED", "WAITING"}


def test_an_unknown_state_is_said(unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = WORKLOAD.unpack(tmp_path)
    (store / "checkpoint").unlink()
    assert main(["delayed", str(store), "--columns", "topic,state", *CONF]) == 0
    printed = capsys.readouterr()
    assert "UNKNOWN" in printed.out
    assert "delayed messages is UNKNOWN; the first is" in printed.err
    assert "checkpoint" in printed.err


def test_a_store_without_transactions(unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    stale = next(store for store in stores_in(OWN_STORES) if store.name == "stale-533")
    assert main(["transactions", str(unpacked(stale)), "--broker-conf", str(stale.broker_conf)]) == 3
    assert "no transaction in" in capsys.readouterr().err
