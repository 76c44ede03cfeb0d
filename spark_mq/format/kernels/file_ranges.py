"""Ranges of a file one after another in memory, by calls of the operating system from compiled code.

A record is read by one call of `pread`, which takes half a microsecond. The same call from Python takes four times as
long, and a topic can have millions of records.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import config, types

from spark_mq.format.array_types import Int64s, OutBytes
from spark_mq.format.kernels.kernel import kernel


def _plain_pread() -> Any:
    """`pread` for kernels that run as Python: descriptor, address, size, position."""
    function = ctypes.CDLL(None).pread
    function.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int64)
    function.restype = ctypes.c_ssize_t
    return lambda *arguments: function(*map(int, arguments))


_pread: Any = (
    _plain_pread()
    if getattr(config, "DISABLE_JIT", 0)
    else types.ExternalFunction("pread", types.intp(types.intc, types.uintp, types.uintp, types.int64))
)


@kernel
def read_ranges(descriptor: int, starts: Int64s, stops: Int64s, out: OutBytes) -> bool:
    """Read ranges of a file one after another into `out`, which has room for all of them.

    Returns False if the file ends before a range does, or if the operating system reports an error; then the content of
    `out` is undefined.
    """
    address, end = np.uintp(out.ctypes.data), 0
    for index in range(starts.size):
        position, stop = starts[index], stops[index]
        if stop < position or stop - position > out.size - end:
            return False
        while position < stop:
            count = _pread(np.int32(descriptor), address + np.uintp(end), np.uintp(stop - position), position)
            if count <= 0:
                return False
            position += count
            end += count
    return True
