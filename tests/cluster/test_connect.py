"""Spark Connect: a server that lacks the package, and one in the process of the command."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Python, run, running
from tests.support.stores import PROJECT, WORKLOAD, index_of, tree_of

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def server(bare_python: Python, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server whose Python lacks the package."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
    }
    command = [
        *(bare_python.spark("spark-submit"), "--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(f"--conf={key}={value}" for key, value in settings.items()),
        "spark-internal",
    ]
    log = tmp_path_factory.mktemp("connect") / "server.log"
    with running(command, bare_python.environment(), log, r"server started at: \S*?:(\d+)") as started:
        yield f"sc://127.0.0.1:{started[1]}"


def environment(**more: str) -> dict[str, str]:
    """That of a client with the package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {**kept, "PYTHONPATH": str(PROJECT), **more}


def test_a_client_sends_the_package_reads_and_rebuilds(server: str, package: Path, store: Path, tmp_path: Path) -> None:
    job = [str(PROJECT / "tests" / "cluster" / "connect_job.py"), str(package), str(store), str(WORKLOAD.broker_conf)]
    done = run([sys.executable, *job, str(tmp_path / "out")], environment(SPARK_REMOTE=server), tmp_path)
    assert done.status == 0, done.errors[-3000:]
    found = json.loads(done.output)
    assert found["session"] == "pyspark.sql.connect.session"
    assert found["topics"] == Counter(fact["topic"] for fact in WORKLOAD.facts("msg"))
    assert found["counted"].items() <= found["topics"].items()
    assert found["messages"] == len(WORKLOAD.facts("msg"))
    assert tree_of(tmp_path / "out" / "consumequeue") == tree_of(store / "consumequeue")
    assert index_of(tmp_path / "out") == index_of(store)
    assert found["setting"] == ["200", "200"]


def test_the_command_starts_a_server_of_its_own(store: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark_mq.cli.main", "rebuild", str(store), "--output", str(tmp_path / "out")]
    # SPARK_TESTING lets Spark take any free port for the server, which is 15002 otherwise.
    settings = environment(SPARK_REMOTE="local[2]", SPARK_TESTING="yes", SPARK_LOCAL_IP="127.0.0.1")
    done = run([*command, "--broker-conf", str(WORKLOAD.broker_conf)], settings, tmp_path)
    assert done.status == 0, done.errors[-3000:]
    assert tree_of(tmp_path / "out" / "consumequeue") == tree_of(store / "consumequeue")
    assert index_of(tmp_path / "out") == index_of(store)
    assert "UserWarning" not in done.errors
