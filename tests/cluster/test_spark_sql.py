"""The SQL shell, in which there is no Python driver: Spark itself has to find the format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.conftest import STORE
from tests.cluster.processes import Python, run
from tests.real_stores import PROJECT

pytestmark = pytest.mark.cluster


def test_the_views_of_tables_sql(bare_python: Python, package: Path, store: Path, tmp_path: Path) -> None:
    command = [
        *(bare_python.spark("spark-sql"), "--master", "local[2]", "--hivevar", f"store={store}"),
        *("--properties-file", str(PROJECT / "conf" / "spark-defaults.conf")),
        *("--conf", "spark.sql.catalogImplementation=in-memory", "--conf", "spark.ui.enabled=false"),
        *("-i", str(PROJECT / "conf" / "tables.sql")),
        *("-e", "SELECT topic, count(*) FROM messages GROUP BY topic"),
    ]
    done = run(command, bare_python.environment(PYTHONPATH=str(package)), tmp_path)
    assert done.status == 0, done.errors[-3000:]
    rows = [line.split("\t") for line in done.output.splitlines()]
    assert {topic: int(count) for topic, count in rows} == Counter(fact["topic"] for fact in STORE.facts("msg"))
