"""`spark-mq sql` and what it prints."""

from __future__ import annotations

import csv
import io
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_mq.cli.sql import command
from tests.support.said import Run
from tests.support.stores import WORKLOAD, Unpack

COUNT = """
    SELECT topic, count(*) AS messages FROM messages WHERE topic IN ('OrderEvents', 'PaymentLog') GROUP BY 1 ORDER BY 1
"""


@pytest.fixture
def sql(run: Run, spark: SparkSession, unpacked: Unpack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command in the tests' own session."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(command, "spark_session", lambda *_, **_how: nullcontext(spark))
    return lambda *words, **status: run("sql", *words, "--store", f"prod={unpacked(WORKLOAD)}", **status)


def messages(topic: str) -> int:
    return sum(fact["topic"] == topic for fact in WORKLOAD.facts("msg"))


WANTED = {topic: messages(topic) for topic in ("OrderEvents", "PaymentLog")}


def test_rows_as_a_table(sql: Run) -> None:
    first, *lines = sql(COUNT).lines
    assert first.split() == ["topic", "messages"]
    assert [line.split() for line in lines] == [[topic, str(count)] for topic, count in WANTED.items()]
    assert len({len(line) for line in (first, *lines)}) == 1  # numbers end where their column ends


def test_rows_as_json_and_csv(sql: Run) -> None:
    lines = sql(COUNT, "--format", "json").rows
    assert {line["topic"]: line["messages"] for line in lines} == WANTED
    values = (
        "TIMESTAMP '2026-11-20 08:00:00', NULL, 'a\"b', X'6162', named_struct('x', array(1)), map('k', 1.50), 1.5D, ''"
    )
    names, cells = csv.reader(io.StringIO(sql(f"SELECT {values}", "--format", "csv").out))
    assert len(names) == 8
    wanted = ["2026-11-20T08:00:00.000Z", "", 'a"b', "YWI=", '{"x": [1]}', '{"k": "1.50"}', "1.5", ""]
    assert cells == wanted


def test_times_at_the_ends_of_the_calendar(sql: Run) -> None:
    """Which are no times in every zone."""
    times = (
        "timestamp_millis(253402300799999) AS a, timestamp_millis(-62135596800000) AS a, TIMESTAMP '+10000-01-01' AS b"
    )
    last = sql(f"SELECT {times}", "--format", "csv").lines[-1]
    assert last == "9999-12-31T23:59:59.999Z,0001-01-01T00:00:00.000Z,253402300800000000"
    sql(f"SELECT {times}")


def test_statements_one_after_the_other(sql: Run) -> None:
    several = "CREATE OR REPLACE TEMP VIEW two AS SELECT ';' AS a -- ;\n; SELECT a || '\\';' FROM two /* ; */; ;"
    assert sql(several, "--format", "csv").lines[1:] == [";';"]


def test_a_plan_has_its_lines(sql: Run) -> None:
    assert sql("EXPLAIN SELECT 1").lines[0] == "== Physical Plan =="


def test_errors_are_one_line(sql: Run) -> None:
    for status, query, why in (
        (1, "SELECT topik FROM messages", "[UNRESOLVED_COLUMN"),
        (2, "SELECT * FROM messages WHERE", "the query cannot be parsed"),
        (2, "SELECT 1 AS a, 2 AS a --", "more than one column is called a"),
    ):
        printed = sql(query, "--format", "json", status=status)
        assert printed.out == ""
        assert printed.err.startswith(f"spark-mq: {'--format json: ' if 'AS a' in query else ''}{why}")
        assert len(printed.err.splitlines()) == 1
        assert "topik" not in query or "of the following? [`topic`" in printed.err


def test_a_store_that_is_not_there_is_named(sql: Run, tmp_path: Path) -> None:
    said = sql("SELECT * FROM gone.messages", "--store", f"gone={tmp_path / 'gone'}", status=1)
    wanted = f"spark-mq: {tmp_path / 'gone'} does not exist: give the broker's store directory (storePathRootDir)"
    assert said.err.splitlines()[-1] == wanted


def test_a_relative_path_is_that_of_the_command(sql: Run, unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's processes have another working folder, as those of a Spark Connect server do."""
    folder = unpacked(WORKLOAD)
    monkeypatch.chdir(folder.parent)
    said = sql("SELECT count(*) FROM here.queues", "--store", f"here={folder.name}", "--format", "csv")
    assert int(said.lines[1]) > 0


def test_text_of_a_store_does_not_steer_a_terminal(sql: Run) -> None:
    out = sql(r"SELECT '\u001b[2J' AS `a\u001bb`, array('\u0007') AS c").out
    assert "\x1b" not in out
    assert r"\x1b[2J" in out
    assert r"\x07" in out


def test_at_the_prompt_an_error_is_not_the_end(sql: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["SELECT", "  nothing;", "SELECT 'it;", "s' AS a;", "selekt 1;", "help", "quit"])
    prompts = []

    def typed(prompt: str) -> str:
        prompts.append(prompt.strip())
        return next(lines)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", typed)
    printed = sql()
    assert prompts == ["spark-mq>", "->", "spark-mq>", "->", "spark-mq>", "spark-mq>", "spark-mq>"]
    assert "[UNRESOLVED_COLUMN" in printed.err
    assert "did you mean SELECT?" in printed.err
    assert printed.lines[:2] == ["a", r"it;\ns"]
    assert "SHOW TABLES" in printed.out
