"""Sail: the same rows as Spark, also of `spark_mq.sql`; and its own limits, each with an error or a wrong answer.

The tests of tables, damage and look-ups run on it, too: see the fixture `engine`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.functions import col, lit
from pyspark.sql.types import StructType

from spark_mq import rebuild, register, sql, verify
from spark_mq._compat import TIME_ZONE, _SailReader
from spark_mq.cli.exit_status import FAILED, FOUND, NOT_UNDERSTOOD
from spark_mq.errors import UnsupportedSparkError
from spark_mq.query.catalog import table_columns
from spark_mq.query.plan import plan_references
from spark_mq.query.sql import reads_of
from tests.query.message_queries import REAL, ROWS, SCHEMA, STORES, WORDS, column_of, rows
from tests.query.random_queries import COLUMNS, random_query
from tests.support.kernels import examples
from tests.support.stores import PROJECT, WORKLOAD

ZONE = "America/New_York"


@pytest.fixture(autouse=True)
def _functions_of_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pyspark.sql.functions` makes columns of Spark Connect."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")


@pytest.fixture
def new_york(sail: SparkSession) -> Iterator[SparkSession]:
    """The session in another time zone, which the tables know since `register`."""
    sail.conf.set(TIME_ZONE, ZONE)
    register(sail)
    yield sail
    sail.conf.set(TIME_ZONE, "UTC")
    register(sail)


def test_pushdown_does_not_change_the_rows_of_any_query(sail: SparkSession) -> None:
    """Relations are reduced to local rows: Sail 0.7 gives wrong answers to some filters of filtered relations."""
    everything = sail.createDataFrame(
        sail.sql(f"SELECT * FROM VALUES {ROWS} AS t ({', '.join(COLUMNS)})")
        .withColumn("store_timestamp", col("store_timestamp").cast("timestamp"))
        .collect(),
        SCHEMA,
    )
    compared = 0

    @settings(max_examples=examples(180))
    @given(random=st.randoms(use_true_random=True))
    def check(random: Random) -> None:
        nonlocal compared
        query = random_query(random, WORDS)
        note(query)
        frames: dict[str, Any] = {}
        filtered = False
        for read in reads_of(sail, query, stores=STORES):
            filters = [column_of(condition) for condition in read.conditions]
            names = COLUMNS if read.reference.columns is None else read.schema.fieldNames()
            known = [col(name) if name in COLUMNS else lit(0).alias(name) for name in names]
            frame = (everything.where(reduce(and_, filters)) if filters else everything).select(known)
            frames[read.reference.name] = sail.createDataFrame(frame.collect(), frame.schema)
            filtered |= bool(filters)
        template = plan_references(query, STORES, table_columns).template
        whole: dict[str, Any] = dict.fromkeys(frames, everything)
        try:
            judged = rows(sail.sql(template, **whole))
        except PySparkException:  # a query that Sail does not know (COLLATE, ...)
            return
        assert rows(sail.sql(template, **frames)) == judged
        compared += filtered

    check()
    assert compared > 10


def test_a_real_store_gives_the_rows_of_a_whole_read(sail: SparkSession, store: str) -> None:
    for view, table in (("all_messages", "messages"), ("all_units", "consume_queue")):
        frame = sail.read.format("rocketmq").option("table", table).load(store)
        sail.createDataFrame(frame.toArrow(), frame.schema).createOrReplaceTempView(view)
    for query in (query for query in REAL if "* EXCEPT" not in query):  # Sail's parser does not know it
        stores = {"prod": {"path": store, "brokerConf": str(WORKLOAD.broker_conf)}}
        found = rows(sql(sail, query.format(m="prod.messages", u="prod.consume_queue"), stores=stores))
        assert found == rows(sail.sql(query.format(m="all_messages", u="all_units")))
        assert found


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("topic = 'a'", ("a",)),
        ("queue_id = 3L OR queue_id = 1 + 1", (3, 2)),
        ("queue_id < 2.5", None),
        ("store_timestamp < '2026-03-08 03:30:00'", (datetime(2026, 3, 8, 7, 30, tzinfo=UTC),)),
        ("store_timestamp >= '2026-11-20'", (datetime(2026, 11, 20, 5, tzinfo=UTC),)),
        ("store_timestamp = DATE '2026-11-20'", (datetime(2026, 11, 20, 5, tzinfo=UTC),)),
        ("store_timestamp = CAST('2026-11-20' AS TIMESTAMP_NTZ)", None),
        ("store_timestamp > 'now'", None),
    ],
)
def test_constants_mean_what_they_mean_to_sail(new_york: SparkSession, condition: str, expected: Any) -> None:
    (read,) = reads_of(new_york, f"SELECT * FROM messages WHERE {condition}", stores=STORES)
    assert [one.values for one in read.conditions] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    "source", ["messages", "(SELECT * FROM of_format) m", "rocketmq_lookup('{store}', 'OrderEvents', 'ORD-16')"]
)
def test_times_are_of_the_zone_of_the_session(new_york: SparkSession, store: str, source: str) -> None:
    reader = new_york.read.format("rocketmq").options(topic="OrderEvents", key="ORD-16")
    reader.load(store).createOrReplaceTempView("of_format")
    query = f"SELECT CAST(store_timestamp AS STRING), hour(store_timestamp) FROM {source.format(store=store)}"
    where = " WHERE topic = 'OrderEvents' AND array_contains(keys, 'ORD-16')"
    assert [tuple(row) for row in sql(new_york, query + where, stores={"a": store}).collect()] == [
        ("2026-11-21 06:01:15.987", 6)
    ]


def test_jobs_are_refused(sail: SparkSession, store: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSparkError, match="not on Sail"):
        rebuild(sail, store, str(tmp_path / "rebuilt"))
    with pytest.raises(UnsupportedSparkError, match="not on Sail"):
        verify(sail, store)


def test_writes_are_refused(sail: SparkSession, store: str, tmp_path: Path) -> None:
    frame = sail.read.format("rocketmq").load(store)
    with pytest.raises(PySparkException, match="cannot write stores or topics"):
        frame.write.format("rocketmq").mode("append").save(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_streams_are_refused(sail: SparkSession, store: str, tmp_path: Path) -> None:
    """Sail itself refuses every sink that keeps rows."""
    stream = sail.readStream.format("rocketmq").load(store)
    for sink in ("parquet", "console", "memory", "rocketmq"):
        writer = stream.writeStream.format(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        with pytest.raises(PySparkException):
            writer.queryName("stream").start(str(tmp_path / sink))


@pytest.mark.xfail(reason="Sail 0.7.2 compares a BIGINT wrongly", strict=True)
def test_two_conditions_of_one_number(sail: SparkSession) -> None:
    """The page about Sail says so."""
    assert sail.sql("SELECT * FROM VALUES (1L), (2L) AS t (n) WHERE n IN (1) AND 1 = n").count() == 1


class Letters(DataSource):
    """Rows a, b and z; what `pushFilters` got is in the second column."""

    @classmethod
    def name(cls) -> str:
        return "letters"

    def schema(self) -> str:
        return "letter STRING, pushed STRING"

    def reader(self, schema: StructType) -> DataSourceReader:
        return LettersReader()


class LettersReader(DataSourceReader):
    pushed = ""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self.pushed = str(filters)
        return filters

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        yield from ((letter, self.pushed) for letter in "abz")


@pytest.mark.xfail(reason="Sail 0.7.2 pushes LIKE for NOT LIKE", strict=True)
def test_a_pushed_filter_is_that_of_the_query(sail: SparkSession) -> None:
    """As long as it is not, the data source takes no pushed filters from Sail."""
    sail.dataSource.register(Letters)
    found = sail.read.format("letters").load().where("letter NOT LIKE 'z%'").collect()
    assert [row.letter for row in found] == ["a", "b"]
    assert "StringStartsWith" not in found[0].pushed


class Numbers(DataSourceReader):
    """A row in each batch."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from (pa.RecordBatch.from_pydict({"n": [number]}) for number in range(int(partition.value)))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100])
