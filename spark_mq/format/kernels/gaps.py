"""Left-out records: what fills the place of messages that are not in a restored log.

A broker reads the log record by record, so the bytes between two kept records must be whole records, too. A *left-out
record* has transaction type ROLLBACK: no queue and no index has such a record
(`CommitLogDispatcherBuildConsumeQueue`, `IndexService.buildIndex`@4.9.7, @5.3.3). Its topic is `LEFT_OUT_TOPIC`, cut if
the gap is too small for the whole name. Its body consists of zeros and fills the rest of the gap. It has no properties,
or only a property CRC.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Int64s, OutBytes
from spark_mq.format.kernels.big_endian import copy_bytes, write_i32, write_i64
from spark_mq.format.kernels.crc import CRC_MASK, crc32, write_property_crc
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.properties import PROPERTY_CRC_SIZE
from spark_mq.format.record import (
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    COMMIT_LOG_OFFSET_AT,
    HOST_V4_SIZE,
    MAGIC_AT,
    MAGIC_V1,
    MIN_RECORD_SIZE,
    SYS_FLAG_AT,
    TIMESTAMP_SIZE,
    TRANSACTION_ROLLBACK_TYPE,
)
from spark_mq.format.system_topic import LEFT_OUT_TOPIC

LOCAL_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
"""127.0.0.1:10911, as a record has it."""

MAX_LEFT_OUT_SIZE = 4 << 20
"""Bytes of the largest left-out record: 4.9.0 accepts no larger record by default (`maxMessageSize`)."""

_TOPIC = np.frombuffer(LEFT_OUT_TOPIC.encode(), np.uint8)
_STORE_HOST_AT = BORN_HOST_AT + HOST_V4_SIZE + TIMESTAMP_SIZE
_BODY_LENGTH_AT = _STORE_HOST_AT + HOST_V4_SIZE + 12


def min_gap_size(with_property_crc: bool = False) -> int:
    """The bytes of the smallest gap that can be filled.

    This is the size of the smallest record of a message: IPv4 hosts, one character of topic, no body and no properties
    but a property CRC. So a gap that messages left is always large enough.
    """
    return MIN_RECORD_SIZE + 1 + (PROPERTY_CRC_SIZE if with_property_crc else 0)


def fill_gaps(
    buffer: OutBytes,
    base: int,
    starts: Int64s,
    stops: Int64s,
    store_timestamps: Int64s,
    store_host: bytes = LOCAL_HOST,
    with_property_crc: bool = False,
) -> None:
    """Fill gaps of a segment with left-out records, whatever bytes the gaps have.

    A gap that is larger than `MAX_LEFT_OUT_SIZE` gets several records, none of which is smaller than `min_gap_size`.

    Args:
        base: The commit log offset of `buffer[0]`.
        starts: The commit log offset at which each gap starts.
        stops: The commit log offset at which each gap ends.
        store_timestamps: The store time of the records of each gap, in milliseconds since the epoch.
        store_host: The store host of all records: 4 bytes of an address, and 4 of a port.
        with_property_crc: Whether the records end with a property CRC. A broker with `forceVerifyPropCRC` rejects a
            record without it.
    """
    least = min_gap_size(with_property_crc)
    if len(store_host) != HOST_V4_SIZE:
        raise ValueError(f"the store host of a left-out record has {HOST_V4_SIZE} bytes, not {len(store_host)}")
    if (small := np.flatnonzero(stops - starts < least)).size:
        start, stop = int(starts[small[0]]), int(stops[small[0]])
        raise ValueError(f"the gap from {start} to {stop} is smaller than {least} bytes")
    if starts.min(initial=base) < base or stops.max(initial=base) > base + buffer.size:
        raise ValueError(f"a gap is not between {base} and {base + buffer.size}, where the buffer is")
    host = np.frombuffer(store_host, np.uint8)
    crc_size = PROPERTY_CRC_SIZE if with_property_crc else 0
    _fill_gaps(buffer, base, starts - base, stops - base, store_timestamps, host, least, crc_size)


@kernel
def _fill_gaps(
    buffer: OutBytes,
    base: int,
    starts: Int64s,
    stops: Int64s,
    store_timestamps: Int64s,
    host: Bytes,
    least: int,
    crc_size: int,
) -> None:
    crc_length, body_crc = 0, 0  # gaps often have the same size, and so do all parts of a large gap
    for index in range(starts.size):
        position, stop = starts[index], stops[index]
        while position < stop:
            size = stop - position
            if size > MAX_LEFT_OUT_SIZE:
                size = MAX_LEFT_OUT_SIZE if size - MAX_LEFT_OUT_SIZE >= least else size - least
            topic_length = size - MIN_RECORD_SIZE - crc_size
            if topic_length > _TOPIC.size:
                topic_length = _TOPIC.size
            body_length = size - MIN_RECORD_SIZE - crc_size - topic_length
            topic_at = position + _BODY_LENGTH_AT + 4 + body_length
            buffer[position:topic_at] = 0
            if body_length != crc_length:
                crc_length = body_length
                body_crc = crc32(buffer, topic_at - body_length, body_length) & CRC_MASK
            write_i32(buffer, position, size)
            write_i32(buffer, position + MAGIC_AT, MAGIC_V1)
            write_i32(buffer, position + BODY_CRC_AT, body_crc)
            write_i64(buffer, position + COMMIT_LOG_OFFSET_AT, base + position)
            write_i32(buffer, position + SYS_FLAG_AT, TRANSACTION_ROLLBACK_TYPE)
            write_i64(buffer, position + BORN_TIMESTAMP_AT, store_timestamps[index])
            copy_bytes(buffer, position + BORN_HOST_AT, host, 0, HOST_V4_SIZE)
            write_i64(buffer, position + BORN_HOST_AT + HOST_V4_SIZE, store_timestamps[index])
            copy_bytes(buffer, position + _STORE_HOST_AT, host, 0, HOST_V4_SIZE)
            write_i32(buffer, position + _BODY_LENGTH_AT, body_length)
            buffer[topic_at] = topic_length
            copy_bytes(buffer, topic_at + 1, _TOPIC, 0, topic_length)
            at = topic_at + 1 + topic_length
            buffer[at] = 0
            buffer[at + 1] = crc_size
            if crc_size > 0:
                write_property_crc(buffer, position, size)
            position += size
