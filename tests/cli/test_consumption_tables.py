"""`consumer-progress`, `retries`, ...: which rows and columns they print."""

from __future__ import annotations

import json

import pytest

from spark_mq.cli.main import main
from spark_mq.format.system_topic import is_system_topic
from spark_mq.tables.all_tables import TABLES
from tests.support.stores import WORKLOAD

NAMES = ("consumer_progress", "retries", "dead_letters", "duplicates", "hot_keys", "rates", "skew")
SCHEMAS = {TABLES[name].command: TABLES[name].schema for name in NAMES}


@pytest.mark.parametrize("command", SCHEMAS)
def test_a_table_is_printed(command: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, store, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows
    assert list(rows[0]) == SCHEMAS[command].names
    assert main([command, store]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1 + len(rows)
    assert printed.err == "" or command == "hot-keys"
    name = SCHEMAS[command].names[0]
    assert main([command, store, "--columns", name, "--sort", f"-{name}"]) == 0
    values = [line.strip() for line in capsys.readouterr().out.splitlines()][1:]
    assert values == sorted((str(row[name]) for row in rows), reverse=True)


def test_what_is_cut_is_said_and_can_be_had(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {
        (fact["topic"], key)
        for fact in WORKLOAD.facts("msg")
        if not is_system_topic(fact["topic"])
        for key in set((fact["keys"] or "").split(" ")) - {""}
    }
    assert main(["hot-keys", store, "--most-keys", "5", "--json"]) == 0
    printed = capsys.readouterr()
    assert f" of {len(keys):,} keys are printed" in printed.err
    assert 5 <= len(printed.out.splitlines()) <= 10
    assert main(["hot-keys", store, "--most-keys", "0", "--json"]) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert (printed.err, {(row["topic"], row["key"]) for row in rows}) == ("", keys)


def test_options_choose_rows(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    def rows(*arguments: str) -> list[dict[str, object]]:
        assert main([arguments[0], store, *arguments[1:], "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert {row["topic"] for row in rows("rates", "--topic", "OrderEvents")} == {"OrderEvents"}
    assert {row["queue_id"] for row in rows("skew", "--topic", "OrderEvents")} == {0, 1, 2, 3}
    assert {row["topic"] for row in rows("hot-keys", "--topic", "OrderEvents")} == {"OrderEvents"}
    assert {row["consumer_group"] for row in rows("retries", "--consumer-group", "GID_failing")} == {"GID_failing"}
    progress = rows("consumer-progress", "--topic", "RMQ_SYS_TRANS_HALF_TOPIC", "--at", "2026-11-21T11:01:49.944Z")
    assert [(row["lag"], row["lag_millis"]) for row in progress] == [(3, 1000)]
    assert main(["consumer-progress", store, "--at", "soon"]) == 2
    assert "--at" in capsys.readouterr().err


def test_what_is_not_there_or_not_known_is_said(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", store]) == 3
    assert capsys.readouterr().err == f"spark-mq: no trace event in {store}\n"
    assert main(["dead-letters", store, "--consumer-group", "no\x1b[1m"]) == 3
    assert capsys.readouterr().err == f"spark-mq: no dead letter in {store} of group no\\x1b[1m\n"
    assert main(["traces", store, "--topic", "OrderEvents"]) == 0
    assert "248 of 248 trace events have a problem; the first is " in capsys.readouterr().err
