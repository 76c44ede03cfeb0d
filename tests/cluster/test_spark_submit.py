"""`spark-submit --py-files` on a standalone cluster whose machines do not have the package."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Cluster, Done, Python, run, standalone_cluster
from tests.support.soak import SOAKS
from tests.support.stores import PROJECT, SAME, WORKLOAD, index_of, tree_of

pytestmark = pytest.mark.cluster

READ = ("commit_log_offset", "topic", "queue_id", "queue_offset", "tags", "unique_key")


@pytest.fixture(scope="module")
def cluster(bare_python: Python, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(bare_python, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def submit(cluster: Cluster, package: Path, folder: Path, *job: str) -> Done:
    settings = {
        "spark.executor.memory": "1g",
        # The first tasks wait for both executors, so that each gets some.
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.ui.enabled": "false",
    }
    command = [
        *(cluster.python.spark("spark-submit"), "--master", cluster.master, "--driver-memory", "1g"),
        *("--properties-file", str(PROJECT / "conf" / "spark-defaults.conf"), "--py-files", str(package)),
        *(f"--conf={key}={value}" for key, value in settings.items()),
        *job,
    ]
    return run(command, cluster.python.environment(), folder)


def rebuild(cluster: Cluster, package: Path, folder: Path, store: Path, output: Path, *before: str) -> Done:
    """The end of the job that rebuilds, or of one `before` it in the same driver."""
    settings = ["--broker-conf", str(WORKLOAD.broker_conf), "--split-size", "64k"]
    job = [str(PROJECT / "jobs" / "rebuild.py"), str(store), "--output", str(output), *settings]
    return submit(cluster, package, folder, *before, *job)


def test_executors_read_and_rebuild_with_the_package_from_the_zip(
    cluster: Cluster, package: Path, store: Path, tmp_path: Path
) -> None:
    read = [str(PROJECT / "tests" / "cluster" / "read_job.py"), str(tmp_path / "found.json")]
    done = rebuild(cluster, package, tmp_path, store, tmp_path / "out", *read)
    assert done.status == 0, done.errors[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    facts = WORKLOAD.facts("msg")
    assert found["topics"] == Counter(fact["topic"] for fact in facts)
    expected = [{name: fact[SAME[name]] for name in READ} for fact in facts]
    by_offset = sorted(found["messages"], key=lambda row: row["commit_log_offset"])
    assert by_offset == sorted(expected, key=lambda row: row["commit_log_offset"])
    assert len({place["folder"] for place in found["places"]}) == 2
    assert all(place["package"].endswith("spark_mq.zip/spark_mq/__init__.py") for place in found["places"])
    assert f"consumequeue and index of {store} rebuilt in {tmp_path / 'out'}" in done.output
    assert tree_of(tmp_path / "out" / "consumequeue") == tree_of(store / "consumequeue")
    assert index_of(tmp_path / "out") == index_of(store)


@pytest.mark.skipif(not SOAKS, reason="a soak")
def test_an_output_that_executors_do_not_see_is_an_error(
    cluster: Cluster, package: Path, store: Path, tmp_path: Path
) -> None:
    if cluster.hidden is None:
        pytest.skip("no right to mount: the workers see every folder")
    output = cluster.hidden / "out"
    done = rebuild(cluster, package, tmp_path, store, output)
    assert done.status == 1
    # spark-submit puts what a Python driver writes on stderr on its own stdout.
    line = done.output.splitlines()[-1]
    assert line.startswith(f"spark-mq: {output}/.spark_mq/nonce-")
    assert "cannot open it; give a store and an output that every machine of the cluster sees" in line
    assert list(output.iterdir()) == []
