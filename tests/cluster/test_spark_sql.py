"""The SQL shell, in which there is no Python driver: Spark itself has to find the format."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.conftest import STORE
from tests.cluster.processes import Python, run
from tests.support.stores import PROJECT

pytestmark = pytest.mark.cluster

QUERIES = (
    "SELECT 'messages', topic, count(*) FROM messages GROUP BY topic",
    "SELECT 'queues', count(*), sum(max_offset) FROM queues",
    "SELECT 'units', count(*) FROM consume_queue WHERE state = 'LIVE'",
    "SELECT 'segments', count(*) FROM segments",
    "SELECT 'topics', count(*) FROM topics",
    "SELECT 'offsets', count(*) FROM consumer_offsets",
)


def test_the_views_of_tables_sql(bare_python: Python, package: Path, store: Path, tmp_path: Path) -> None:
    command = [
        *(bare_python.spark("spark-sql"), "--master", "local[2]", "--hivevar", f"store={store}"),
        *("--properties-file", str(PROJECT / "conf" / "spark-defaults.conf")),
        *("--conf", "spark.sql.catalogImplementation=in-memory", "--conf", "spark.ui.enabled=false"),
        *("-i", str(PROJECT / "conf" / "tables.sql")),
        *("-e", "; ".join(QUERIES)),
    ]
    done = run(command, bare_python.environment(PYTHONPATH=str(package)), tmp_path)
    assert done.status == 0, done.errors[-3000:]
    rows = [line.split("\t") for line in done.output.splitlines()]
    counts = {row[1]: int(row[2]) for row in rows if row[0] == "messages"}
    assert counts == Counter(fact["topic"] for fact in STORE.facts("msg"))
    queues = STORE.facts("queue")
    assert ["queues", str(len(queues)), str(sum(fact["max"] for fact in queues))] in rows
    assert ["units", str(sum(fact["sysFlag"] & 0xC in (0, 8) for fact in STORE.facts("msg")))] in rows
    assert ["segments", str(len(list((store / "commitlog").iterdir())))] in rows
    assert {kind for kind, *_ in rows} == {"messages", "queues", "units", "segments", "topics", "offsets"}


def test_the_history_of_an_archive_and_a_store(
    bare_python: Python, package: Path, store: Path, tmp_path: Path, delta_jars: dict[str, str]
) -> None:
    """The lines of conf/delta-defaults.conf and conf/history.sql, for half of a log in an archive."""
    if not delta_jars:
        pytest.skip("Delta Lake's jars cannot be fetched from Maven Central")
    facts, topic = STORE.facts("msg"), "OrderEvents"
    key = next(fact["uniqKey"] for fact in facts if fact["topic"] == topic and fact["uniqKey"])
    half, table = tmp_path / "half", tmp_path / "lake" / "messages"
    (half / "commitlog").mkdir(parents=True)
    for segment in sorted((store / "commitlog").iterdir())[:2]:
        shutil.copy(segment, half / "commitlog")
    environment = bare_python.environment(PYTHONPATH=str(package))
    settings = {"spark.sql.catalogImplementation": "in-memory", "spark.ui.enabled": "false"}
    common = [
        *("--master", "local[2]", "--properties-file", str(PROJECT / "conf" / "delta-defaults.conf")),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        "--load-spark-defaults",
    ]
    names = ["--cluster", "c", "--broker", "b", "--store-name", "s"]
    job = [str(PROJECT / "jobs" / "archive.py"), str(half), str(table), *names, "--json"]
    archived = run([bare_python.spark("spark-submit"), *common, *job], environment, tmp_path)
    assert archived.status == 0, archived.errors[-3000:]
    count = json.loads(archived.output.splitlines()[-1])["rows"]
    assert 0 < count < len(facts)

    variables = {
        "archive": f"delta.`{table}`",
        **{"store": str(store), "cluster": "c", "broker": "b", "store_name": "s", "topic": topic, "key": key},
    }
    shell = [
        *(word for name, value in variables.items() for word in ("--hivevar", f"{name}={value}")),
        *("-i", str(PROJECT / "conf" / "history.sql")),
    ]
    recipe = ["-f", str(PROJECT / "conf" / "recipes" / "messages_of_a_key.sql")]
    done = run([bare_python.spark("spark-sql"), *common, *shell, *recipe], environment, tmp_path)
    assert done.status == 0, done.errors[-3000:]
    lines = [line for line in done.output.splitlines() if line != "Response code"]
    header, *rows = [line.split("\t") for line in lines]
    assert header[:3] == ["cluster", "broker", "topic"]
    assert [row[2] for row in rows if key in row] == [fact["topic"] for fact in facts if fact["uniqKey"] == key]
