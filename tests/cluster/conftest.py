"""What the tests with processes of their own share."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.make_zip import make_zip
from tests.cluster.processes import Python, python_without_the_package, run
from tests.support.stores import WORKLOAD, Unpack


@pytest.fixture(scope="session")
def store(unpacked: Unpack) -> Path:
    """A store whose broker stopped cleanly: its queue files are what a rebuild gives."""
    return unpacked(WORKLOAD)


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make zip` makes."""
    return make_zip(tmp_path_factory.mktemp("dist") / "spark_mq.zip")


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """A Python with Spark and all that the package needs, but not the package."""
    python = python_without_the_package(tmp_path_factory.mktemp("bare"))
    has = [str(python.executable), "-c", "import pyspark, pyarrow, pandas, numba"]
    has_not = [str(python.executable), "-c", "import spark_mq"]
    folder = tmp_path_factory.mktemp("imports")
    assert run(has, python.environment(), folder).status == 0
    assert "No module named 'spark_mq'" in run(has_not, python.environment(), folder).errors
    return python
