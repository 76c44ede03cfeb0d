"""How a rule that is written as a plain loop becomes machine code.

A kernel is an ordinary Python function over NumPy arrays. numba compiles the function when it is first called or when
`compile_kernels` is, once: for the types that its annotations name. Without these types, numba would compile a kernel
again for an array that is read-only, for a field of an array of frames, and for each constant that another kernel
passes, and the first query would take four times as long. A parameter can also be a named tuple of such values.

The machine code is kept in `cache.cache_folder`, and is loaded from there without numba (`machine_code`), whose import
and first call take a second of a processor. `NUMBA_DISABLE_JIT=1` runs the same loops as Python.

A kernel releases Python's lock while it runs. It must not raise, and must not make an array.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from pkgutil import iter_modules
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

from spark_mq.format import kernels
from spark_mq.format.kernels.cache import locked, mark_compiled
from spark_mq.format.kernels.machine_code import MachineCode, keep_code, loaded, read_code

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
_REPLACED: list[tuple[Callable[..., object], str, tuple[int, ...]]] = []
"""The functions that numba does not know yet, and what takes their place."""
_COMPILING = threading.RLock()


def kernel(function: Function) -> Function:
    """The compiled `function`, which runs without the GIL and is cached if a cache is possible."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return function
    KERNELS.append(Kernel(cast(FunctionType, function)))
    return cast(Function, KERNELS[-1])


def replaced(how: str, *details: int) -> Callable[[Function], Function]:
    """Declares that calls of a function in kernels become machine instructions: those of a name in `instructions`."""

    def declared(function: Function) -> Function:
        _REPLACED.append((function, how, details))
        return function

    return declared


def compile_kernels(modules: Sequence[str] = ()) -> int:
    """Compile the kernels of these modules, or of all, that are not in the cache, and return their number."""
    # `instructions` has no kernel, and imports numba.
    all_names = (module.name for module in iter_modules(kernels.__path__) if module.name != "instructions")
    names = [f"{kernels.__name__}.{name}" for name in modules or all_names]
    for name in names:
        import_module(name)
    found = [one for one in KERNELS if one.__module__ in names]
    for one in found:
        one.compile()
    mark_compiled(modules)
    return len(found)


class Kernel:
    """A function whose machine code is loaded, or made, at the first call."""

    def __init__(self, function: FunctionType) -> None:
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self.__wrapped__ = function

    def __call__(self, *arguments: Any) -> Any:
        """The result of the compiled function."""
        return self._call(*arguments)

    def compile(self) -> None:
        """Compile the function, or load its machine code from the cache, if this was not done yet."""
        _ = self._call

    @property
    def _numba_type_(self) -> Any:
        """What numba asks for if one kernel calls another."""
        return self._dispatcher._numba_type_

    @cached_property
    def _call(self) -> Callable[..., Any]:
        name = f"{self.__module__.rpartition('.')[2]}.{self.__name__}"
        with _COMPILING, locked(name):
            code = read_code(name)
            if code is None:
                code = self._machine_code()
                keep_code(name, code)
        return loaded(code, list(_values(self.__wrapped__)))

    def _machine_code(self) -> MachineCode:
        (compiled,) = self._dispatcher.overloads.values()
        library, kind = compiled.library, compiled.signature.return_type
        kinds = getattr(kind, "types", (kind,))
        returns = tuple(str(each) for each in kinds if str(each) != "none")
        return MachineCode(compiled.fndesc.llvm_func_name, returns, len(kinds) > 1, library._get_compiled_object())

    @cached_property
    def _dispatcher(self) -> Any:
        from numba import njit

        from spark_mq.format.kernels.instructions import declare

        while _REPLACED:
            declare(*_REPLACED.pop())
        # References to arrays are not counted.
        without: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
        return njit(_signature(self.__wrapped__), **without)(self.__wrapped__)


def _parameters(owner: Any) -> Iterator[Any]:
    """The annotations of a kernel's parameters, or of a named tuple's fields: texts, and the types of named tuples."""
    known = vars(sys.modules[owner.__module__])
    for parameter, annotation in owner.__annotations__.items():
        name = getattr(annotation, "__forward_arg__", annotation)
        if parameter != "return":
            yield known[name] if hasattr(known.get(name), "_fields") else name


def _values(owner: Any) -> Iterator[str]:
    """The annotations of all values that are passed."""
    for one in _parameters(owner):
        yield from [one] if isinstance(one, str) else _values(one)


def _signature(owner: Any) -> tuple[Any, ...]:
    """Numba's types of the parameters."""
    from numba import types

    return tuple(
        _numba_types()[one] if isinstance(one, str) else types.NamedTuple(_signature(one), one)
        for one in _parameters(owner)
    )


@cache
def _numba_types() -> Mapping[str, Any]:
    """Numba's types of the parameters. A kernel reads any array of an item: all others can be converted to it."""
    from numba import from_dtype, types

    def read(item: Any, layout: Any = "A") -> Any:
        return types.Array(item, 1, layout, readonly=True)

    frame = from_dtype(FRAME_DTYPE)
    return {
        "int": types.int64,
        "bool": types.int64,
        "Bytes": read(types.uint8, "C"),
        "Int32s": read(types.int32),
        "Int64s": read(types.int64),
        "Flags": read(types.boolean),
        "OutBytes": types.uint8[::1],
        "OutInt32s": types.int32[::1],
        "OutInt64s": types.int64[::1],
        "OutFlags": types.boolean[::1],
        "Frame": frame,
        "Frames": frame[::1],
    }
