"""`spark-mq sql` over an archive, and over the history of an archive and its store."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_mq.archive.archive_tables import SEGMENTS_SCHEMA
from spark_mq.archive.writer import archive
from spark_mq.cli.sql import command
from tests.support.said import Run
from tests.support.store_history import cut_log, expire, record_ends
from tests.support.stores import WORKLOAD, Unpack

pytestmark = pytest.mark.archive

QUERY = """
    SELECT count(*) AS archived, (SELECT count(*) FROM prod.messages) AS stored,
        (SELECT count(DISTINCT old.keys.key) FROM old.keys WHERE topic = 'OrderEvents') AS keys,
        (SELECT count(*) FROM history) AS all, (SELECT count(DISTINCT commit_log_offset) FROM history) AS different
    FROM old.messages;
    SELECT sum(message_count) AS counted,
        (SELECT count(*) FROM old.delayed WHERE broker = 'broker-a' AND delay_level > 0) AS delayed
    FROM OLD.`rates` AS r JOIN prod.checkpoint WHERE r.store = 'a name of its own';
    SHOW TABLES IN old;
    DESCRIBE old.keys;
    DESCRIBE old.delayed
"""


@pytest.fixture(autouse=True)
def _in_this_session(delta: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs in the session of the tests, and leaves it open."""
    monkeypatch.setattr(command, "spark_session", lambda *_: nullcontext(delta))


FACTS, ENDS = WORKLOAD.facts("msg"), record_ends(WORKLOAD)
END = ENDS[len(ENDS) // 2]
"""Where the archive ends."""
ARCHIVED = [fact for fact in FACTS if fact["offset"] < END]


@pytest.fixture(scope="module")
def table(delta: SparkSession, unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An archive of the store when it had half of its messages; no test may change it."""
    folder = tmp_path_factory.mktemp("half")
    store = cut_log(unpacked(WORKLOAD), folder / "store", END)
    archive(delta, str(store), str(folder / "messages"), broker="broker-a", store_name="a name of its own")
    return str(folder / "messages")


def test_an_archive_needs_no_store(table: str, run: Run) -> None:
    """The store is often gone by the time that somebody asks."""
    query = """
        SELECT count(*) AS alone, (SELECT count(*) FROM old.messages) AS qualified FROM messages;
        SELECT count(*) AS delayed FROM delayed;
        DESCRIBE segments; SHOW TABLES LIKE 'snap*';
        SELECT messages FROM (SELECT 1 AS messages)
    """
    first, second, *rest = map(json.loads, run("sql", query, "--archive", f"old={table}", "--format", "json").lines)
    assert first == {"alone": len(ARCHIVED), "qualified": len(ARCHIVED)}
    assert second["delayed"] > 0
    assert [one["col_name"] for one in rest if "col_name" in one][: len(SEGMENTS_SCHEMA)] == SEGMENTS_SCHEMA.names
    assert [one["namespace"] for one in rest if "tableName" in one] == ["old"]
    assert rest[-1] == {"messages": 1}
    said = run("sql", "SELECT 1 FROM mesages", "--archive", f"old={table}", status=2)
    assert "there is no table mesages; did you mean messages?" in said.err


def test_each_message_is_in_the_history_once(table: str, tmp_path: Path, run: Run) -> None:
    store = WORKLOAD.unpack(tmp_path)
    expire(store, 1)
    said = run("sql", QUERY, "--store", f"prod={store}", "--archive", f"old={table}", "--format", "json")
    first, meant, *tables = map(json.loads, said.lines)
    segment = WORKLOAD.facts("store")[0]["mappedFileSizeCommitLog"]
    keys = {key for fact in ARCHIVED if fact["topic"] == "OrderEvents" for key in (fact["keys"] or "").split()}
    keys |= {fact["uniqKey"] for fact in ARCHIVED if fact["topic"] == "OrderEvents" and fact["uniqKey"]}
    assert first == {
        "archived": len(ARCHIVED),
        "stored": sum(fact["offset"] >= segment for fact in FACTS),
        "keys": len(keys),
        "all": len(FACTS),
        "different": len(FACTS),
    }
    delayed = sum(fact["topic"] == "SCHEDULE_TOPIC_XXXX" for fact in ARCHIVED)
    assert meant == {"delayed": delayed, "counted": len(ARCHIVED)}
    assert delayed > 0
    names = [one["tableName"] for one in tables if "tableName" in one]
    assert names[:5] == ["messages", "keys", "segments", "snapshots", "transactions"]
    columns = [one["col_name"] for one in tables if "col_name" in one]
    assert columns[:4] == ["cluster", "broker", "store", "topic"]
    second = columns.index("cluster", 4)
    assert columns[second : second + 4] == ["cluster", "broker", "store", "unique_key"]


def test_a_lost_end_and_a_gap_are_said(
    delta: SparkSession, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    whole = WORKLOAD.unpack(tmp_path)
    store, table = tmp_path / "store", tmp_path / "lake" / "messages"
    archived = len(ENDS) // 3
    cut_log(whole, store, ENDS[archived - 1])
    archive(delta, str(store), str(table))
    query = ["sql", "SELECT count(*) AS n FROM history", "--store", f"prod={store}", "--archive", f"old={table}"]
    shutil.rmtree(store)
    cut_log(whole, store, ENDS[archived // 2])
    said = run(*query, "--format", "json", status=1)
    end = ENDS[archived - 1]
    assert f"up to commit log offset {end}, which are not in the log of {store}" in said.err

    shutil.rmtree(store)
    shutil.copytree(whole, store)
    segments = sorted(int(file.name) for file in (store / "commitlog").iterdir())
    expire(store, len(segments) - 1)
    kept = sum(fact["offset"] >= segments[-1] for fact in FACTS)
    assert run(*query, "--format", "json").report == {"n": archived + kept}
    assert f"to commit log offset {end}, and the log of {store} begins at {segments[-1]}" in caplog.text
