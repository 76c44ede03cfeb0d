"""No JVM starts for jobs and wrong values: each command is a process of its own, in which Java would be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_mq.cli.exit_status import FAILED, FOUND, NOT_UNDERSTOOD
from tests.support.stores import PROJECT, WORKLOAD, Unpack


@pytest.mark.parametrize(
    ("status", "command", "said"),
    [
        (FAILED, "rebuild {tmp}/nothing", "nothing does not exist"),
        (NOT_UNDERSTOOD, "rebuild {store} --output {tmp}/out --split-size much", "--split-size"),
        (NOT_UNDERSTOOD, "rebuild {store} --spark-conf memory", "NAME=VALUE"),
        (FOUND, "rebuild {store} --replace --dry-run", ""),
        (FOUND, "rebuild {store} --output {tmp}/out --broker-conf {conf} --quiet", ""),
        (FAILED, "sql SHOW|TABLES --store a={tmp}/nothing", "nothing does not exist"),
        (NOT_UNDERSTOOD, "sql SELECT|*|FROM|messages|WHERE --store a={store}", "cannot be parsed"),
        (NOT_UNDERSTOOD, "sql SELECT|*|FROM|prodd.messages --store prod={store}", "prod.messages"),
        (NOT_UNDERSTOOD, "sql SELECT|1 --store a={store} --option colour=red", "colour"),
        (FOUND, "sql SHOW|TABLES --store a={store}", ""),
        (FOUND, "sql SELECT|*|FROM|messages --store a={store} --explain", ""),
    ],
    ids=str,
)
def test_no_jvm_starts(status: int, command: str, said: str, unpacked: Unpack, tmp_path: Path) -> None:
    java, started = tmp_path / "jdk" / "bin" / "java", tmp_path / "started"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    java.chmod(0o755)
    names = {"store": str(unpacked(WORKLOAD)), "tmp": str(tmp_path), "conf": str(WORKLOAD.broker_conf)}
    words = [word.format(**names).replace("|", " ") for word in command.split()]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))},
        "PYTHONPATH": str(PROJECT),
        "JAVA_HOME": str(java.parent.parent),
        "PATH": f"{java.parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "spark_mq", *words], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, started.exists()) == (status, False), done.stderr
    lines = done.stderr.splitlines()
    assert said in "".join(lines[-1:])
    assert len(lines) == (status != FOUND) or lines[0].startswith("usage: ")


def test_a_jvm_that_starts_is_seen(unpacked: Unpack, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="True"):
        test_no_jvm_starts(FOUND, "sql SELECT|1 --store a={store}", "", unpacked, tmp_path)
