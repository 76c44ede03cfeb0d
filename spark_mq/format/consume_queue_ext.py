"""Units of consume queue extensions (`ConsumeQueueExt`, `CqExtUnit`@5.3.3; the same bytes in 4.9.7).

A broker with `enableConsumeQueueExt` keeps a second file tree, `consumequeue_ext/TOPIC/QUEUE ID`. The tags code of a
consume queue unit is then an address: -2^63 plus the offset of an extension unit in that folder. An extension unit is
big-endian:

| at | width | field |
| --- | --- | --- |
| 0 | i16 | size of the unit, 20 + n |
| 2 | i64 | tags code of the message |
| 10 | i64 | store time of the message, milliseconds |
| 18 | i16 | n, bytes of the bit map |
| 20 | n | bit map of a Bloom filter, absent if no group had a filter for the topic |

A unit ends at least 4 bytes before the end of its file. If it does not fit, an i16 of -1 follows the last unit, and the
unit begins the next file. Nothing else in the files says where they end: zeros follow the last unit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Bytes, Flags, Int64s

MAX_ADDRESS = -(1 << 31) - 1
"""The largest tags code that is an address (`ConsumeQueueExt.MAX_ADDR`@5.3.3)."""
HEADER_SIZE = 20
"""Bytes of a unit without a bit map (`CqExtUnit.MIN_EXT_UNIT_SIZE`)."""
MAX_UNIT_SIZE = (1 << 15) - 1
"""`CqExtUnit.MAX_EXT_UNIT_SIZE`@5.3.3."""
END_BLANK_SIZE = 4
"""Bytes that stay free at the end of a file (`ConsumeQueueExt.END_BLANK_DATA_LENGTH`@5.3.3)."""
END_MARK = -1
"""The size that marks the end of a file (`ConsumeQueueExt.fullFillToEnd`@5.3.3)."""
DEFAULT_FILE_SIZE = 48 << 20
"""`mappedFileSizeConsumeQueueExt` (`MessageStoreConfig`@5.3.3)."""

_BASE = -(1 << 63)
_HEADER = struct.Struct(">hqqh")
_HEADER_DTYPE = np.dtype(
    [("size", ">i2"), ("tags_code", ">i8"), ("store_timestamp", ">i8"), ("bit_map_size", ">i2")], align=False
)


@dataclass(frozen=True)
class ExtUnit:
    """One extension unit.

    Attributes:
        tags_code: The hash of the message's tags; of a delayed message, its delivery time.
        store_timestamp: The store time of the message, milliseconds since the epoch.
        bit_map: The bits of the groups whose filter was TRUE; empty if no group had a filter for the topic.
    """

    tags_code: int
    store_timestamp: int
    bit_map: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the unit."""
        return HEADER_SIZE + len(self.bit_map)

    def encode(self) -> bytes:
        """The bytes of the unit (`CqExtUnit.write`@5.3.3)."""
        return _HEADER.pack(self.size, self.tags_code, self.store_timestamp, len(self.bit_map)) + self.bit_map


@dataclass(frozen=True)
class ExtUnits:
    """Many extension units, one element for each address that was asked for.

    Attributes:
        is_found: Whether the address leads to a whole unit. The other arrays have 0 if it does not.
        tags_code: See `ExtUnit`.
        store_timestamp: See `ExtUnit`.
        bit_map: See `ExtUnit`.
    """

    is_found: Flags
    tags_code: Int64s
    store_timestamp: Int64s
    bit_map: npt.NDArray[Any]


@dataclass(frozen=True)
class ExtLayout:
    """Where a broker puts the extension units of one queue if it makes all of them: units of one size, in their order.

    Attributes:
        file_size: Bytes of a file.
        unit_size: Bytes of a unit.
    """

    file_size: int
    unit_size: int

    @property
    def units_per_file(self) -> int:
        """Units in each file except the last one (`ConsumeQueueExt.put`@5.3.3)."""
        return (self.file_size - END_BLANK_SIZE) // self.unit_size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The fields of a unit, as in the file."""
        return np.dtype([*_HEADER_DTYPE.descr, ("bit_map", np.uint8, (self.unit_size - HEADER_SIZE,))])

    def addresses(self, numbers: Int64s) -> Int64s:
        """The addresses of units by their numbers in the queue, from 0 on.

        Examples:
            >>> offsets_of(ExtLayout(100, 34).addresses(np.array([0, 1, 2]))).tolist()
            [0, 34, 100]
        """
        offsets = numbers // self.units_per_file * self.file_size + numbers % self.units_per_file * self.unit_size
        return offsets + np.int64(_BASE)


def is_address(tags_code: int) -> bool:
    """Whether the tags code of a consume queue unit is an address (`ConsumeQueueExt.isExtAddr`@5.3.3).

    Examples:
        >>> is_address(-(2**63) + 40), is_address(-(2**31))
        (True, False)
    """
    return tags_code <= MAX_ADDRESS


def offset_of(address: int) -> int:
    """The offset in the extension's files to which an address leads (`ConsumeQueueExt.unDecorate`@5.3.3)."""
    return address - _BASE


def offsets_of(addresses: Int64s) -> Int64s:
    """As `offset_of`, for many addresses."""
    # The sum wraps, as in Java: only the highest bit changes.
    return addresses ^ np.int64(_BASE)


def parse_unit(data: bytes) -> ExtUnit | None:
    """The unit at the start of `data`; None if no whole unit is there (`CqExtUnit.read`@5.3.3).

    A broker does not compare the size with the size of the bit map. Here a unit with a contradiction is not whole.
    """
    if len(data) < HEADER_SIZE:
        return None
    size, tags_code, store_timestamp, bit_map_size = _HEADER.unpack_from(data)
    if bit_map_size < 0 or size != HEADER_SIZE + bit_map_size or len(data) < size:
        return None
    return ExtUnit(tags_code, store_timestamp, data[HEADER_SIZE:size])


def parse_units(buffer: Bytes, positions: Int64s) -> ExtUnits:
    """The units at positions of a buffer, by the rules of `parse_unit`; a position can be outside the buffer."""
    is_inside = (positions >= 0) & (positions <= buffer.size - HEADER_SIZE)
    at = np.where(is_inside, positions, 0)
    headers = np.zeros(positions.size, _HEADER_DTYPE)
    if buffer.size >= HEADER_SIZE and positions.size:
        headers = buffer[at[:, None] + np.arange(HEADER_SIZE)].reshape(-1).view(_HEADER_DTYPE)
    lengths = headers["bit_map_size"].astype(np.int64)
    is_found = is_inside & (lengths >= 0) & (headers["size"] == HEADER_SIZE + lengths)
    is_found &= at + HEADER_SIZE + lengths <= buffer.size
    bit_maps = np.full(positions.size, b"", object)
    for length in np.unique(lengths[is_found]).tolist():
        which = np.flatnonzero(is_found & (lengths == length))
        if length:
            rows = buffer[at[which][:, None] + np.arange(HEADER_SIZE, HEADER_SIZE + length)]
            # Most maps are equal to others, so each one becomes an object once.
            different, number = np.unique(rows.view((np.void, length)).reshape(-1), return_inverse=True)
            objects = np.fromiter((bytes(row) for row in different), object, different.size)
            bit_maps[which] = objects[number]
    return ExtUnits(
        is_found,
        np.where(is_found, headers["tags_code"], 0).astype(np.int64),
        np.where(is_found, headers["store_timestamp"], 0).astype(np.int64),
        bit_maps,
    )
