"""What `spark-mq sql` answers or refuses without Spark: in these tests, a session that starts is an error."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from pyspark.errors import AnalysisException, UnsupportedOperationException

from spark_mq.cli.spark import spark_errors
from spark_mq.cli.sql import command
from spark_mq.errors import SparkMqError
from spark_mq.store.config.named_stores import STORE_COLUMNS
from tests.support.said import Run
from tests.support.stores import WORKLOAD, Unpack

CONF = f"brokerConf={WORKLOAD.broker_conf}"


@pytest.fixture
def sql(run: Run, unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(command, "spark_session", mock.Mock(side_effect=AssertionError("Spark was started")))
    for name in ("SPARK_REMOTE", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_ENV_LOADED"):
        monkeypatch.delenv(name, raising=False)
    return lambda *words, **status: run("sql", *words, "--store", f"prod={unpacked(WORKLOAD)}", **status)


@pytest.mark.parametrize(
    ("status", "why", "arguments"),
    [
        (2, "the query cannot be parsed: Expected table name, line 1", ("SELECT FROM WHERE", "--explain")),
        (2, "SELEKT begins no statement; did you mean SELECT?", ("SELEKT 1",)),
        (2, "no table prodd.messages; did you mean prod.messages?", ("SELECT 1 FROM prodd.messages", "--explain")),
        (2, "no table prod.mesages; did you mean prod.messages?", ("SELECT 1; SELECT 1 FROM prod.mesages",)),
        (2, "--store prod=... is given twice", ("SELECT 1", "--store", "PROD=/data/store")),
        (2, "both have the name prod", ("SELECT 1", "--archive", "prod=/lake/messages")),
        (2, "old=/lake/nothing is not a Delta table", ("SELECT 1", "--archive", "old=/lake/nothing")),
        (2, "unknown option moed; did you mean mode?", ("SELECT 1", "--option", "moed=FAILFAST")),
        (2, "mode='FAST' is not one of PERMISSIVE, DROPMALFORMED, FAILFAST", ("SELECT 1", "--option", "mode=FAST")),
        (2, "startingOffsets is for streams only", ("SELECT 1", "--option", "startingOffsets=latest")),
        (2, "/nothing: cannot be read: there is no such file", ("SELECT 1", "--option", "brokerConf=/nothing")),
        (1, "no store matches /nowhere/*", ("SELECT 1", "--store", "dev=/nowhere/*")),
        (1, "/data/nothing does not exist", ("SELECT 1", "--store", "dev=/data/nothing")),
    ],
)
def test_what_cannot_work_is_refused(sql: Run, status: int, why: str, arguments: tuple[str, ...]) -> None:
    printed = sql(*arguments, status=status)
    assert printed.out == ""
    assert why in printed.err
    assert len(printed.err.splitlines()) == 1


def test_names_are_sparks_to_know_if_it_has_a_catalog_of_its_own(
    sql: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    query = "SELECT 1 FROM prodd.messages"
    with pytest.raises(AssertionError, match="Spark was started"):
        sql(query, "--spark-conf", "spark.sql.catalogImplementation=hive")
    sql(query, "--spark-conf", "spark.driver.memory=1g", status=2)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    sql(query, status=2)
    (tmp_path / "spark-defaults.conf").touch()
    with pytest.raises(AssertionError, match="Spark was started"):
        sql(query)


def test_a_server_has_its_own_paths(sql: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://server:15002")
    query = "SELECT topic FROM dev.messages WHERE topic = 'a'"
    first, second = sql(query, "--explain", "--store", "dev=/data/nothing", "--archive", "old=/lake/nothing").lines
    assert first == "dev.messages (topic) where topic in ('a')"
    assert second.startswith("  note   the access path is not known here")


def test_a_running_cluster_and_its_archive(run: Run, tmp_path: Path) -> None:
    (tmp_path / "messages" / "_delta_log").mkdir(parents=True)
    conf = tmp_path / "client.properties"
    conf.write_text("accessKey=user\nsecretKey=hidden\nrequestTimeout=20\n")
    live = ("--store", "prod=rocketmq://127.0.0.1:1", "--client-conf", str(conf))
    query = "SELECT topic FROM history WHERE topic = 'a' AND broker = 'b'; SELECT 1 FROM consumer_progress"
    assert run("sql", query, "--explain", *live, "--archive", f"old={tmp_path}/messages").lines == [
        "history (broker, topic) where topic in ('a') and broker in ('b')",
        f"  archive {tmp_path}/messages, and after its end the store:",
        "  path   the brokers of rocketmq://127.0.0.1:1 are asked when the query runs",
        "prod.consumer_progress (cluster)",
        "  path   the brokers of rocketmq://127.0.0.1:1 are asked when the query runs",
    ]
    describe = "DESCRIBE history; DESCRIBE prod.messages; DESCRIBE EXTENDED topics"
    printed = run("sql", describe, "--format", "csv", *live, "--archive", f"old={tmp_path}/messages").out
    assert [line.partition(",")[0] for line in printed.splitlines()[1:5]] == [*STORE_COLUMNS, "commit_log_offset"]
    assert printed.count("store_timestamp_millis") == 1  # history has only the columns that both have
    assert "requestTimeout=20" in printed
    assert "hidden" not in printed
    for arguments, why in (
        (("SELECT * FROM segments", *live), "table='segments' is not one of messages, queues"),
        (("SELECT 1", *live, "--option", "splitSize=1m"), "splitSize does not apply to a running cluster"),
        (("SELECT 1", *live[:2], "--option", "requestTimeout=x"), "requestTimeout='x' is not a number of seconds"),
        (("SELECT 1", *live[2:], "--archive", f"old={tmp_path}/messages"), "--client-conf has only an effect on a"),
    ):
        assert why in run("sql", *arguments, "--explain", status=2).err


def test_tables_and_columns(sql: Run) -> None:
    lines = sql("SHOW TABLES; DESCRIBE queues max_offset", "--format", "csv").lines
    assert lines[0] == "namespace,tableName,description"
    assert [line.split(",")[:2] for line in lines[1:3]] == [["prod", "messages"], ["prod", "messages_by_key"]]
    assert lines[-3:] == ["col_name,max_offset", "data_type,bigint", "comment,the queue offset after the last message"]


def test_explain_shows_how_each_table_is_read(sql: Run) -> None:
    query = "SELECT tags FROM prod.messages WHERE topic = 'OrderEvents' AND array_contains(keys, 'ORD-20')"
    size = sum(fact["size"] for fact in WORKLOAD.facts("msg"))
    first, path, reads, note = sql(query, "--explain", "--option", CONF).lines
    assert (first, path) == ("prod.messages (topic, tags, keys) where topic in ('OrderEvents')", "  path   whole log")
    assert size <= int(reads.split()[-2].replace(",", "")) < 2 * size
    assert "transaction_type <> 'ROLLBACK'" in note

    first, path, *rest = sql(f"{query} AND transaction_type <> 'ROLLBACK'", "--explain", "--option", CONF).lines
    assert "key in ('ORD-20')" in first
    assert path == "  path   index"
    assert rest[-1] == "  reads  1 records of the log that have a key's hash"

    lines = sql("SELECT 1; SELECT * FROM segments, consume_queue c WHERE c.topic = 'OrderEvents'", "--explain").lines
    assert lines[0] == "the statement reads no table of a store"
    assert lines[2] == "  path   one task reads the table"
    assert lines[4:] == ["  path   all of consumequeue/, topic OrderEvents", "  reads  4 files: 8,000 bytes"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UnsupportedOperationException("SHOW CREATE TABLE"), "the server does not support this: SHOW CREATE TABLE"),
        (
            AnalysisException('attribute ObjectName([Identifier("m"), Identifier("topc")]) is missing from the schema'),
            "there is no column m.topc; DESCRIBE TABLE lists the columns",
        ),
        (AnalysisException("[NO_SUCH] thing"), "[NO_SUCH] thing"),
    ],
)
def test_errors_of_sail_are_sentences(error: Exception, text: str) -> None:
    with pytest.raises(SparkMqError) as raised, spark_errors():
        raise error
    assert str(raised.value) == text
