"""How a rule that is written as a plain loop becomes machine code.

A kernel is an ordinary Python function over NumPy arrays. numba compiles the function when it is first called or when
`compile_kernels` is, once: for the types that its annotations name. Without these types, numba would compile a kernel
again for an array that is read-only, for a field of an array of frames, and for each constant that another kernel
passes, and the first query would take four times as long. The compiled code is kept in `cache.cache_folder`.
`NUMBA_DISABLE_JIT=1` runs the same loops as Python.

Importing this module imports numba (about half a second). Code that must start fast (planning workers, point look-ups)
therefore imports kernels in the functions that need them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, from_dtype, njit, types

from spark_mq.format.kernels.cache import locked, place_in_cache

FRAME_DTYPE = np.dtype(
    [
        ("position", np.int64),
        ("store_size", np.int32),
        ("sys_flag", np.int32),
        ("store_timestamp_at", np.int64),
        ("store_host_at", np.int64),
        ("after_hosts_at", np.int64),
        ("body_start", np.int64),
        ("body_length", np.int32),
        ("topic_length", np.int32),
        ("topic_start", np.int64),
        ("properties_start", np.int64),
        ("properties_length", np.int32),
    ],
    align=True,
)
"""One frame: the positions of a record's parts, as indices in the buffer that was scanned, and its lengths in bytes."""
Function = TypeVar("Function", bound=Callable[..., object])

KERNELS: list[Kernel] = []
"""The kernels of all modules that are imported."""


def kernel(function: Function) -> Function:
    """The compiled `function`, which runs without the GIL and is cached if a cache is possible."""
    if getattr(config, "DISABLE_JIT", 0):
        return function
    KERNELS.append(Kernel(cast(FunctionType, function)))
    return cast(Function, KERNELS[-1])


class Kernel:
    """A function that is compiled at the first call."""

    def __init__(self, function: FunctionType) -> None:
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self.__wrapped__ = function

    def __call__(self, *arguments: Any) -> Any:
        """The result of the compiled function."""
        return self._compiled(*arguments)

    def compile(self) -> None:
        """Compile the function, or load it from the cache, if this was not done yet."""
        _ = self._compiled

    @property
    def _numba_type_(self) -> Any:
        """What numba asks for if one kernel calls another."""
        return self._compiled._numba_type_

    @cached_property
    def _compiled(self) -> Any:
        function = self.__wrapped__
        names = [name for parameter, name in function.__annotations__.items() if parameter != "return"]
        cached = place_in_cache(function)
        with locked(f"{self.__module__}.{self.__name__}"):
            signature: Any = tuple(_TYPES[name] for name in names)
            return njit(signature, cache=cached is not None, nogil=True)(cached or function)


def _read(item: Any, layout: Any = "A") -> Any:
    """The type of an array that a kernel reads: all other arrays of this item can be converted to it."""
    return types.Array(item, 1, layout, readonly=True)


_FRAME = from_dtype(FRAME_DTYPE)
_TYPES = {
    "int": types.int64,
    "Bytes": _read(types.uint8, "C"),
    "Int32s": _read(types.int32),
    "Int64s": _read(types.int64),
    "Flags": _read(types.boolean),
    "OutBytes": types.uint8[::1],
    "OutInt32s": types.int32[::1],
    "OutInt64s": types.int64[::1],
    "OutFlags": types.boolean[::1],
    "Frame": _FRAME,
    "Frames": _FRAME[::1],
}
