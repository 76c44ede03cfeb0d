"""The kernels that commands compile while a JVM starts."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest


@pytest.mark.parametrize("command", ["rebuild", "repair", "restore", "verify"])
def test_a_command_names_modules_of_kernels_that_exist(command: str) -> None:
    """A name that is wrong ends the compilation before its first kernel, in each run again."""
    names = import_module(f"spark_mq.cli.{command}").KERNELS
    assert [name for name in names if find_spec(f"spark_mq.format.kernels.{name}") is None] == []
