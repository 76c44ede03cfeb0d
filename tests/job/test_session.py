"""The job's session: its settings are its own, and errors of tasks keep their names."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_mq import rebuild
from spark_mq.errors import NotSharedError
from spark_mq.io.location import Location
from spark_mq.job.tasks import SharedStorageCheck, spark_tasks
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.testing import LogWriter
from tests.support.stores import tree_of

SETTING = "spark.sql.shuffle.partitions"


class FakeConnectSession:
    """A session as Spark Connect has it: it cannot make another. Its settings are its own `conf`."""

    def __init__(self) -> None:
        self.settings = {
            SETTING: "200",
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        }
        self.conf = mock.Mock(get=self.settings.__getitem__, set=self.settings.__setitem__)
        self.sql = mock.Mock(**{"return_value.first.return_value": ("4.2.0 a6d6ea3",)})  # SELECT version()


def test_settings_of_a_connect_session_are_put_back_after_an_error() -> None:
    session = FakeConnectSession()
    before = dict(session.settings)
    during = []

    def work() -> None:
        with spark_tasks(session) as tasks:  # type: ignore[arg-type]
            assert tasks.session is session  # type: ignore[comparison-overlap]
            during.append(session.settings[SETTING])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert during == ["4"]
    assert session.settings == before


def test_other_sessions_keep_their_settings(spark: SparkSession) -> None:
    spark.conf.set(SETTING, "7")
    try:
        with spark_tasks(spark) as tasks:
            assert (tasks.session.conf.get(SETTING), spark.conf.get(SETTING)) == ("4", "7")
    finally:
        spark.conf.set(SETTING, "4")


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(PySparkException, match="no space"), spark_tasks(FakeConnectSession()):  # type: ignore[arg-type]
        raise PySparkException("no space left")


def test_a_job_whose_tasks_see_another_output_stops_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    log = LogWriter(segment_size=4096)
    log.append(1_795_000_000_000)
    log.write(tmp_path / "store")
    seen = SharedStorageCheck.record

    def seen_elsewhere(log: CommitLog, work_folder: Location) -> SharedStorageCheck:
        store, (nonce, _) = seen(log, work_folder).heads
        return SharedStorageCheck((store, (nonce, b"another job's")))

    before = tree_of(tmp_path)
    with (
        mock.patch.object(SharedStorageCheck, "record", seen_elsewhere),
        pytest.raises(NotSharedError, match=r"\.spark_mq/nonce-.* sees another file there"),
    ):
        rebuild(spark, str(tmp_path / "store"), str(tmp_path / "out"), assume_defaults=True)
    assert tree_of(tmp_path) == before
