"""`spark-mq doctor`: what is missing and slow, without Spark, and also without the packages that it asks about."""

from __future__ import annotations

import configparser
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from spark_mq.cli import doctor
from spark_mq.format.kernels import cache
from tests.support.said import Run
from tests.support.stores import PROJECT


def checks(run: Run) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in run("doctor", "--json").report["checks"]}


def test_every_check_that_is_not_ok_says_what_to_do(run: Run) -> None:
    found = checks(run)
    assert {"packages", "[spark]", "[delta]", "Java", "Spark", "Delta jars", "kernels", "memory", "open files"} <= {
        *found
    }
    assert all(bool(check["remedy"]) == (check["state"] != "ok") for check in found.values())
    assert found["packages"]["state"] == found["Spark"]["state"] == "ok"
    lines = run("doctor").lines
    assert sum("do: " in line for line in lines) == sum(bool(check["remedy"]) for check in found.values())
    assert len(lines) == 1 + len(found) + sum(bool(check["remedy"]) for check in found.values())


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(doctor, "version", lambda name: lacking(name) if "pyspark" in name else "4.0.0")
    found = checks(run)
    assert found["Spark"]["found"] == "PySpark is not installed"
    assert found["Spark"]["state"] == found["[spark]"]["state"] == found["[connect]"]["state"] == "missing"
    assert found["[spark]"]["remedy"] == "pip install 'spark-mq[spark]'"
    assert found["[s3]"]["state"] == "ok"


def lacking(name: str) -> str:
    raise PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("installed", "state", "text"),
    [("3.5.1", "missing", "has no Python data sources"), ("4.1.0", "slow", "4.1.0"), ("4.2.0", "ok", "4.2.0")],
)
def test_old_versions_of_spark(
    installed: str, state: str, text: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(doctor, "version", lambda name: installed)
    spark = checks(run)["Spark"]
    assert spark["state"] == state
    assert text in spark["found"]


@pytest.mark.parametrize(("version", "state"), [("11.0.2", "missing"), ("1.8.0_402", "missing"), ("17.0.9", "ok")])
def test_the_version_of_java(
    version: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checks(run)["Java"]["state"] == state
    monkeypatch.setenv("PATH", "/nowhere")
    assert checks(run)["Java"]["found"] == "no java on the path"


def test_what_will_be_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "_free_memory", lambda: 1 << 20)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(cache, "cache_folder", lambda: None)
    found = checks(run)
    assert {found[name]["state"] for name in ("memory", "open files", "kernels", "Delta jars")} == {"slow"}
    jars = tmp_path / ".ivy2" / "jars"
    jars.mkdir(parents=True)
    (jars / "io.delta_delta-spark_4.2_2.13-4.4.0.jar").touch()
    assert checks(run)["Delta jars"]["state"] == "ok"


def test_an_extra_that_the_installation_does_not_know_is_not_called_installed(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(doctor, "requires", lambda name: ['obstore>=0.10; extra == "s3"'])
    assert {name for name in checks(run) if name.startswith("[")} == {"[s3]"}


def test_every_extra_of_users_is_checked() -> None:
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    assert set(doctor._USES) == set(setup["options.extras_require"]) - {"notebook", "test", "fuzz", "dev"}


def test_it_imports_neither_spark_nor_arrow() -> None:
    code = (
        "import sys; from spark_mq.cli.entry import run; run(['doctor']); "
        "assert not {'pyspark', 'pyarrow', 'numba', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
