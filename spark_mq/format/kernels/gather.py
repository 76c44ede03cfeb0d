"""Contiguous text and bytes from pieces that are scattered in a buffer."""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s
from spark_mq.format.kernels.big_endian import SLACK, append_bytes
from spark_mq.format.kernels.kernel import kernel


def gather(buffer: Bytes, starts: Int64s, lengths: Int32s) -> tuple[Bytes, Int32s]:
    """The pieces of `buffer` one after the other, and the offsets between them; see `gather_bytes`."""
    size = int(np.maximum(lengths, 0).sum(dtype=np.int64))
    out, offsets = np.empty(size + SLACK, np.uint8), np.empty(lengths.size + 1, np.int32)
    gather_bytes(buffer, starts, lengths, out, offsets)
    return out[:size], offsets


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
        append_bytes(out, out_end, buffer, start, length)
        if length > 0:
            out_end += length
        offsets[index + 1] = out_end
