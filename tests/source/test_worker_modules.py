from __future__ import annotations

import gc
import platform
import resource
import subprocess
import sys
from types import ModuleType

import pytest
from pyspark import TaskContext

from spark_mq.source.messages import frozen_modules


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    gc.unfreeze()
    monkeypatch.setitem(sys.modules, "imported_before", ModuleType("imported_before"))


@pytest.mark.usefixtures("task")
def test_objects_of_a_task_that_imports_a_module_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with frozen_modules():
            monkeypatch.setitem(sys.modules, "imported", ModuleType("imported"))
            assert gc.get_freeze_count() == 0
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        newer: list[list[int]] = [[] for _ in range(1000)]
        with frozen_modules():
            pass
        assert gc.get_freeze_count() <= frozen, "a task without an import freezes nothing"
        assert len(newer) == 1000
    finally:
        gc.unfreeze()


def test_nothing_is_frozen_outside_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    with frozen_modules():
        monkeypatch.setitem(sys.modules, "imported", ModuleType("imported"))
    assert gc.get_freeze_count() == 0


_FAULTS = """
import resource
from pyspark import TaskContext
from spark_mq.source.messages import frozen_modules
TaskContext.get = {task}
with frozen_modules():
    for number in range(20):
        if number == 5:
            begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        batches = [b"x" * (4 << 20) for _ in range(4)]
        batches = None
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other rules")
def test_a_task_keeps_the_memory_of_its_batches() -> None:
    pages = 15 * (16 << 20) // resource.getpagesize()
    faults = []
    for task in ("object", "lambda: None"):
        code = _FAULTS.format(task=task)
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        faults.append(int(answer.stdout))
    assert faults[0] < pages // 20
    assert faults[1] > pages // 2, "outside of a task, nothing changes"


def test_planning_imports_neither_kernels_nor_other_tables() -> None:
    code = (
        "import sys, spark_mq.datasource; "
        "print(*sorted({'numba', 'pyarrow.compute', 'spark_mq.store.metadata_tables', 'spark_mq.lifecycle'}"
        " & set(sys.modules)))"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert imported.split() == []
