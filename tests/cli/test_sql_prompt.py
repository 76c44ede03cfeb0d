"""Completion at the prompt of `spark-mq sql`, and its history."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.cli.sql.prompt import Completer, history_file, line_editing

TABLES = {"prod": ["messages", "messages_by_key", "queues"]}
COLUMNS = {"messages": ["topic", "tags"], "messages_by_key": ["key"], "queues": ["topic", "min_offset"]}


def complete(statement: str, tables: dict[str, list[str]] = TABLES) -> list[str]:
    """The completions of the last word."""
    word = statement.replace(",", " ").replace("(", " ").split(" ")[-1]
    return Completer(tables, lambda _, table: COLUMNS[table]).completions(statement, word)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("sel", ["select"]),
        ("SEL", ["SELECT"]),
        ("he", ["help"]),
        ("SELECT 1 FROM pr", ["prod."]),
        ("SELECT 1 FROM prod.m", ["prod.messages", "prod.messages_by_key"]),
        ("SELECT 1 FROM mess", ["messages", "messages_by_key"]),
        ("SELECT 1 FROM prod.messages WHERE ta", ["table", "tables", "tags"]),
        ("SELECT 1 FROM queues JOIN messages WHERE min", ["min", "min_offset"]),
        ("FROM PROD.Messages m, queues AS q SELECT m.", ["m.tags", "m.topic"]),
        ("FROM prod.messages m, queues AS q SELECT q.m", ["q.min_offset"]),
        ("FROM prod.messages SELECT messages.ta", ["messages.tags"]),
        ("SELECT he", []),
        ("SELECT x.", []),
    ],
)
def test_words_are_completed(statement: str, expected: list[str]) -> None:
    assert complete(statement) == expected


def test_with_several_stores_a_table_needs_the_name_of_one() -> None:
    assert complete("SELECT 1 FROM mess", {**TABLES, "dev": ["messages"]}) == []
    assert complete("SELECT 1 FROM dev.", {**TABLES, "dev": ["messages"]}) == ["dev.messages"]


def test_lines_are_kept_from_session_to_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readline = pytest.importorskip("readline")
    completer = Completer(TABLES, lambda *_: [])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    readline.clear_history()
    with line_editing(completer):
        readline.add_history("SELECT 1;")
    readline.clear_history()
    with line_editing(completer):
        assert readline.get_history_item(1) == "SELECT 1;"
    assert history_file() == tmp_path / "spark-mq" / "history"
    assert history_file().stat().st_mode & 0o077 == 0

    monkeypatch.setenv("XDG_STATE_HOME", str(history_file()))  # not a folder
    with line_editing(completer):
        pass
    readline.clear_history()


def test_secrets_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readline = pytest.importorskip("readline")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    readline.clear_history()
    with line_editing(Completer(TABLES, lambda *_: [])):
        readline.add_history("SELECT 1;")
        readline.add_history("SET spark.hadoop.fs.s3a.secret.key = secrethidden;")
        readline.add_history("SET spark.hadoop.fs.s3a.session.token=tokenhidden;")
        readline.add_history("CREATE TABLE t USING rocketmq LOCATION 's3://KEYHIDDEN:secrethidden@b/p?region=eu';")
    readline.clear_history()
    assert history_file().read_text().splitlines() == [
        "SELECT 1;",
        "SET spark.hadoop.fs.s3a.secret.key = ***;",
        "SET spark.hadoop.fs.s3a.session.token=***;",
        "CREATE TABLE t USING rocketmq LOCATION 's3://***@b/p?region=eu';",
    ]
