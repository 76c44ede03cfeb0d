"""Text and bytes from pieces that are scattered in a buffer or a file, and back.

A record is read by one call of `pread`, which takes half a microsecond. The same call from Python takes four times as
long, and a topic can have millions of records.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s
from spark_mq.format.kernels.big_endian import SLACK, append_bytes, copy_bytes
from spark_mq.format.kernels.kernel import kernel, replaced
from spark_mq.format.pieces import Pieces


@kernel
def scatter_bytes(buffer: Bytes, starts: Int64s, lengths: Int32s, targets: Int64s, out: OutBytes) -> None:
    """Copy the pieces `starts`, `lengths` of `buffer` to the positions `targets` of `out`."""
    for index in range(starts.size):
        copy_bytes(out, targets[index], buffer, starts[index], lengths[index])


_PREAD = ctypes.CDLL(None).pread
_PREAD.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int64)
_PREAD.restype = ctypes.c_ssize_t


@replaced("pread")
def pread(descriptor: int, address: int, size: int, position: int) -> int:
    """Read bytes of a file to an address, as the operating system does; the number of them, or -1."""
    return int(_PREAD(int(descriptor), int(address), int(size), int(position)))


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
            count = pread(descriptor, address + np.uintp(end), stop - position, position)  # type: ignore[arg-type]
            if count <= 0:
                return False
            position += count
            end += count
    return True


def gather(buffer: Bytes, starts: Int64s, lengths: Int32s) -> tuple[Bytes, Int32s]:
    """The pieces of `buffer` one after the other, and the offsets between them; see `gather_bytes`."""
    size = int(np.maximum(lengths, 0).sum(dtype=np.int64))
    out, offsets = np.empty(size + SLACK, np.uint8), np.empty(lengths.size + 1, np.int32)
    gather_bytes(buffer, starts, lengths, out, offsets)
    return out[:size], offsets


def gathered(pieces: Pieces) -> pa.Array:
    """The pieces as an array of bytes; NULL is an empty value."""
    data, offsets = gather(pieces.buffer, pieces.starts, pieces.lengths)
    return pa.Array.from_buffers(pa.binary(), pieces.size, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


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
