"""What a starting JVM prints about packages is hidden, unless it cannot get them. The JVM here is a shell script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from spark_mq.cli.spark import _Errors, other_lines, start_jvm
from spark_mq.errors import OptionError, PackagesNotFetchedError

RESOLVED = """\
NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g
WARNING: Using incubator modules: jdk.incubator.vector
:: loading settings :: url = jar:file:/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /root/.ivy2.5.2/cache
The jars for the packages stored in: /root/.ivy2.5.2/jars
io.delta#delta-spark_4.2_2.13 added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-1f;1.0
\tconfs: [default]
\tfound io.delta#delta-spark_4.2_2.13;4.4.0 in central
downloading https://repo1.maven.org/maven2/io/delta/delta-spark_4.2_2.13/4.4.0/delta-spark_4.2_2.13-4.4.0.jar ...
\t[SUCCESSFUL ] io.delta#delta-spark_4.2_2.13;4.4.0!delta-spark_4.2_2.13.jar (1500ms)
:: resolution report :: resolve 231ms :: artifacts dl 9ms
\t---------------------------------------------------------------------
\t|                  |            modules            ||   artifacts   |
\t---------------------------------------------------------------------
:: retrieving :: org.apache.spark#spark-submit-parent-1f
\tconfs: [default]
\t0 artifacts copied, 12 already retrieved (0kB/7ms)
"""
UNRESOLVED = """\
:: loading settings :: url = jar:file:/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: io.delta#delta-spark_4.2_2.13;4.4.0
:::: ERRORS
\tServer access error at url https://repo1.maven.org/a.pom (java.net.UnknownHostException: repo1.maven.org)
\tServer access error at url https://repo1.maven.org/a.jar (java.net.UnknownHostException: repo1.maven.org)
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark;4.4.0: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:552)
"""


def test_packages_that_were_found_are_not_mentioned() -> None:
    assert other_lines(f"an error before\n{RESOLVED}an error after\n") == ["an error before", "an error after"]


def fake_spark(folder: Path, errors: str) -> str:
    """A Spark whose spark-submit prints this on stderr, and fails."""
    (folder / "bin").mkdir()
    (folder / "errors.txt").write_text(errors)
    submit = folder / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/sh\ncat '{folder}/errors.txt' >&2\nexit 1\n")
    submit.chmod(0o755)
    return str(folder)


@pytest.fixture(autouse=True)
def _no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, and not in one whose other tests have a JVM."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def test_a_package_that_cannot_be_had_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_HOME", fake_spark(tmp_path, UNRESOLVED))
    with pytest.raises(PackagesNotFetchedError) as raised:
        start_jvm("io.delta:delta-spark_4.2_2.13:4.4.0")
    assert str(raised.value).startswith(
        "Spark cannot get io.delta:delta-spark_4.2_2.13:4.4.0: [unresolved dependency: "
        "io.delta#delta-spark;4.4.0: not found]; java.net.UnknownHostException: repo1.maven.org. Check the"
    )
    assert "spark.jars.repositories" in str(raised.value)
    assert capfd.readouterr().err == ""


def test_packages_that_are_no_coordinates_are_a_wrong_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = (
        'Exception in thread "main" java.lang.IllegalArgumentException: requirement failed: Provided Maven Coordinates '
        "must be in the form 'groupId:artifactId:version'. The coordinate provided is: delta\n"
    )
    monkeypatch.setenv("SPARK_HOME", fake_spark(tmp_path, error))
    with pytest.raises(OptionError, match="packages 'delta': each must be GROUP:ARTIFACT:VERSION"):
        start_jvm("delta")


def test_another_problem_of_a_jvm_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_HOME", fake_spark(tmp_path, "JAVA_HOME is not set\n"))
    with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED"):
        start_jvm("")
    assert capfd.readouterr().err == "JAVA_HOME is not set\n"


def test_what_a_jvm_prints_later_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    errors = _Errors("io.delta:delta-spark_4.2_2.13:4.4.0")
    errors.release()
    os.write(writer, b"an error, without the end of its line")
    os.close(writer)
    errors.pass_on(reader)
    assert capfd.readouterr().err == "an error, without the end of its line"


def test_a_download_is_announced_once(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    errors = _Errors("io.delta:delta-spark_4.2_2.13:4.4.0")
    os.write(writer, RESOLVED.encode() * 2)
    os.close(writer)
    errors.pass_on(reader)
    errors.release()
    assert capfd.readouterr().err == ("spark-mq: downloading io.delta:delta-spark_4.2_2.13:4.4.0 and what it needs\n")
