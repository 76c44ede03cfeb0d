"""Commands whose extra is not installed, and servers that do not answer, in processes of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_mq.cli import spark
from spark_mq.cli.main import missing_package, parser
from spark_mq.cli.spark import delta_session_settings, joined_settings
from spark_mq.errors import OptionError, SparkNotReachedError
from spark_mq.testing import LogWriter
from tests.support.stores import OWN_STORES, PROJECT, RealStore, Unpack, index_of, tree_of

STORE = RealStore("crc-533", OWN_STORES)
TREES = ("commitlog", "consumequeue", "index")

WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from spark_mq.cli.main import main
words = sys.argv[2:]
while "THEN" in words:
    end = words.index("THEN")
    if status := main(words[:end]):
        sys.exit(status)
    words = words[end + 1 :]
sys.exit(main(words))
"""


def run_without(package: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a Python that cannot import the package, or several with `THEN` between them."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        ["rebuild", "STORE", "--output", "OUTPUT", "--assume-defaults", "--quiet", "--engine", "spark"],
        ["sql", "SELECT 1", "--store", "a=store"],
        ["maintain-archive", "table"],
    ],
    ids=lambda command: command[0],
)
def test_without_pyspark(command: list[str], tmp_path: Path) -> None:
    log = LogWriter(4096)
    log.append(1_795_000_000_000)
    names = {"STORE": str(log.write(tmp_path / "store")), "OUTPUT": str(tmp_path / "out")}
    done = run_without("pyspark", *(names.get(word, word) for word in command))
    assert done.returncode == 1
    assert done.stderr == (
        "spark-mq: this command needs the package pyspark, which is not installed: pip install 'spark-mq[spark]'\n"
    )


def test_a_store_is_rescued_without_pyspark_and_without_java(unpacked: Unpack, tmp_path: Path) -> None:
    whole, (store, more, new, rebuilt) = unpacked(STORE), (tmp_path / name for name in ("store", "more", "new", "out"))
    for copy in (store, more):
        shutil.copytree(whole, copy)
    shutil.rmtree(store / "consumequeue" / str(STORE.facts("msg")[-1]["topic"]))
    page = tmp_path / "page.html"
    commands = (
        ["rebuild", whole, "--output", rebuilt, "--cores", 2],
        ["repair", store, "--apply"],
        ["restore", store, new],
        ["restore", store, more, "--append", "--only-delivered", "--json"],
        ["verify", more, "--json"],
        ["report", new, "--html", page],
    )
    conf = ["--broker-conf", STORE.broker_conf, "--quiet"]
    words = [word for command in commands for word in (*command, *conf, "THEN")][:-1]
    done = run_without("pyspark", *map(str, words), PATH="/nowhere", JAVA_HOME="")
    assert (done.returncode, done.stderr) == (0, f"spark-mq: the page is {page}\n")
    for said in ("in threads of this process", "repaired", '"mode": "append"', '"is_sound": true'):
        assert said in done.stdout
    assert tree_of(rebuilt / "consumequeue") == tree_of(store / "consumequeue") == tree_of(whole / "consumequeue")
    assert index_of(rebuilt) == index_of(whole)
    assert {name: tree_of(new / name) for name in TREES} == {name: tree_of(whole / name) for name in TREES}


def test_a_rebuild_imports_neither_pandas_nor_spark(unpacked: Unpack, tmp_path: Path) -> None:
    code = (
        "import sys; from spark_mq.cli.entry import run; status = run(sys.argv[1:]); "
        "assert not {'pandas', 'pyspark'} & set(sys.modules); sys.exit(status)"
    )
    words = ["rebuild", unpacked(STORE), "--output", tmp_path, "--broker-conf", STORE.broker_conf, "--quiet"]
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_client_of_spark_connect() -> None:
    done = run_without("grpc", "sql", "SELECT 1", "--store", "a=store", SPARK_REMOTE="sc://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.endswith("which is not installed: pip install 'spark-mq[connect]'\n")
    assert len(done.stderr.splitlines()) == 1


def test_other_packages_and_other_errors() -> None:
    missing = missing_package(ModuleNotFoundError("No module named 'sqlglot.x'", name="sqlglot.x"))
    assert str(missing) == "this command needs the package sqlglot, which is not installed: pip install sqlglot"
    assert missing_package(ImportError("libjvm.so: cannot open shared object file", name="pyarrow")) is None
    assert missing_package(ModuleNotFoundError("No module named 'spark_mq.x'", name="spark_mq.x")) is None


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"sc://127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_that_does_not_answer(silent_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_SECONDS_TO_REACH_A_SERVER", 0.5)
    for address in (silent_server, "sc://127.0.0.1:1"):
        monkeypatch.setenv("SPARK_REMOTE", address)
        with (
            pytest.raises(SparkNotReachedError, match=f"no Spark Connect server answers at {address[5:]} within"),
            spark.spark_session("test"),
        ):
            pytest.fail("there is no server")


def test_an_address_that_cannot_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:port")
    with (
        pytest.raises(OptionError, match="SPARK_REMOTE=sc://host:port is not the address"),
        spark.spark_session("test"),
    ):
        pytest.fail("there is no server")


def test_settings_of_the_user_add_up_with_those_of_the_command() -> None:
    words = [
        "--spark-conf",
        "spark.driver.memory=2g",
        "--spark-conf",
        "spark.jars.packages=a:b:1",
        "--packages",
        "c:d:2",
    ]
    given = spark.given_settings(parser(["verify"]).parse_args(["verify", *words]))
    assert given == {"spark.driver.memory": "2g", "spark.jars.packages": "a:b:1,c:d:2"}
    own = {"spark.driver.memory": "1g", "spark.jars.packages": "delta", "spark.x": "y"}
    assert joined_settings(own, given) == {**own, **given, "spark.jars.packages": "delta,a:b:1,c:d:2"}


def test_a_table_on_s3_gets_the_package_of_its_filesystem() -> None:
    packages, excludes = "spark.jars.packages", "spark.jars.excludes"
    local = delta_session_settings({}, "/lake/messages")
    assert excludes not in local
    settings = delta_session_settings({}, "lake.messages", "s3://lake/checkpoints")
    assert settings[packages].startswith(f"{local[packages]},org.apache.hadoop:hadoop-aws:")
    assert "software.amazon.awssdk:bundle" in settings[excludes]
    own = {packages: "org.apache.hadoop:hadoop-aws:3.4.2"}
    assert delta_session_settings(own, "s3://lake/messages") == local
    assert excludes not in joined_settings(delta_session_settings(own, "s3a://lake/messages"), own)


def test_settings_for_a_session_that_exists_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(OptionError, match="spark-submit"), spark.spark_session("x", given={"spark.x": "y"}):
        pytest.fail("the session started")
