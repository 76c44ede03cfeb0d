"""The commands that print a table: which rows and columns they print. Other tests judge the rules of the rows."""

from __future__ import annotations

import errno
import os
import pty
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.cli.output.value_text import display_width
from spark_mq.cli.tables import sums_of_lags
from spark_mq.format.system_topic import is_system_topic
from spark_mq.io.location import Location
from spark_mq.tables.all_tables import TABLES
from tests.support.paused_process import environment, running
from tests.support.said import Run
from tests.support.stores import STORES, WORKLOAD, Unpack


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    return run(*arguments, "--json").rows


def column(run: Run, name: str, *arguments: str) -> list[str]:
    return [line.strip() for line in run(*arguments, "--columns", name).lines][1:]


def test_the_broker_s_own_topics_are_hidden_from_persons(store: str, run: Run) -> None:
    everything = [row["topic"] for row in rows(run, "topics", store)]
    own = [topic for topic in everything if is_system_topic(topic)]
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "BenchmarkTest"} <= set(own)
    assert not {"%RETRY%GID_failing", "%DLQ%GID_failing", "OrderEvents"} & set(own)
    shown = run("topics", store, "--columns", "topic")
    assert [line.strip() for line in shown.lines][1:] == [topic for topic in everything if topic not in own]
    assert f"{len(own)} of the broker's own topics are not shown; --all shows them" in shown.err
    assert column(run, "topic", "topics", store, "--all") == everything
    assert set(column(run, "topic", "queues", store, "--topic", "SCHEDULE_TOPIC_XXXX")) == {"SCHEDULE_TOPIC_XXXX"}


def test_a_version_without_known_rules_is_said_in_a_line(store: str, run: Run) -> None:
    (line,) = run("queues", store, "--all", "--broker-version", "5.9.0").err.splitlines()
    assert line.startswith("spark-mq: --broker-version 5.9.0: newer than ")


def test_columns_are_those_that_are_named(store: str, run: Run) -> None:
    (first, *_) = rows(run, "segments", store, "--columns", "state, file")
    assert list(first) == ["state", "file"]
    blocks = run("segments", store, "--full").out.split("\n\n")
    assert len(blocks) == len(list(Path(store, "commitlog").iterdir()))
    assert [line.split(":")[0] for line in blocks[0].splitlines()] == list(rows(run, "segments", store)[0])


@pytest.mark.parametrize("option", ["--columns", "--sort"])
def test_an_unknown_column_gets_similar_ones(option: str, store: str, run: Run) -> None:
    captured = run("queues", store, option, "max_ofset", status=2)
    assert captured.out == ""
    assert "no column 'max_ofset'; similar: max_offset" in captured.err
    assert "file_count" in captured.err


def test_rows_are_sorted_with_null_last(store: str, run: Run) -> None:
    numbers = [row["max_offset"] for row in rows(run, "queues", store, "--sort", "-max_offset")]
    assert numbers == sorted(numbers, reverse=True)
    times = [row["last_store_timestamp"] for row in rows(run, "topics", store, "--sort", "last_store_timestamp")]
    known = [time for time in times if time is not None]
    assert known == sorted(known)
    assert 0 < len(known) < len(times)
    assert times[len(known) :] == [None] * (len(times) - len(known))


def test_the_lag_of_a_group(store: str, run: Run) -> None:
    lags = [("b", 3), ("a", None), ("b", None), ("b", 4)]
    totals = sums_of_lags([{"consumer_group": group, "lag": lag} for group, lag in lags], "consumer_group")
    assert totals == [("a", 1, 0, 1), ("b", 3, 7, 1)]
    assert run("lag", store).out.split("\n\n")[1].split() == [
        *("consumer_group", "queues", "known_lag", "unknown_lags"),
        *("GID_failing", "2", "0", "0"),
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["queues", "--topic", "orderevent"], "of topic orderevent (similar: OrderEvents)"),
        (["lag", "--topic", "RetryDem"], "of topic RetryDem (similar: RetryDemo)"),
        (["lag", "--consumer-group", "GID_faling"], "of group GID_faling (similar: GID_failing)"),
        (["lag", "--consumer-group", "nobody"], "of group nobody (groups: CID_RMQ_SYS_TRANS, GID_failing)"),
        (["lag", "--consumer-group", "CID_RMQ_SYS_TRANS", "--topic", "RetryDemo"], "(topics: RMQ_SYS_TRANS_"),
    ],
)
def test_an_unknown_name_gets_similar_ones(arguments: list[str], reason: str, store: str, run: Run) -> None:
    captured = run(arguments[0], store, *arguments[1:], status=3)
    assert captured.out == ""
    assert reason in captured.err


