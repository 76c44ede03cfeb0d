"""The SQL shell, in which there is no Python driver: Spark itself has to find the format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.conftest import STORE
from tests.cluster.processes import Python, run
from tests.real_stores import PROJECT

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
