"""Stores on S3 in Spark: the driver, the planning workers and the executors get the same settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from spark_mq import rebuild, register
from spark_mq.source.explain import explain
from tests.s3.conftest import REGION
from tests.s3.proxy import Proxy
from tests.s3.server import ACCESS_KEY, SECRET_KEY
from tests.support.both_places import Place
from tests.support.delta_rows import delta_rows
from tests.support.stores import OWN_STORES, WORKLOAD, RealStore, tree_of
from tests.support.verified import check, grave

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.s3

_SECRET = re.compile(f"{ACCESS_KEY}|{SECRET_KEY}")


@pytest.fixture
def options(s3: Proxy, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings as options with their names in Hadoop; the environment has none."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    return {
        "fs.s3a.access.key": ACCESS_KEY,
        "fs.s3a.secret.key": SECRET_KEY,
        "fs.s3a.endpoint": f"http://{s3.endpoint}",
        "fs.s3a.endpoint.region": REGION,
    }


def test_options_reach_every_process_and_nobody_sees_them(
    spark: SparkSession, on_s3: Place, options: dict[str, str]
) -> None:
    here, there = on_s3(WORKLOAD)
    register(spark)
    expected = spark.read.format("rocketmq").option("splitSize", "100k").load(here)
    found = spark.read.format("rocketmq").options(**options).option("splitSize", "100k").load(there)
    assert found.orderBy("commit_log_offset").collect() == expected.orderBy("commit_log_offset").collect()
    assert not _SECRET.search(found._jdf.queryExecution().toString())
    assert not _SECRET.search(explain(there, **options))


def test_a_look_up_of_a_key_sends_at_most_12_requests_from_all_processes(
    spark: SparkSession, on_s3: Place, options: dict[str, str], s3: Proxy
) -> None:
    store = RealStore("stale-533", OWN_STORES)
    here, there = on_s3(store)
    fact = next(fact for fact in store.facts("msg")[10:] if fact.get("keys"))
    register(spark)
    key = {"topic": fact["topic"], "key": fact["keys"].split()[0], "brokerConf": str(store.broker_conf)}
    expected = spark.read.format("rocketmq").options(**key).load(here).collect()
    s3.clear()
    assert spark.read.format("rocketmq").options(**options, **key).load(there).collect() == expected
    assert expected
    assert len(s3.requests) <= 12, [(request.path, request.range) for request in s3.requests]


def test_an_error_shows_no_secret(spark: SparkSession, on_s3: Place, options: dict[str, str]) -> None:
    register(spark)
    wrong = {**options, "fs.s3a.secret.key": f"{SECRET_KEY}-wrong"}
    with pytest.raises(Exception, match="denies the access") as caught:
        spark.read.format("rocketmq").options(**wrong).load(on_s3(WORKLOAD)[1]).count()
    assert not _SECRET.search(str(caught.value))


def test_a_rebuild_needs_no_environment_in_its_tasks(
    spark: SparkSession, on_s3: Place, s3: Proxy, tmp_path: Path
) -> None:
    """The driver's environment got the settings after Spark had started."""
    here, there = on_s3(WORKLOAD)
    (s3.server.folder / "spark").mkdir(exist_ok=True)
    rebuild(spark, here, str(tmp_path), broker_conf=str(WORKLOAD.broker_conf), split_size=100 << 10)
    report = rebuild(spark, there, "s3://spark/rebuilt", broker_conf=str(WORKLOAD.broker_conf), split_size=100 << 10)
    assert tree_of(s3.server.folder / "spark" / "rebuilt") == tree_of(tmp_path)
    assert not _SECRET.search(report.to_text())


def test_a_dataframe_is_written_as_a_store(spark: SparkSession, on_s3: Place, s3: Proxy, tmp_path: Path) -> None:
    """The process in which Spark makes the writer has no environment: the address has the settings."""
    here, _ = on_s3(WORKLOAD)
    (s3.server.folder / "spark").mkdir(exist_ok=True)
    register(spark)
    rows = spark.read.format("rocketmq").load(here).where("topic = 'SequenceDemo'")
    settings = f"access_key={ACCESS_KEY}&secret_key={SECRET_KEY}&endpoint_override={s3.endpoint}&scheme=http"
    written = rows.write.format("rocketmq").mode("append").option("brokerConf", str(WORKLOAD.broker_conf))
    written.option("renumber", "true").save(f"s3://spark/written?{settings}")
    _, findings = check("s3://spark/written", WORKLOAD.broker_conf)
    assert not grave(findings)
    bodies = spark.read.format("rocketmq").load(f"s3://spark/written?{settings}").select("body")
    assert bodies.orderBy("body").collect() == rows.select("body").orderBy("body").collect() != []
    assert {file.name for file in (s3.server.folder / "spark").iterdir()} <= {"written", "written_offsets", "rebuilt"}
    with pytest.raises(Exception, match="nothing can be appended on S3") as caught:
        rows.write.format("rocketmq").mode("append").save(f"s3://spark/written?{settings}")
    assert not _SECRET.search(str(caught.value))


@pytest.mark.archive
def test_an_archive_of_a_store_on_s3_has_its_messages(
    delta: SparkSession, on_s3: Place, s3: Proxy, tmp_path: Path
) -> None:
    from spark_mq.archive.writer import archive

    _, there = on_s3(WORKLOAD)
    table = tmp_path / "messages"
    report = archive(delta, there, str(table), broker="a", store_name="s")
    rows = {row["commit_log_offset"]: row["topic"] for row in delta_rows(table)}
    assert rows == {fact["offset"]: fact["topic"] for fact in WORKLOAD.facts("msg")}
    assert report.rows == len(rows)
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert not _SECRET.search(written.decode("latin-1"))
