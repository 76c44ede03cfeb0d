"""A restore of a store on HDFS: the bytes of a restore of the same store on the local disk. No Spark here."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spark_mq.cli.main import main
from tests.hdfs.cluster import HdfsCluster
from tests.support.both_places import Place
from tests.support.restored import restore_here
from tests.support.stores import OWN_STORES, RealStore, tree_of

pytestmark = pytest.mark.hdfs


DELETED = RealStore("deleted-533", OWN_STORES)
"""A store with files in timerlog, which are copied as they are."""


@pytest.mark.parametrize("options", [{}, {"renumber": True}], ids=["all", "compact"])
def test_a_store_on_hdfs_is_restored_as_that_on_the_local_disk(
    options: dict[str, Any], on_hdfs: Place, tmp_path: Path
) -> None:
    here, there = on_hdfs(DELETED)
    restore_here(here, tmp_path / "here", DELETED.broker_conf, **options)
    restore_here(there, tmp_path / "there", DELETED.broker_conf, **options)
    files = tree_of(tmp_path / "there")
    assert files == tree_of(tmp_path / "here")
    assert any(name.startswith("timerlog/") for name in files) != bool(options)


@pytest.mark.parametrize("source", ["store", "archive"])
def test_a_restore_to_hdfs_is_refused_before_spark_starts(
    source: str, on_hdfs: Place, hdfs: HdfsCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", mock.Mock(side_effect=AssertionError("Spark starts")))
    store = on_hdfs(DELETED)[1] if source == "store" else f"{hdfs.address}/archive/messages"
    target = f"{hdfs.address}/restored/new"
    assert main(["restore", store, target]) == 2
    said = capsys.readouterr().err
    assert said == (f"spark-mq: {target} is not local, and not on S3: restore to a folder, and copy it from there\n")
    assert not any(status.path.startswith("/restored") for status in hdfs.client.list_status("/", False))
