"""Texts and bytes as pieces of one buffer, the form in which kernels take them.

This module imports no numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutBytes, OutInt32s, OutInt64s

_LONGEST = (1 << 31) - 1


class Pieces(NamedTuple):
    """n pieces of a buffer.

    Attributes:
        buffer: The bytes that contain all pieces.
        starts: Where each piece starts in `buffer`.
        lengths: The bytes of each piece; -1 if there is no piece, which is NULL.
    """

    buffer: Bytes
    starts: Int64s
    lengths: Int32s

    @property
    def size(self) -> int:
        """The number of pieces."""
        return self.lengths.size

    def is_given(self) -> Flags:
        """Which pieces are not NULL."""
        given: Flags = self.lengths >= 0
        return given

    def total(self) -> int:
        """The bytes of all pieces."""
        return int(np.maximum(self.lengths, 0).sum(dtype=np.int64))

    def take(self, indices: Int64s | Int32s) -> Pieces:
        """The pieces with these numbers; the buffer stays."""
        return Pieces(self.buffer, self.starts[indices], self.lengths[indices])

    def piece(self, index: int) -> bytes:
        """The bytes of one piece; none if it is NULL."""
        start = int(self.starts[index])
        return self.buffer[start : start + max(int(self.lengths[index]), 0)].tobytes()


class OutPieces(NamedTuple):
    """Pieces that a kernel writes."""

    buffer: OutBytes
    starts: OutInt64s
    lengths: OutInt32s


def empty_pieces(count: int, size: int) -> OutPieces:
    """`count` pieces for a kernel to fill, in a buffer of `size` bytes."""
    return OutPieces(np.empty(size, np.uint8), np.empty(count, np.int64), np.empty(count, np.int32))


def no_pieces(count: int) -> Pieces:
    """`count` pieces that are NULL."""
    return Pieces(np.empty(0, np.uint8), np.zeros(count, np.int64), np.full(count, -1, np.int32))


def pieces_of_bytes(values: list[bytes]) -> Pieces:
    """The values one after the other."""
    lengths = np.fromiter((len(value) for value in values), np.int64, len(values))
    return Pieces(np.frombuffer(b"".join(values), np.uint8), np.cumsum(lengths) - lengths, lengths.astype(np.int32))


def pieces_of_array(array: pa.Array) -> Pieces:
    """The values of an Arrow array of text or bytes. Nothing is copied, except of dictionaries and views.

    A value of 2 GiB or more has a length of 2 GiB - 1.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return pieces_of_array(array.dictionary_decode())
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return pieces_of_array(array.cast(pa.large_binary()))
    if pa.types.is_string_view(kind):
        return pieces_of_array(array.cast(pa.large_string()))
    if pa.types.is_null(kind) or not len(array):
        return no_pieces(len(array))
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64 if is_large else np.int32)[array.offset :][: len(array) + 1]
    lengths = np.minimum(np.diff(ends), _LONGEST).astype(np.int32)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    start, stop = int(ends[0]), int(ends[-1])  # the array can be a part of a much larger one
    buffer = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[start:stop]
    return Pieces(buffer, ends[:-1].astype(np.int64) - start, lengths)
