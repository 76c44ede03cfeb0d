"""Each command of README.md and docs/ as it is printed, with folders of a store that is here, and what it answers.

Blocks of Python and SQL run as they are printed, too, each page from its first block to its last.

The SQL shell over an archive and its store has a Python that lacks the package: it finds it in the zip. There is no
Python driver in it, so Spark itself has to find the format. It runs as a process, as do a line with Sail and one
without Spark. The other lines run in this process, in the tests' own session: a Spark that starts costs more than what
it does here. tests/cluster/test_spark_submit.py has `spark-submit` as a process.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_mq
from spark_mq.archive.writer import archive
from spark_mq.cli.main import main
from tests.cluster.processes import Python
from tests.support.pages import blocks, shell_lines
from tests.support.stores import PROJECT, WORKLOAD, index_of, tree_of

pytestmark = pytest.mark.cluster

NOT_RUN = re.compile(r"pip install|completion bash >|HOST|=/data/dev$|--help$|s3://|hdfs://|rocketmq://|AWS_")
"""Lines that change the machine, need a server or a terminal; each form is tested elsewhere."""

TOPIC = "OrderEvents"
KEY = next(fact["uniqKey"] for fact in WORKLOAD.facts("msg") if fact["topic"] == TOPIC and fact["uniqKey"])
MESSAGE_ID = next(fact["msgId"] for fact in WORKLOAD.facts("msg") if fact["uniqKey"] == KEY)
PRINTED_QUERY = "SELECT topic, count(*) FROM messages GROUP BY topic"
QUERIES = (
    PRINTED_QUERY,
    "SELECT 'queues', count(*), sum(max_offset) FROM queues",
    "SELECT 'units', count(*) FROM consume_queue WHERE state = 'LIVE'",
    "SELECT 'segments', count(*) FROM segments",
    "SELECT 'topics', count(*) FROM topics",
    "SELECT 'offsets', count(*) FROM consumer_offsets",
)
"""The query that a page has for conf/tables.sql, and one for each other view."""

PROCESSES = ("spark-sql .*conf/history.sql", "--engine sail ", "spark-mq paths")
"""Lines that run as processes: a shell of Spark, with the package from its zip; our command with Sail, and without
Spark."""

SETTINGS = "--properties-file conf/delta-defaults.conf --load-spark-defaults"
"""Of every `spark-submit` for archives."""

NEEDS_A_SERVER = re.compile(r"rocketmq://|s3://|\(live\)|live\}|sail_session")
"""Blocks that need a server; each form is tested elsewhere."""

WITH_SPARK = ("spark", "sql.command")
"""The modules of `spark_mq.cli` that start Spark."""

MADE_FIRST = ("jobs/archive.py", "jobs/maintain_archive.py")
"""The archive is made before it is asked."""

MADE_LAST = "spark-mq archive "
"""The archive is asked while the store has messages that it lacks; this line appends them."""


class Shell:
    """Runs lines of the pages, in a folder with what the source tree has."""

    def __init__(
        self,
        folder: Path,
        store: Path,
        bare_python: Python,
        package: Path,
        spark: SparkSession,
        printed: Callable[[], tuple[str, str]],
    ) -> None:
        self._spark = spark
        self._printed = printed
        self._names = {
            "/data/store": str(store),
            "--html ": f"--html {folder}/",
            "/data/": f"{folder}/",
            "/lake/": f"{folder}/lake/",
            "/backup/": f"{folder}/",
            "topic=orders": f"topic={TOPIC}",
            " orders ": f" {TOPIC} ",
            "key=order-42": f"key={KEY}",
            " order-42": f" {KEY}",
            PRINTED_QUERY + '"': "; ".join(QUERIES) + '"',
        }
        for name in ("broker-a", "broker-b"):
            (folder / name).symlink_to(store)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "spark-mq").write_text(f'#!/bin/sh\nexec {sys.executable} -m spark_mq "$@"\n')
        (programs / "spark-mq").chmod(0o755)
        # The shells of Spark write into the folder in which they start.
        self._tree = folder / "tree"
        self._tree.mkdir()
        for name in ("conf", "jobs"):
            (self._tree / name).symlink_to(PROJECT / name)
        path = os.pathsep.join([str(programs), str(bare_python.spark_home / "bin"), os.environ["PATH"]])
        self._own = {**os.environ, "PATH": path, "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable}
        options = os.environ["JDK_JAVA_OPTIONS"]
        self._bare = bare_python.environment(PATH=path, PYTHONPATH=str(package), JDK_JAVA_OPTIONS=options)

    def run(self, line: str) -> str:
        """What a line prints on stdout."""
        is_our_command = line.startswith("spark-mq ")
        is_process = any(re.search(kind, line) for kind in PROCESSES)
        for name, here in self._names.items():
            if name != PRINTED_QUERY + '"' or not is_our_command:
                line = line.replace(name, here)
        status, output, errors = self._process(line, is_our_command) if is_process else self._here(line)
        assert status == 0, f"{line}\n{errors[-3000:]}"
        assert "Traceback" not in errors, line
        return output

    def _process(self, line: str, is_our_command: bool) -> tuple[int, str, str]:
        environment = self._own if is_our_command else self._bare
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._tree, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def _here(self, line: str) -> tuple[int, str, str]:
        """Run a line that has nothing for a shell to do but to split it into words."""
        assert not re.search(r"[$`|&;<>\\]", re.sub(r'"[^"$`\\]*"', "", line)), line
        program, *words = shlex.split(line)
        if program == "spark-mq":
            status: object = main(words)
        elif program == "spark-sql":
            return 0, self._sql(words), ""
        else:
            assert line.startswith(f"spark-submit {SETTINGS} jobs/"), line
            job, *arguments = words[len(SETTINGS.split()) :]
            status = job_status(PROJECT / job, arguments)
        assert isinstance(status, int)
        return (status, *self._printed())

    def _sql(self, words: list[str]) -> str:
        """The rows of the last statement: of a file for `-i`, with variables in it, and of statements for `-e`."""
        session = self._spark.newSession()
        given = list(zip(words[::2], words[1::2], strict=True))
        for variable in (value for option, value in given if option == "--hivevar"):
            session.conf.set(*variable.split("=", 1))
        texts = [
            (PROJECT / text).read_text() if option == "-i" else text for option, text in given if option in ("-i", "-e")
        ]
        statements = [text for text in re.sub("--.*", "", ";".join(texts)).split(";") if text.strip()]
        return "".join("\t".join(map(str, row)) + "\n" for text in statements for row in session.sql(text).collect())


def job_status(job: Path, arguments: list[str]) -> object:
    """The exit status of a job that runs in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(job), *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(job), run_name="__main__")
    return ended.value.code