def test_no_task_waits_until_its_rows_are_taken(count: int) -> None:
    """A task that waits keeps Python's lock, and a join that takes the rows of another task first never ends."""
    batches = list(_SailReader(Numbers(), pa.schema([("n", pa.int64())])).read(InputPartition(count)))
    assert len(batches) == min(count, 16)
    assert [number for batch in batches for number in batch["n"].to_pylist()] == list(range(count))


def test_the_server_ends_with_the_process_that_started_it() -> None:
    code = "import os; from spark_mq.sail import sail_server; print(sail_server(), flush=True); os.kill(os.getpid(), 9)"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    # The server has the same stderr, so that this waits for its end, too.
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    host, port = done.stdout.strip().removeprefix("sc://").split(":")
    with socket.socket() as client:
        assert client.connect_ex((host, int(port))) != 0


@pytest.mark.parametrize(
    ("status", "words", "said"),
    [
        (FOUND, ["SELECT topic, count(*) FROM messages WHERE topic = 'OrderEvents' GROUP BY 1"], "OrderEvents,248"),
        (FAILED, ["SELECT * FROM rocketmq_lookup('/nowhere', 'T', 'K')"], "/nowhere does not exist"),
        (NOT_UNDERSTOOD, ["SELECT 1", "--spark-conf", "spark.driver.memory=4g"], "no effect on Sail"),
        (NOT_UNDERSTOOD, ["SELECT 1", "--packages", "a:b:1"], "--packages exclude each other"),
        (NOT_UNDERSTOOD, ["SELECT 1", "--archive", "old={store}"], "--archive needs Spark"),
    ],
    ids=str,
)
def test_the_command_needs_no_java(store: str, tmp_path: Path, status: int, words: list[str], said: str) -> None:
    """The command's PATH has nothing at all."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "JAVA"))}
    words = [word.format(store=store) for word in words]
    command = [sys.executable, "-m", "spark_mq", "sql", "--engine", "sail", "--store", f"a={store}", "--format", "csv"]
    environment = {**kept, "PYTHONPATH": str(PROJECT), "PATH": str(tmp_path)}
    done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert said in (done.stdout if status == FOUND else done.stderr)
    assert len(done.stderr.splitlines()) == (status != FOUND), done.stderr
