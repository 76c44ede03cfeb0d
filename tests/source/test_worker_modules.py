from __future__ import annotations

import gc
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


def test_planning_imports_neither_kernels_nor_other_tables() -> None:
    code = (
        "import sys, spark_mq.datasource; "
        "print(*sorted({'numba', 'pyarrow.compute', 'spark_mq.store.metadata_tables', 'spark_mq.lifecycle'}"
        " & set(sys.modules)))"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert imported.split() == []
