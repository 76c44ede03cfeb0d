"""`segments`, `queues`, `topics` and `lag`: which rows and columns they print."""

from __future__ import annotations

import errno
import json
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
from tests.support.paused_process import environment, running
from tests.support.stores import WORKLOAD, Unpack


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main([*arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def column(capsys: pytest.CaptureFixture[str], name: str, *arguments: str) -> list[str]:
    assert main([*arguments, "--columns", name]) == 0
    return [line.strip() for line in capsys.readouterr().out.splitlines()][1:]


def test_the_broker_s_own_topics_are_hidden_from_persons(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    everything = [row["topic"] for row in rows(capsys, "topics", store)]
    own = [topic for topic in everything if is_system_topic(topic)]
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "BenchmarkTest"} <= set(own)
    assert not {"%RETRY%GID_failing", "%DLQ%GID_failing", "OrderEvents"} & set(own)
    assert main(["topics", store, "--columns", "topic"]) == 0
    shown = capsys.readouterr()
    assert [line.strip() for line in shown.out.splitlines()][1:] == [topic for topic in everything if topic not in own]
    assert f"{len(own)} of the broker's own topics are not shown; --all shows them" in shown.err
    assert column(capsys, "topic", "topics", store, "--all") == everything
    assert set(column(capsys, "topic", "queues", store, "--topic", "SCHEDULE_TOPIC_XXXX")) == {"SCHEDULE_TOPIC_XXXX"}


def test_a_version_without_known_rules_is_said_in_a_line(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queues", store, "--all", "--broker-version", "5.9.0"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("spark-mq: --broker-version 5.9.0: newer than ")


def test_columns_are_those_that_are_named(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    (first, *_) = rows(capsys, "segments", store, "--columns", "state, file")
    assert list(first) == ["state", "file"]
    assert main(["segments", store, "--full"]) == 0
    blocks = capsys.readouterr().out.split("\n\n")
    assert len(blocks) == len(list(Path(store, "commitlog").iterdir()))
    assert [line.split(":")[0] for line in blocks[0].splitlines()] == list(rows(capsys, "segments", store)[0])


@pytest.mark.parametrize("option", ["--columns", "--sort"])
def test_an_unknown_column_gets_similar_ones(option: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queues", store, option, "max_ofset"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no column 'max_ofset'; similar: max_offset" in captured.err
    assert "file_count" in captured.err


def test_rows_are_sorted_with_null_last(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [row["max_offset"] for row in rows(capsys, "queues", store, "--sort", "-max_offset")]
    assert numbers == sorted(numbers, reverse=True)
    times = [row["last_store_timestamp"] for row in rows(capsys, "topics", store, "--sort", "last_store_timestamp")]
    known = [time for time in times if time is not None]
    assert known == sorted(known)
    assert 0 < len(known) < len(times)
    assert times[len(known) :] == [None] * (len(times) - len(known))


def test_the_lag_of_a_group(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    lags = [("b", 3), ("a", None), ("b", None), ("b", 4)]
    totals = sums_of_lags([{"consumer_group": group, "lag": lag} for group, lag in lags], "consumer_group")
    assert totals == [("a", 1, 0, 1), ("b", 3, 7, 1)]
    assert main(["lag", store]) == 0
    assert capsys.readouterr().out.split("\n\n")[1].split() == [
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
        (
            ["lag", "--consumer-group", "CID_RMQ_SYS_TRANS", "--topic", "RetryDemo"],
            "(topics: RMQ_SYS_TRANS_",
        ),
    ],
)
def test_an_unknown_name_gets_similar_ones(
    arguments: list[str], reason: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([arguments[0], store, *arguments[1:]]) == 3
    captured = capsys.readouterr()
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
    command: str, store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [str(row["unique_key"]) for row in rows(capsys, command, store)]
    monkeypatch.setattr("spark_mq.cli.output.text_table.terminal_width", lambda: 80)
    assert main([command, store]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [key for key, line in zip(keys, lines, strict=True) if key not in (line if key != "None" else key)] == []
    assert max(map(len, keys)) == 56


def test_the_problem_of_a_topic_names_few_queues(
    unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    for file in damaged.glob("consumequeue/DirectTopic/*/*"):
        data = bytearray(file.read_bytes())
        data[:20] = b"\x7f" * 20
        file.write_bytes(data)
    queues = [row for row in rows(capsys, "queues", str(damaged), "--topic", "DirectTopic") if row["problem"]]
    (row,) = (row for row in rows(capsys, "topics", str(damaged)) if row["topic"] == "DirectTopic")
    assert len(queues) > 3
    assert row["problem"].count(" is DAMAGED: ") == 3
    assert row["problem"].endswith(f"; and {len(queues) - 3} more queue{'s' if len(queues) > 4 else ''}")


def test_one_folder_that_cannot_be_listed_stops_no_look_up(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = ["print-message", store, "DirectTopic", "--limit", "0", "--json"]
    assert main(look_up) == 0
    before = capsys.readouterr().out
    listed = Location.entries

    def refused(location: Location) -> list[Any]:
        if location.path.endswith("consumequeue/DirectTopic/1"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return listed(location)

    monkeypatch.setattr(Location, "entries", refused)
    assert main(look_up) == 0
    printed = capsys.readouterr()
    assert printed.out == before
    assert "consumequeue/DirectTopic/1 cannot be read (Permission denied): the log is read" in printed.err
    assert main(["topics", store]) == 0
    for command in (
        ["check"],
        ["state"],
        ["verify", "--quiet"],
        ["repair", "--quiet"],
        ["expire", "--min-offset", "1"],
    ):
        assert main([command[0], store, *command[1:]]) in (1, 2), command
        assert "Permission denied" in capsys.readouterr().err