def test_a_table_fits_into_a_terminal(store: str) -> None:
    main_end, terminal = pty.openpty()
    command = [sys.executable, "-m", "spark_mq", "queues", store]
    with running(command, stdout=terminal, env={**environment(), "COLUMNS": "60", "TZ": "UTC"}) as process:
        os.close(terminal)
        shown = b""
        try:
            while data := os.read(main_end, 1 << 16):
                shown += data
        except OSError:  # EIO: the other end is closed
            pass
        errors = process.communicate()[1]
    os.close(main_end)
    lines = shown.decode().splitlines()
    assert process.returncode == 0
    assert lines[0].split()[:3] == ["topic", "queue_id", "min_offset"]
    assert max(map(display_width, lines)) <= 60
    assert "the terminal has 60 columns; hidden columns: first_commit_log_offset" in errors


@pytest.mark.parametrize("command", ["transactions", "delayed", "retries", "dead-letters", "duplicates"])
def test_each_row_has_a_whole_unique_key_on_a_narrow_terminal(
    command: str, store: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [str(row["unique_key"]) for row in rows(run, command, store)]
    monkeypatch.setattr("spark_mq.cli.output.text_table.terminal_width", lambda: 80)
    lines = run(command, store).lines[1:]
    assert [key for key, line in zip(keys, lines, strict=True) if key not in (line if key != "None" else key)] == []
    assert max(map(len, keys)) == 56


def test_the_problem_of_a_topic_names_few_queues(unpacked: Unpack, tmp_path: Path, run: Run) -> None:
    damaged = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    for file in damaged.glob("consumequeue/DirectTopic/*/*"):
        data = bytearray(file.read_bytes())
        data[:20] = b"\x7f" * 20
        file.write_bytes(data)
    queues = [row for row in rows(run, "queues", str(damaged), "--topic", "DirectTopic") if row["problem"]]
    (row,) = (row for row in rows(run, "topics", str(damaged)) if row["topic"] == "DirectTopic")
    assert len(queues) > 3
    assert row["problem"].count(" is DAMAGED: ") == 3
    assert row["problem"].endswith(f"; and {len(queues) - 3} more queue{'s' if len(queues) > 4 else ''}")


def test_one_folder_that_cannot_be_listed_stops_no_look_up(
    store: str, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = ["print-message", store, "DirectTopic", "--limit", "0", "--json"]
    before = run(*look_up).out
    listed = Location.entries

    def refused(location: Location) -> list[Any]:
        if location.path.endswith("consumequeue/DirectTopic/1"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return listed(location)

    monkeypatch.setattr(Location, "entries", refused)
    printed = run(*look_up)
    assert printed.out == before
    assert "consumequeue/DirectTopic/1 cannot be read (Permission denied): the log is read" in printed.err
    run("topics", store)
    for command in (
        ["check"],
        ["state"],
        ["verify", "--quiet"],
        ["repair", "--quiet"],
        ["expire", "--min-offset", "1"],
    ):
        assert main([command[0], store, *command[1:]]) in (1, 2), command
        assert "Permission denied" in capsys.readouterr().err


CONF = ["--broker-conf", str(WORKLOAD.broker_conf)]


def test_states_of_transactions_and_delayed_messages(store: str, run: Run) -> None:
    rows = run("transactions", store, "--json", "--at", "2026-11-21T12:00:00Z", *CONF).rows
    assert {row["state"] for row in rows} == {"COMMITTED", "ROLLED_BACK", "DISCARDED", "PENDING"}
    pending = next(row for row in rows if row["state"] == "PENDING")
    assert pending["next_step"] == "CHECK"
    assert 0 < pending["age_millis"] < 3_600_000
    rows = run("delayed", store, "--json", "--at", "2026-11-21T12:00:00Z", "--columns", "state", *CONF).rows
    assert {row["state"] for row in rows} == {"DELIVERED", "WAITING"}


def test_an_unknown_state_is_said(tmp_path: Path, run: Run) -> None:
    store = WORKLOAD.unpack(tmp_path)
    (store / "checkpoint").unlink()
    printed = run("delayed", store, "--columns", "topic,state", *CONF)
    assert "UNKNOWN" in printed.out
    assert "delayed messages is UNKNOWN; the first is" in printed.err
    assert "checkpoint" in printed.err


def test_a_store_without_transactions(unpacked: Unpack, run: Run) -> None:
    stale = STORES["stale-533"]
    assert "no transaction in" in run("transactions", unpacked(stale), "--broker-conf", stale.broker_conf, status=3).err


NAMES = ("consumer_progress", "retries", "dead_letters", "duplicates", "hot_keys", "rates", "skew")
SCHEMAS = {TABLES[name].command: TABLES[name].schema for name in NAMES}


@pytest.mark.parametrize("command", SCHEMAS)
def test_a_table_is_printed(command: str, store: str, run: Run) -> None:
    rows = run(command, store, "--json").rows
    assert rows
    assert list(rows[0]) == SCHEMAS[command].names
    printed = run(command, store)
    assert len(printed.lines) == 1 + len(rows)
    assert printed.err == "" or command == "hot-keys"
    name = SCHEMAS[command].names[0]
    values = [line.strip() for line in run(command, store, "--columns", name, "--sort", f"-{name}").lines][1:]
    assert values == sorted((str(row[name]) for row in rows), reverse=True)


def test_what_is_cut_is_said_and_can_be_had(store: str, run: Run) -> None:
    keys = {
        (fact["topic"], key)
        for fact in WORKLOAD.facts("msg")
        if not is_system_topic(fact["topic"])
        for key in set((fact["keys"] or "").split(" ")) - {""}
    }
    printed = run("hot-keys", store, "--most-keys", "5", "--json")
    assert f" of {len(keys):,} keys are printed" in printed.err
    assert 5 <= len(printed.lines) <= 10
    printed = run("hot-keys", store, "--most-keys", "0", "--json")
    assert (printed.err, {(row["topic"], row["key"]) for row in printed.rows}) == ("", keys)


def test_options_choose_rows(store: str, run: Run) -> None:
    def values(name: str, command: str, *arguments: str) -> set[object]:
        return {row[name] for row in rows(run, command, store, *arguments)}

    assert values("topic", "rates", "--topic", "OrderEvents") == {"OrderEvents"}
    assert values("queue_id", "skew", "--topic", "OrderEvents") == {0, 1, 2, 3}
    assert values("topic", "hot-keys", "--topic", "OrderEvents") == {"OrderEvents"}
    assert values("consumer_group", "retries", "--consumer-group", "GID_failing") == {"GID_failing"}
    half, at = "RMQ_SYS_TRANS_HALF_TOPIC", "2026-11-21T11:01:49.944Z"
    (progress,) = rows(run, "consumer-progress", store, "--topic", half, "--at", at)
    assert (progress["lag"], progress["lag_millis"]) == (3, 1000)
    assert "--at" in run("consumer-progress", store, "--at", "soon", status=2).err


def test_what_is_not_there_or_not_known_is_said(store: str, run: Run) -> None:
    assert run("traces", store, status=3).err == f"spark-mq: no trace event in {store}\n"
    said = run("dead-letters", store, "--consumer-group", "no\x1b[1m", status=3)
    assert said.err == f"spark-mq: no dead letter in {store} of group no\\x1b[1m\n"
    assert "248 of 248 trace events have a problem; the first is " in run("traces", store, "--topic", "OrderEvents").err
