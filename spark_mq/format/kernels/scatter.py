"""Pieces of a buffer, copied to given places of another one."""

from __future__ import annotations

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes
from spark_mq.format.kernels.big_endian import copy_bytes
from spark_mq.format.kernels.kernel import kernel


@kernel
def scatter_bytes(buffer: Bytes, starts: Int64s, lengths: Int32s, targets: Int64s, out: OutBytes) -> None:
    """Copy the pieces `starts`, `lengths` of `buffer` to the positions `targets` of `out`.

    The caller has checked that all pieces are in `buffer`, and all places in `out`.
    """
    for index in range(starts.size):
        copy_bytes(out, targets[index], buffer, starts[index], lengths[index])
