"""New offsets for records that are encoded already: the fields that a broker fills in when it appends a record.

A broker encodes a record first. Under the lock of the log, it then writes the queue offset, the record's own commit log
offset and the store time into the encoded bytes, and after that the property CRC, which covers them
(`CommitLog.DefaultAppendMessageCallback.doAppend`@5.3.3).
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Flags, Int64s, OutBytes
from spark_mq.format.kernels.big_endian import read_i32, write_i64
from spark_mq.format.kernels.crc import renew_property_crc
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.record import (
    BORN_HOST_AT,
    COMMIT_LOG_OFFSET_AT,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)
from spark_mq.format.sys_flag import BORN_HOST_V6_FLAG


@kernel
def _renumber(
    data: OutBytes,
    positions: Int64s,
    commit_log_offsets: Int64s,
    queue_offsets: Int64s,
    store_timestamps: Int64s,
    has_store_timestamp: Flags,
) -> None:
    for index in range(positions.size):
        start = positions[index]
        write_i64(data, start + QUEUE_OFFSET_AT, queue_offsets[index])
        write_i64(data, start + COMMIT_LOG_OFFSET_AT, commit_log_offsets[index])
        if has_store_timestamp[index]:
            is_v6 = read_i32(data, start + SYS_FLAG_AT) & BORN_HOST_V6_FLAG
            write_i64(data, start + BORN_HOST_AT + (HOST_V6_SIZE if is_v6 else HOST_V4_SIZE), store_timestamps[index])
        renew_property_crc(data, start)


def renumber(
    data: OutBytes,
    positions: Int64s,
    commit_log_offsets: Int64s,
    queue_offsets: Int64s,
    store_timestamps: Int64s | None = None,
) -> None:
    """Write new offsets into sound records, in place. Where a record ends with a property CRC, it is computed again.

    The offsets that properties contain stay: INNER_BASE of inner batches, INNER_MULTI_QUEUE_OFFSET of multi-dispatch.

    Args:
        data: The bytes that contain the records.
        positions: Where each record starts in `data`.
        store_timestamps: The new store time of each record, in milliseconds since the epoch; None to keep all.
    """
    times = np.zeros(positions.size, np.int64) if store_timestamps is None else store_timestamps
    has_time = np.broadcast_to(store_timestamps is not None, positions.size)
    _renumber(data, positions, commit_log_offsets, queue_offsets, times, has_time)
