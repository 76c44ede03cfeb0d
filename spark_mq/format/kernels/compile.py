"""Compiling all kernels ahead of their first use: `python -m spark_mq.format.kernels.compile`."""

from __future__ import annotations

import importlib
import pkgutil

from spark_mq.format import kernels
from spark_mq.format.kernels.cache import mark_complete
from spark_mq.format.kernels.kernel import KERNELS

_FIRST = ("frames", "dispatch", "index_keys", "index_put", "gather", "properties")
"""The modules that a rebuild and a query need at once; the others follow."""


def compile_kernels() -> int:
    """Compile every kernel of the package that is not in the cache, and return the number of kernels."""
    names = [module.name for module in pkgutil.iter_modules(kernels.__path__)]
    for name in names:
        importlib.import_module(f"{kernels.__name__}.{name}")
    order = {f"{kernels.__name__}.{name}": number for number, name in enumerate(_FIRST)}
    for kernel in sorted(KERNELS, key=lambda kernel: order.get(kernel.__module__, len(order))):
        kernel.compile()
    mark_complete()
    return len(KERNELS)


if __name__ == "__main__":
    compile_kernels()
