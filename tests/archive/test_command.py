"""`spark-mq archive` in a process of its own: what it prints, and that a second run starts no JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_mq.testing import LogWriter

pytestmark = pytest.mark.archive


def test_a_run_prints_its_report_and_nothing_else(tmp_path: Path, delta_jars: dict[str, str]) -> None:
    if not delta_jars:
        pytest.skip("Delta Lake's jars cannot be fetched from Maven Central")
    log = LogWriter(4096)
    for number in range(50):
        log.append(1_795_000_000_000 + number, b"a body", properties=b"KEYS\x01k%d\x02" % number)
    words = ["archive", str(log.write(tmp_path / "store")), str(tmp_path / "lake" / "messages"), "--json"]
    command = [sys.executable, "-m", "spark_mq", *words]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stderr) == (0, "")
    report = json.loads(first.stdout)
    assert (report["rows"], report["keys"]) == (50, 50)

    without_java = {**os.environ, "JAVA_HOME": str(tmp_path), "PATH": ""}
    second = subprocess.run(command, capture_output=True, text=True, check=False, env=without_java)
    assert (second.returncode, second.stderr) == (0, "")
    report.update(rows=0, keys=0, segments=0, snapshot_files=0, stages={}, seconds=0.0)
    assert {**json.loads(second.stdout), "seconds": 0.0} == report
