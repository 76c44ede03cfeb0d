"""Unique keys for rows that come from no store and have none.

A broker creates them for such messages from 5.0.0 on (`SendMessageProcessor.sendMessage`@5.3.3), in the form of a
client's (`MessageClientIDSetter.createUniqID`@5.3.3). A key has 16 bytes, written as 32 hexadecimal digits:

| bytes | content | here |
| --- | --- | --- |
| 4 | the client's address | the address of the store host; 127.0.0.1 if that is an IPv6 address |
| 2 | the client's process id | of a hash of the restore's time, the partition, and the row's number / 65536; not 0 |
| 4 | a hash of a class | of the same hash |
| 4 | milliseconds from the start of the month | to the row's born time, in UTC |
| 2 | a counter | the row's number modulo 65536 |

So a task that runs again makes the same keys, and another restore makes others.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Int64s
from spark_mq.format.pieces import Pieces
from spark_mq.format.record import HOST_V4_SIZE

_SIZE = 16
_DIGITS = 2 * _SIZE
_BLOCK_BITS = 16
_LOCAL_ADDRESS = b"\x7f\x00\x00\x01"


def make_unique_keys(store_host: bytes, now: int, partition: int, first_row: int, born_timestamps: Int64s) -> Pieces:
    """A unique key for each of the rows of a batch.

    Args:
        store_host: The stored bytes of the store host.
        now: The time of the restore, in milliseconds since the epoch.
        partition: The number of the partition that contains the rows.
        first_row: The number of the batch's first row in its partition.
        born_timestamps: The born time of each row, in milliseconds since the epoch, of years 1970 to 9999.
    """
    count = born_timestamps.size
    rows = first_row + np.arange(count, dtype=np.int64)
    keys: npt.NDArray[np.uint8] = np.empty((count, _SIZE), np.uint8)
    keys[:, :4] = np.frombuffer(store_host[:4] if len(store_host) == HOST_V4_SIZE else _LOCAL_ADDRESS, np.uint8)
    for block in range(first_row >> _BLOCK_BITS, (first_row + count >> _BLOCK_BITS) + 1):
        digest = bytearray(hashlib.sha256(f"{now} {partition} {block}".encode()).digest()[:6])
        digest[0] |= 0x80  # a process id of 0 would make an offset message id of it
        keys[rows >> _BLOCK_BITS == block, 4:10] = np.frombuffer(digest, np.uint8)
    months = born_timestamps.astype("datetime64[ms]").astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
    keys[:, 10:14] = (born_timestamps - months).astype(">u4").view(np.uint8).reshape(count, 4)
    keys[:, 14:] = (rows & 0xFFFF).astype(">u2").view(np.uint8).reshape(count, 2)
    digits = np.frombuffer(keys.tobytes().hex().upper().encode(), np.uint8)
    return Pieces(digits, np.arange(count, dtype=np.int64) * _DIGITS, np.full(count, _DIGITS, np.int32))
