"""Compiling kernels ahead of their first use: `python -m spark_mq.format.kernels.compile [MODULE ...]`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence

from spark_mq.format import kernels
from spark_mq.format.kernels.cache import mark_compiled
from spark_mq.format.kernels.kernel import KERNELS

_NUMBAS = "instructions"
"""A module without a kernel, which imports numba."""


def compile_kernels(modules: Sequence[str] = ()) -> int:
    """Compile the kernels that are not in the cache, and return their number."""
    names = list(modules) or [
        module.name for module in pkgutil.iter_modules(kernels.__path__) if module.name != _NUMBAS
    ]
    for name in names:
        importlib.import_module(f"{kernels.__name__}.{name}")
    compiled = 0
    for name in names:
        for kernel in KERNELS:
            if kernel.__module__ == f"{kernels.__name__}.{name}":
                kernel.compile()
                compiled += 1
    mark_compiled(modules)
    return compiled


if __name__ == "__main__":
    compile_kernels(sys.argv[1:])
