"""What importing a module loads: numba takes half a second, which a point look-up or Spark's driver must not spend."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import spark_mq
import spark_mq.format
import spark_mq.io

PLAIN = [
    module.name
    for package in (spark_mq.format, spark_mq.io)
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    if not module.ispkg
]
JOBS = ("indexer", "verifier", "repairer", "restorer", "job", "store", "lifecycle")


def loaded_of(packages: set[str], modules: list[str]) -> str:
    """Those of `packages` that are loaded after the import of `modules` in a process of its own."""
    program = f"import sys, {', '.join(modules)}; print(*sorted({packages} & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_modules_of_plain_python_load_neither_numba_nor_spark() -> None:
    assert {"spark_mq.format.record", "spark_mq.format.array_types", "spark_mq.io.location"} <= set(PLAIN)
    assert loaded_of({"numba", "pandas", "pyspark"}, PLAIN) == ""


def test_jobs_in_this_process_load_no_pandas() -> None:
    """pandas takes 0.2 s. `pyarrow` loads it for `pa.array` of a list and for `empty_table`, too."""
    folders = {name: f"{spark_mq.__path__[0]}/{name}" for name in JOBS}
    found = [
        module.name
        for name, folder in folders.items()
        for module in pkgutil.walk_packages([folder], f"spark_mq.{name}.")
    ]
    assert len(found) > 100
    assert loaded_of({"pandas"}, found) == ""


@pytest.mark.parametrize(
    "module",
    [
        "spark_mq.indexer.index_files",
        "spark_mq.indexer.rebuild",
        "spark_mq.restorer.source_columns",
        "spark_mq.restorer.restore",
        "spark_mq.format.kernels.columns",
        "spark_mq.indexer.split_dispatch",
        "spark_mq.restorer.encode_messages",
        "spark_mq.restorer.writer",
        "spark_mq.store.log.commit_log",
    ],
)
def test_a_module_that_needs_only_the_types_of_arrays_loads_no_numba(module: str) -> None:
    assert loaded_of({"numba"}, [module]) == ""


def test_what_compiles_kernels_loads_numba() -> None:
    """The check above can fail."""
    assert loaded_of({"numba"}, ["spark_mq.format.kernels.instructions"]) == "numba"
