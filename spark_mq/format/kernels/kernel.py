"""How a rule that is written as a plain loop becomes machine code.

A kernel is an ordinary Python function over NumPy arrays. numba compiles the function when it is first called. The
compiled code is cached next to the source file or in `NUMBA_CACHE_DIR`. If numba finds no folder for a cache, each
process compiles the kernel. The same is true if the source is in a zip file that Spark shipped: the path of that file
is different in every application, so numba would leave a cache for each application in the user's home, which no other
application finds, or would fail if the user has no home. `NUMBA_DISABLE_JIT=1` runs the same loops as Python.

Importing this module imports numba (about half a second). Code that must start fast (planning workers, point look-ups)
therefore imports kernels in the functions that need them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """The compiled `function`, which runs without the GIL and is cached if a cache is possible."""
    in_a_file = os.path.isfile(function.__code__.co_filename)
    try:
        compiled: Function = njit(function, cache=in_a_file, nogil=True)
    except RuntimeError:  # numba: "no locator available for file"
        compiled = njit(function, nogil=True)
    return compiled
