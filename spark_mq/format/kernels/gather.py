"""Text and bytes from pieces that are scattered in a buffer or a file, and back.

A record is read by one call of `pread`, which takes half a microsecond. The same call from Python takes four times as
long, and a topic can have millions of records.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s, OutInt64s
from spark_mq.format.kernels.big_endian import SLACK, append_bytes, copy_bytes, read_i32
from spark_mq.format.kernels.frames import RECORD, Frames, read_frame
from spark_mq.format.kernels.kernel import kernel, replaced
from spark_mq.format.pieces import Pieces
from spark_mq.format.record import MAX_RECORD_SIZE, MIN_RECORD_SIZE

_USUAL_SIZE = 1024
"""Bytes of the first read of a record whose size is not known: most records are shorter."""
MOST_READ = MAX_RECORD_SIZE + _USUAL_SIZE
"""Bytes in which `read_records` has room for each record."""


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


@kernel
def read_records(
    descriptor: int,
    base: int,
    end: int,
    offsets: Int64s,
    reached: int,
    out: OutBytes,
    filled: int,
    frames: Frames,
    numbers: OutInt64s,
    count: int,
) -> tuple[int, int, int]:
    """Read the records of a segment that start at some offsets into `out`, one after the other, while it has room.

    A record of usual size is one call. Where no record is, nothing is written.

    Args:
        base: The commit log offset of the first byte of the file.
        end: The commit log offset at which the segment ends.
        offsets: Commit log offsets in this segment, from index `reached` on.
        out: Receives the bytes of the records from index `filled` on.
        frames: Receives the frames of the records from index `count` on, and `numbers` the indexes of their offsets.

    Returns:
        `reached`, `filled` and `count` for the next call. If `reached` is not the number of offsets, `out` is full.
    """
    address = np.uintp(out.ctypes.data)
    while reached < offsets.size:
        offset, available = offsets[reached], end - offsets[reached]
        if out.size - filled < _USUAL_SIZE:
            break
        # The bytes after a record are overwritten by the next one.
        done = pread(descriptor, address + np.uintp(filled), min(_USUAL_SIZE, available), offset - base)  # type: ignore[arg-type]
        size = read_i32(out, filled) if done >= MIN_RECORD_SIZE else 0
        if MIN_RECORD_SIZE <= size <= min(MAX_RECORD_SIZE, available):
            if size > out.size - filled:
                break
            more = done
            while done < size and more > 0:
                more = pread(descriptor, address + np.uintp(filled + done), size - done, offset - base + done)  # type: ignore[arg-type]
                done += more
            if done >= size and read_frame(out, filled, offset - filled, filled + size, frames[count]) == RECORD:
                numbers[count] = reached
                count += 1
                filled += size
        reached += 1
    return reached, filled, count


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
