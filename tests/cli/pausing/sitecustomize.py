"""Stops a process of a job, for ever, at the n-th call of a function: what a kill test then kills is there.

Python imports this module by its name when it starts, in the command and in Spark's workers, if its folder is on
PYTHONPATH. `SPARK_MQ_PAUSE` says where to stop: MODULE:FUNCTION:N:TEXT counts the calls one of whose arguments holds
TEXT. `SPARK_MQ_PAUSED` is the file that is written then.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

# Tests also make `os.rename` stop: this is the function as it was.
rename = os.rename


def pausing(function: Callable[..., Any], number: int, text: str) -> Callable[..., Any]:
    """`function`, which stops before its n-th call with `text`."""
    calls = 0

    def paused(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        said = " ".join(map(str, arguments))
        if named.get("dir_fd") is not None:
            said = os.path.join(os.readlink(f"/proc/self/fd/{named['dir_fd']}"), said)
        if text in said:
            calls += 1
            if calls == number:
                # Whoever sees the file finds all of its text in it.
                marker = os.environ["SPARK_MQ_PAUSED"]
                with open(f"{marker}.writing", "w") as file:
                    file.write(f"{os.getpid()} {said}")
                rename(f"{marker}.writing", marker)
                time.sleep(600)
        return function(*arguments, **named)

    return paused


def pause(module: ModuleType, path: str, number: int, text: str) -> None:
    """Make the function at `path` in the module one that stops."""
    *owners, name = path.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part)
    setattr(owner, name, pausing(getattr(owner, name), number, text))


class Finder(importlib.abc.MetaPathFinder):
    """Lets a module be imported as ever, and then changes it."""

    def __init__(self, module: str, change: Callable[[ModuleType], None]) -> None:
        self.module = module
        self.change = change

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own specification, whose loader changes the module after it was executed."""
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            self.change(module)

        loader.exec_module = execute_and_change
        return spec


def main(where: str) -> None:
    """Set up what `SPARK_MQ_PAUSE` says."""
    module, path, number, text = where.split(":", 3)
    if module in sys.modules:
        pause(sys.modules[module], path, int(number), text)
    else:
        sys.meta_path.insert(0, Finder(module, lambda found: pause(found, path, int(number), text)))


if os.environ.get("SPARK_MQ_PAUSE"):
    main(os.environ["SPARK_MQ_PAUSE"])
