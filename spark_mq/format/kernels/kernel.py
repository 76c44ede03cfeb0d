"""How a rule written as a plain loop becomes machine code.

A kernel is an ordinary Python function over NumPy arrays, compiled by numba when it is first called. The
compiled code is cached beside the source, or in `NUMBA_CACHE_DIR`; where numba finds no place for a cache the kernel is
compiled once a process. So it is, too, where the source lies in a zip file that Spark shipped: that has another path
in every application, and numba would leave a cache in the user's home for each, which nobody finds again, or fail
where the user has no home. `NUMBA_DISABLE_JIT=1` runs the same loops as Python.

Importing this module imports numba (about half a second). What must start fast - planning workers, point
look-ups - therefore imports kernels inside the functions that need them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile `function` with numba; without the GIL, cached where a cache is possible."""
    in_a_file = os.path.isfile(function.__code__.co_filename)
    try:
        compiled: Function = njit(function, cache=in_a_file, nogil=True)
    except RuntimeError:  # numba: "no locator available for file"
        compiled = njit(function, nogil=True)
    return compiled
