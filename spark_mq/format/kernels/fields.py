"""The numbers of records, read in one pass over the records.

A record's head is in the processor's cache when its first field was read, and no longer when another pass comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutInt32s, OutInt64s
from spark_mq.format.kernels.big_endian import read_i32, read_i64
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.record import (
    BODY_CRC_AT,
    BORN_TIMESTAMP_AT,
    COMMIT_LOG_OFFSET_AT,
    FLAG_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
)

_RECORD, _STORE_TIMESTAMP, _AFTER_HOSTS = range(3)
"""What a distance is counted from: the record's start, its store timestamp, or the end of its hosts."""


@dataclass(frozen=True)
class _Place:
    """Where a field is in its record."""

    origin: int
    distance: int
    is_long: bool
    """Whether the field has eight bytes, else four."""


FIELDS = {
    "commit_log_offset": _Place(_RECORD, COMMIT_LOG_OFFSET_AT, True),
    "body_crc": _Place(_RECORD, BODY_CRC_AT, False),
    "queue_id": _Place(_RECORD, QUEUE_ID_AT, False),
    "flag": _Place(_RECORD, FLAG_AT, False),
    "queue_offset": _Place(_RECORD, QUEUE_OFFSET_AT, True),
    "born_timestamp": _Place(_RECORD, BORN_TIMESTAMP_AT, True),
    "store_timestamp": _Place(_STORE_TIMESTAMP, 0, True),
    "reconsume_times": _Place(_AFTER_HOSTS, 0, False),
    "prepared_transaction_offset": _Place(_AFTER_HOSTS, 4, True),
}
"""The fields, by the name of their column; timestamps are milliseconds."""


def read_fields(buffer: Bytes, frames: Frames, names: Sequence[str]) -> dict[str, Int32s | Int64s]:
    """The values of some of the `FIELDS`, by name: one for each record."""
    short = [name for name in names if not FIELDS[name].is_long]
    long = [name for name in names if FIELDS[name].is_long]
    places = [FIELDS[name] for name in (*short, *long)]
    int32s = np.empty((len(short), frames.size), np.int32)
    int64s = np.empty((len(long), frames.size), np.int64)
    _read_fields(
        buffer,
        frames,
        np.array([place.origin for place in places], np.int64),
        np.array([place.distance for place in places], np.int64),
        len(short),
        int32s.reshape(-1),
        int64s.reshape(-1),
    )
    return {**dict(zip(short, int32s, strict=True)), **dict(zip(long, int64s, strict=True))}


@kernel
def _read_fields(
    buffer: Bytes,
    frames: Frames,
    origins: Int64s,
    distances: Int64s,
    short: int,
    int32s: OutInt32s,
    int64s: OutInt64s,
) -> None:
    count = frames.size
    for index in range(count):
        position = frames[index].position
        store_timestamp_at, after_hosts_at = frames[index].store_timestamp_at, frames[index].after_hosts_at
        for field in range(origins.size):
            at = position
            if origins[field] == _STORE_TIMESTAMP:
                at = store_timestamp_at
            elif origins[field] == _AFTER_HOSTS:
                at = after_hosts_at
            at += distances[field]
            if field < short:
                int32s[field * count + index] = read_i32(buffer, at)
            else:
                int64s[(field - short) * count + index] = read_i64(buffer, at)
