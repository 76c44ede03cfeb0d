"""Types of the NumPy arrays that kernels take and return, and the memory of arrays that are freed.

A kernel is compiled once, for the types of its annotations (see `spark_mq.format.kernels.kernel`). So an argument that
a kernel writes has another name than an argument that it reads: the first must be a new, contiguous array, and the
second can be any array.

This module imports no numba, so every module may import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
OutBytes: TypeAlias = npt.NDArray[np.uint8]
OutInt32s: TypeAlias = npt.NDArray[np.int32]
OutInt64s: TypeAlias = npt.NDArray[np.int64]
OutFlags: TypeAlias = npt.NDArray[np.bool_]


def is_in(values: Int32s | Int64s, others: Int32s | Int64s) -> Flags:
    """Whether each value is one of the others: ten times as fast as `np.isin`, which puts a million values in a set."""
    if not (values.size and others.size):
        return np.zeros(values.size, np.bool_)
    ascending = np.sort(others)
    found: Flags = ascending[np.minimum(np.searchsorted(ascending, values), others.size - 1)] == values
    return found


def leading(values: Flags) -> int:
    """The number of true values before the first false one."""
    return values.size if values.all() else int(values.argmin())


def native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values in the byte order of this machine: Arrow takes no other one."""
    return values.astype(values.dtype.newbyteorder("="))


class ArrayRows:
    """The base of dataclasses whose fields are arrays of one length: a row has an element of each."""

    def take(self, chosen: Any) -> Self:
        """The rows with these numbers, or in this slice, or at which an array of booleans is true."""
        return type(self)(*(values[chosen] for values in vars(self).values()))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one part after the other; there must be one."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))


_KEPT_BYTES = 31 << 20


def keep_freed_memory() -> None:
    """Let this process keep the memory of arrays that it frees, for the next ones.

    After glibc freed a mapping of this size (32 MiB at most), it keeps up to twice as much freed memory. Otherwise, the
    operating system would get the memory of each batch back, and clear it for the next one (M_MMAP_THRESHOLD).
    """
    bytearray(_KEPT_BYTES)