def parts_of(settings: Mapping[str, str]) -> set[tuple[str, str]]:
    """Each setting; each part of one that is a list, such as packages, of which other tests need more."""
    return {(name, part) for name, value in settings.items() for part in value.split(",")}


@pytest.fixture
def commands_session(delta: SparkSession, delta_jars: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process get the tests' session, if it has the settings that they ask for."""

    @contextmanager
    def session(
        name: str, settings: Callable[[], Mapping[str, str]] = dict, *_: object, **__: object
    ) -> Iterator[SparkSession]:
        assert parts_of(settings()) <= parts_of(delta_jars), name
        yield delta.newSession()

    for module in WITH_SPARK:
        monkeypatch.setattr(f"spark_mq.cli.{module}.spark_session", session)


@pytest.mark.timeout(1800)  # some fifty commands
@pytest.mark.usefixtures("commands_session")
def test_every_command_of_the_pages_runs_as_printed(
    bare_python: Python,
    package: Path,
    store: Path,
    delta: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    growing = tmp_path / "store"
    shell = Shell(tmp_path, growing, bare_python, package, delta, capsys.readouterr)
    entries = [
        {"name": name, "broker": f"broker-{name}", "path": str(path)} for name, path in (("a", growing), ("b", store))
    ]
    (tmp_path / "stores.json").write_text(json.dumps(entries))
    # Some lines are on two pages, with the same answer.
    lines = [line for line in dict.fromkeys(shell_lines()) if not NOT_RUN.search(line)]
    lines.sort(key=lambda line: line.startswith(MADE_LAST))
    first = [line for line in lines for job in MADE_FIRST if job in line]
    assert len(first) == len(MADE_FIRST)

    # The archive has half of the log, and the store then the whole log.
    (growing / "commitlog").mkdir(parents=True)
    for segment in sorted((store / "commitlog").iterdir())[:2]:
        shutil.copy2(segment, growing / "commitlog")
    for line in first:
        shell.run(line)
    shutil.copytree(store, growing, dirs_exist_ok=True)
    for replica in ("master", "slave"):
        shutil.copytree(store, tmp_path / replica)
    answers = {line: shell.run(line) for line in lines if line not in first}

    def answer(*parts: str) -> str:
        (found,) = (said for line, said in answers.items() if all(part in line for part in parts))
        return found

    facts = WORKLOAD.facts("msg")
    topics = Counter(fact["topic"] for fact in facts)
    answer("spark-mq rebuild", "--output /data/rebuilt")
    answer("spark-mq rebuild", "--queue-store rocksdb")
    assert tree_of(tmp_path / "rebuilt" / "consumequeue") == tree_of(store / "consumequeue")
    assert index_of(tmp_path / "rebuilt") == index_of(store)
    printed = [line.split() for line in answer("spark-mq sql", PRINTED_QUERY).splitlines()]
    assert {words[0]: int(words[1]) for words in printed if len(words) == 2 and words[1].isdigit()} == topics
    counts = [line.split() for line in answer("spark-mq sql", "all.messages").splitlines()]
    assert {words[0]: words[1] for words in counts if words[:1] in (["broker-a"], ["broker-b"])} == dict.fromkeys(
        ("broker-a", "broker-b"), str(len(facts))
    )
    archived = rows_of(answer("spark-sql", "conf/history.sql"))
    assert [row[2] for row in archived if KEY in row] == [fact["topic"] for fact in facts if fact["uniqKey"] == KEY]
    assert [str(len(facts))] in [line.split() for line in answer("spark-mq sql", "FROM history").splitlines()]
    assert_views(rows_of(answer("spark-sql", "conf/tables.sql")), store)


def rows_of(printed: str) -> list[list[str]]:
    """The rows that the SQL shell printed."""
    return [line.split("\t") for line in printed.splitlines()]


def assert_views(rows: list[list[str]], store: Path) -> None:
    """What `QUERIES` answer is what the facts say."""
    facts, queues = WORKLOAD.facts("msg"), WORKLOAD.facts("queue")
    topics = Counter(fact["topic"] for fact in facts)
    assert {topic: int(row[1]) for topic in topics for row in rows if row[0] == topic} == topics
    assert ["queues", str(len(queues)), str(sum(fact["max"] for fact in queues))] in rows
    assert ["units", str(sum(fact["sysFlag"] & 0xC in (0, 8) for fact in facts))] in rows
    assert ["segments", str(len(list((store / "commitlog").iterdir())))] in rows
    assert {"queues", "units", "segments", "topics", "offsets"} <= {row[0] for row in rows}


def test_every_block_of_python_and_sql_runs_as_printed(
    store: Path, delta: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    shutil.copy2(WORKLOAD.broker_conf, tmp_path / "broker.conf")
    for name in ("a", "b", "broker-a"):
        (tmp_path / name).symlink_to(store)
    (tmp_path / "stores.json").write_text(json.dumps([{"name": "a", "path": str(copy)}]))
    archive(delta, str(copy), str(tmp_path / "lake/messages"), broker="broker-a")
    monkeypatch.chdir(tmp_path)
    here = {
        "/data/store": str(copy),
        "/data/": f"{tmp_path}/",
        "/lake/": f"{tmp_path}/lake/",
        **{f"{quote}orders{quote}": f"{quote}{TOPIC}{quote}" for quote in "'\""},
        **{f"{quote}order-42{quote}": f"{quote}{KEY}{quote}" for quote in "'\""},
        "7F0000010B5F18B4AAC28F1B3B6D0000": KEY,
        "7F00000100002A9F00000000000343EF": MESSAGE_ID,
    }

    def runs(block: str) -> bool:
        return not NEEDS_A_SERVER.search(block)

    def as_here(block: str) -> str:
        for name, found in here.items():
            block = block.replace(name, found)
        return block

    for page in dict.fromkeys(page for page, _ in blocks("python")):
        names = names_of(delta.newSession(), tmp_path)
        of_page = [block for other, block in blocks("python") if other == page]
        for number, block in enumerate(of_page):
            if runs(block):
                exec(compile(as_here(block), f"{page.name}, block {number}", "exec"), names)
                for query in names["spark"].streams.active:
                    query.processAllAvailable()
                    query.stop()
    for query in (line for _, block in blocks("sql") if runs(block) for line in block.splitlines()):
        names["spark"].sql(as_here(query)).collect()


def names_of(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """What the blocks of a page use, and a reader has."""
    spark_mq.register(spark)
    messages = spark.read.format("rocketmq").load(str(folder / "store"))
    orders = spark.createDataFrame([(KEY, 3, datetime.now(UTC))], "id STRING, amount INT, paid_at TIMESTAMP")
    orders.createOrReplaceTempView("orders")
    spark.range(2).selectExpr("'body' AS body", "id AS time").createOrReplaceTempView("events")
    streams = {name: str(folder / "streams" / name) for name in ("checkpoint", "table")}
    return {"spark": spark, "spark_mq": spark_mq, "orders": orders, "messages": messages, **streams}
