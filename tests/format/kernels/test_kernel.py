"""Kernels of a package that Spark shipped as a zip file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jobs.make_zip import make_zip
from tests.support.stores import tree_of

USE = """
import numpy as np
from spark_mq.format.kernels import java_string
print(java_string.__file__, java_string.hash_code(np.frombuffer(b"hello", np.uint8), 0, 5))
"""
JAVA_HASH_OF_HELLO = 99162322


def use_a_kernel(package: Path, home: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package), "HOME": str(home)}
    command = [sys.executable, "-c", USE]
    return subprocess.run(
        command, env=environment, cwd=package.parent, capture_output=True, text=True, check=True, timeout=300
    ).stdout


def test_a_kernel_in_a_zip_leaves_no_cache_and_needs_no_home(tmp_path: Path) -> None:
    package = make_zip(tmp_path / "package" / "spark_mq.zip")
    (tmp_path / "home").mkdir()
    expected = f"{package}/spark_mq/format/kernels/java_string.py {JAVA_HASH_OF_HELLO}\n"
    assert use_a_kernel(package, tmp_path / "home") == expected
    assert tree_of(tmp_path / "home") == {}
    assert use_a_kernel(package, Path("/dev/null")) == expected
