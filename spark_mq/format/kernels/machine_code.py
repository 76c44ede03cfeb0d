"""The machine code of kernels: kept in a file each, loaded without numba, and called with NumPy arrays.

A file is an object file, as a linker reads it, after a line of JSON with the name of the function and the types of its
results. Its name has a hash of the processor's name and features, because machines can share a home.

The function is called as numba's compiled code calls it: first an address for the result and one for an error, and an
array is seven values (`numba.core.datamodel`, `ArrayModel`). Kernels do not raise, so the error is never set.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from spark_mq.format.kernels.cache import cache_folder

_ITEMS = {"Bytes": np.uint8, "Int32s": np.int32, "Int64s": np.int64, "Flags": np.bool_}
"""The types of the items of arrays, by the annotation without `Out`; `Frames` have a type of their own."""
_RESULTS = {"int64": ctypes.c_int64, "uint64": ctypes.c_uint64, "bool": ctypes.c_bool}
_ARRAY = (*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p, *[ctypes.c_int64] * 2)
_SINGLE = {"int": (ctypes.c_int64,), "bool": (ctypes.c_int64,), "Frame": (ctypes.c_void_p,)}
"""The types of values by which an argument is passed; others are those of an array."""
_LOADING = threading.Lock()


@dataclass(frozen=True)
class MachineCode:
    """A compiled kernel: the name of its function, the types of its results, and an object file that has it."""

    symbol: str
    returns: tuple[str, ...]
    is_tuple: bool
    object_file: bytes


def read_code(name: str) -> MachineCode | None:
    """The machine code of a kernel from the cache; None if it is not there."""
    file = _file(name)
    if file is None or not file.exists():
        return None
    head, _, object_file = file.read_bytes().partition(b"\n")
    symbol, returns, is_tuple, size = json.loads(head)
    if size != len(object_file):
        return None
    return MachineCode(symbol, tuple(returns), is_tuple, object_file)


def keep_code(name: str, code: MachineCode) -> None:
    """Keep the machine code of a kernel, if there is a cache."""
    file = _file(name)
    if file is not None:
        head = json.dumps([code.symbol, code.returns, code.is_tuple, len(code.object_file)])
        part = file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            part.write_bytes(head.encode() + b"\n" + code.object_file)
            part.rename(file)


def loaded(code: MachineCode, parameters: Sequence[str]) -> Callable[..., Any]:
    """The function, for parameters with these annotations: `int`, or the name of a type of arrays."""
    with _LOADING:
        address = _engine().load(code)
    results = [_RESULTS[name] for name in code.returns]
    fields = [(f"_{number}", kind) for number, kind in enumerate(results)]
    result = type("_Result", (ctypes.Structure,), {"_fields_": fields})
    kinds: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
    converters: list[Callable[[Any, list[Any]], None]] = []
    for name in parameters:
        kinds += _SINGLE.get(name, _ARRAY)
        is_number = name in ("int", "bool")
        converters.append(_add_integer if is_number else _add_frame if name == "Frame" else _array_adder(name))
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(address)
    names = [name for name, _ in fields]

    def call(*arguments: Any) -> Any:
        found, error = result(), ctypes.c_void_p()
        values: list[Any] = [ctypes.addressof(found), ctypes.addressof(error)]
        for convert, argument in zip(converters, _values(arguments), strict=True):
            convert(argument, values)
        function(*values)
        if code.is_tuple:
            return tuple(getattr(found, name) for name in names)
        return getattr(found, names[0]) if names else None

    return call


def _values(arguments: Iterable[Any]) -> Iterator[Any]:
    """The arguments, and the fields of those that are named tuples."""
    for one in arguments:
        yield from _values(one) if isinstance(one, tuple) else (one,)


def _add_integer(value: Any, values: list[Any]) -> None:
    values.append(index(value))


def _add_frame(frame: Any, values: list[Any]) -> None:
    values.append(frame.__array_interface__["data"][0])


def _array_adder(name: str) -> Callable[[Any, list[Any]], None]:
    is_written, read = name.startswith("Out") or name == "Frames", name.removeprefix("Out")
    is_contiguous, item = is_written or name == "Bytes", None if name == "Frames" else np.dtype(_ITEMS[read])

    def add(argument: Any, values: list[Any]) -> None:
        array = np.asarray(argument)  # each attribute of a record array takes a microsecond
        flags = array.flags
        if (
            (item is not None and array.dtype != item)
            or array.ndim != 1
            or (is_contiguous and not flags.c_contiguous)
            or (is_written and not flags.writeable)
        ):
            raise TypeError(f"an array of {array.dtype} with {array.ndim} dimensions, {flags}, is not of {name}")
        size = array.itemsize
        # For an array of frames, NumPy describes each field if it is asked for its interface.
        address = array.ctypes.data if item is None else array.__array_interface__["data"][0]
        values += (None, None, array.size, size, address, array.size, array.strides[0])

    return add


class _Engine:
    """LLVM's linker in this process; what it has loaded stays."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._llvm = llvm
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._linker = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)

    def load(self, code: MachineCode) -> int:
        """The address of the function."""
        self._linker.add_object_file(self._llvm.ObjectFileRef.from_data(code.object_file))
        self._linker.finalize_object()
        address: int = self._linker.get_function_address(code.symbol)
        return address


_engine = cache(_Engine)


@cache
def _processor() -> str:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_name(), sorted(llvm.get_host_cpu_features().items())
    return f"{zlib.crc32(repr(features).encode()):08x}"


def _file(name: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / f"{name}.{_processor()}.o"
