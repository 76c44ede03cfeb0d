"""Contiguous text and bytes from pieces that are scattered in a buffer."""

from __future__ import annotations

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s
from spark_mq.format.kernels.big_endian import copy_bytes
from spark_mq.format.kernels.kernel import kernel


@kernel
def gather_bytes(buffer: Bytes, starts: Int64s, lengths: Int32s, out: OutBytes, offsets: OutInt32s) -> None:
    """Copy the pieces `starts`, `lengths` of `buffer`, one after the other.

    `out` and `offsets` are filled in Arrow's layout of variable-size values: value i is
    `out[offsets[i]:offsets[i + 1]]`. A piece of length -1 (there is no piece) takes no bytes.
    """
    out_end = 0
    offsets[0] = 0
    for index in range(starts.size):
        start, length = starts[index], lengths[index]
        copy_bytes(out, out_end, buffer, start, length)
        if length > 0:
            out_end += length
        offsets[index + 1] = out_end
