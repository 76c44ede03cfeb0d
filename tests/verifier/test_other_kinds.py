"""Parts of a store that are not checked are named by a note, and are no damage of anything else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.verifier.quick import quick_check
from tests.support.stores import OWN_STORES, RealStore
from tests.support.verified import Bench, check, grave

Unpack = Callable[[RealStore], Path]


@pytest.fixture
def bench(unpacked: Unpack, tmp_path: Path) -> Bench:
    return Bench.of(unpacked(RealStore("workload-533", OWN_STORES)), "workload-533", tmp_path)


def notes(bench: Bench) -> list[str | None]:
    """The files of notes about kinds that are not checked: of a whole check, and the same of a quick one."""
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert grave(findings) == []
    files = sorted(finding.file or "" for finding in findings if finding.code == "NOT_CHECKED")
    report, quick = quick_check(str(bench.path), BrokerConf.of(str(bench.packed.broker_conf)))
    assert report.is_sound, report.counts
    rows = [row for row in quick.to_pylist() if row["code"] == "NOT_CHECKED"]
    assert sorted(row["file"] for row in rows) == files
    return list(files)


def test_queues_in_rocksdb(bench: Bench) -> None:
    shutil.rmtree(bench.path / "consumequeue")
    (bench.path / "consumequeue").mkdir()
    for name in ("CURRENT", "MANIFEST-000004"):
        (bench.path / "consumequeue" / name).write_text("MANIFEST-000004\n")
    assert notes(bench) == ["consumequeue"]


def test_batch_queues_and_extensions(bench: Bench) -> None:
    for name in ("batchconsumequeue/Batches/0", "consumequeue_ext/SequenceDemo/0"):
        (bench.path / name).mkdir(parents=True)
    assert notes(bench) == ["batchconsumequeue", "consumequeue_ext"]


def test_light_queues(bench: Bench) -> None:
    queue = bench.path / "consumequeue/%LMQ%sensor/0"
    shutil.copytree(bench.path / "consumequeue/SequenceDemo/0", queue)
    assert notes(bench) == ["consumequeue/%LMQ%sensor/0"]


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    checked, findings = check(tmp_path, None)
    assert (findings, checked.messages) == ([], 0)


def test_index_files_whose_layout_nothing_shows(bench: Bench) -> None:
    for file in sorted((bench.path / "index").iterdir())[:-1]:
        file.unlink()
    _, findings = check(bench.path, None)
    assert [finding.file for finding in findings if finding.code == "NOT_CHECKED"] == ["index"]
