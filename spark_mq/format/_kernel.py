"""How a rule written as a plain loop becomes machine code.

A kernel is an ordinary Python function over NumPy arrays, compiled by numba when it is first called. The
compiled code is cached beside the source, or in `NUMBA_CACHE_DIR`; where numba finds no place for a cache (the
source lies in a zip file that Spark shipped, say) the kernel is compiled once a process. `NUMBA_DISABLE_JIT=1`
runs the same loops as Python.

Importing this module imports numba (about half a second). What must start fast - planning workers, point
look-ups - therefore imports kernels inside the functions that need them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile `function` with numba; without the GIL, cached where a cache is possible."""
    try:
        compiled: Function = njit(function, cache=True, nogil=True)
    except RuntimeError:  # numba: "no locator available for file"
        compiled = njit(function, nogil=True)
    return compiled
