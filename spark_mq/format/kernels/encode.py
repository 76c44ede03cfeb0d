"""Writing many records from arrays: the values of fields in, bytes out; and new offsets in records.

`spark_mq.format.record` explains the fields, and its `Record.encode` is the twin for one record. The caller has checked
that every value fits its field.

A broker encodes a record first. Under the lock of the log, it then writes the queue offset, the record's own commit log
offset and the store time into the encoded bytes, and after that the property CRC, which covers them
(`CommitLog.DefaultAppendMessageCallback.doAppend`@5.3.3).

A broker reads the log record by record, so the bytes between two kept records must be whole records, too. A *left-out
record* has transaction type ROLLBACK: no queue and no index has such a record
(`CommitLogDispatcherBuildConsumeQueue`, `IndexService.buildIndex`@4.9.7, @5.3.3). Its topic is `LEFT_OUT_TOPIC`, cut if
the gap is too small for the whole name. Its body consists of zeros and fills the rest of the gap. It has no properties.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spark_mq.format import record
from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutBytes
from spark_mq.format.kernels.big_endian import copy_bytes, read_i32, write_i32, write_i64
from spark_mq.format.kernels.crc import crc32, renew_property_crc
from spark_mq.format.kernels.frames import Frames, host_size
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.pieces import Pieces
from spark_mq.format.record import CRC_MASK
from spark_mq.format.system_topic import LEFT_OUT_TOPIC

LOCAL_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
"""127.0.0.1:10911, as a record has it."""

MIN_GAP_SIZE = record.MIN_RECORD_SIZE + 1
"""The bytes of the smallest gap that can be filled: those of the smallest record of a message, so any one is enough."""
MAX_LEFT_OUT_SIZE = 4 << 20
"""Bytes of the largest left-out record: 4.9.0 accepts no larger record by default (`maxMessageSize`)."""

_HOST = np.frombuffer(LOCAL_HOST, np.uint8)
_TOPIC = np.frombuffer(LEFT_OUT_TOPIC.encode(), np.uint8)
_STORE_HOST_AT = record.BORN_HOST_AT + record.HOST_V4_SIZE + record.TIMESTAMP_SIZE
_BODY_LENGTH_AT = _STORE_HOST_AT + record.HOST_V4_SIZE + 12
NONE_WRONG = -1
"""What `write_records` returns if every stored body CRC fits its body."""


def fill_gaps(buffer: OutBytes, base: int, starts: Int64s, stops: Int64s, store_timestamps: Int64s) -> None:
    """Fill gaps of a segment with left-out records, whatever bytes the gaps have.

    A gap that is larger than `MAX_LEFT_OUT_SIZE` gets several records, none of which is smaller than `MIN_GAP_SIZE`.
    """
    if (small := np.flatnonzero(stops - starts < MIN_GAP_SIZE)).size:
        start, stop = int(starts[small[0]]), int(stops[small[0]])
        raise ValueError(f"the gap from {start} to {stop} is smaller than {MIN_GAP_SIZE} bytes")
    if starts.min(initial=base) < base or stops.max(initial=base) > base + buffer.size:
        raise ValueError(f"a gap is not between {base} and {base + buffer.size}, where the buffer is")
    _fill_gaps(buffer, base, starts - base, stops - base, store_timestamps)


@kernel
def _fill_gaps(buffer: OutBytes, base: int, starts: Int64s, stops: Int64s, store_timestamps: Int64s) -> None:
    crc_length, body_crc = 0, 0  # gaps often have the same size, and so do all parts of a large gap
    for index in range(starts.size):
        position, stop = starts[index], stops[index]
        while position < stop:
            size = stop - position
            if size > MAX_LEFT_OUT_SIZE:
                size = MAX_LEFT_OUT_SIZE if size - MAX_LEFT_OUT_SIZE >= MIN_GAP_SIZE else size - MIN_GAP_SIZE
            topic_length = size - record.MIN_RECORD_SIZE
            if topic_length > _TOPIC.size:
                topic_length = _TOPIC.size
            body_length = size - record.MIN_RECORD_SIZE - topic_length
            topic_at = position + _BODY_LENGTH_AT + 4 + body_length
            buffer[position:topic_at] = 0
            if body_length != crc_length:
                crc_length = body_length
                body_crc = crc32(buffer, topic_at - body_length, body_length) & CRC_MASK
            write_i32(buffer, position, size)
            write_i32(buffer, position + record.MAGIC_AT, record.MAGIC_V1)
            write_i32(buffer, position + record.BODY_CRC_AT, body_crc)
            write_i64(buffer, position + record.COMMIT_LOG_OFFSET_AT, base + position)
            write_i32(buffer, position + record.SYS_FLAG_AT, record.TRANSACTION_ROLLBACK_TYPE)
            write_i64(buffer, position + record.BORN_TIMESTAMP_AT, store_timestamps[index])
            copy_bytes(buffer, position + record.BORN_HOST_AT, _HOST, 0, record.HOST_V4_SIZE)
            write_i64(buffer, position + record.BORN_HOST_AT + record.HOST_V4_SIZE, store_timestamps[index])
            copy_bytes(buffer, position + _STORE_HOST_AT, _HOST, 0, record.HOST_V4_SIZE)
            write_i32(buffer, position + _BODY_LENGTH_AT, body_length)
            buffer[topic_at] = topic_length
            copy_bytes(buffer, topic_at + 1, _TOPIC, 0, topic_length)
            buffer[position + size - 2 : position + size] = 0
            position += size


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
        write_i64(data, start + record.QUEUE_OFFSET_AT, queue_offsets[index])
        write_i64(data, start + record.COMMIT_LOG_OFFSET_AT, commit_log_offsets[index])
        if has_store_timestamp[index]:
            born_host_size = host_size(read_i32(data, start + record.SYS_FLAG_AT), record.BORN_HOST_V6_FLAG)
            write_i64(data, start + record.BORN_HOST_AT + born_host_size, store_timestamps[index])
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
        store_timestamps: The new store time of each record, in milliseconds since the epoch; None to keep all.
    """
    times = np.zeros(positions.size, np.int64) if store_timestamps is None else store_timestamps
    has_time = np.broadcast_to(store_timestamps is not None, positions.size)
    _renumber(data, positions, commit_log_offsets, queue_offsets, times, has_time)


class RecordFields(NamedTuple):
    """The values of many records, one element of every array for each record.

    Arrays may be read-only and strided, such as those of `np.broadcast_to`.

    Attributes:
        is_v2: Whether the record has magic number V2, whose topic length is a short.
        sys_flags: Their IPv6 bits say how many bytes a host has: 8, or 20.
        born_host_starts: Where a record's born host starts in `born_hosts`.
        has_stored_body: Whether the body is a piece of `stored_bodies`.
        has_body_crc: Whether the body CRC is given. If the body has bytes, the CRC must be theirs.
    """

    is_v2: Flags
    queue_ids: Int32s
    flags: Int32s
    queue_offsets: Int64s
    commit_log_offsets: Int64s
    sys_flags: Int32s
    born_timestamps: Int64s
    born_hosts: Bytes
    born_host_starts: Int64s
    store_timestamps: Int64s
    store_hosts: Bytes
    store_host_starts: Int64s
    reconsume_times: Int32s
    prepared_transaction_offsets: Int64s
    bodies: Pieces
    stored_bodies: Pieces
    has_stored_body: Flags
    body_crcs: Int32s
    has_body_crc: Flags
    topics: Pieces
    properties: Pieces

    def body_lengths(self) -> Int32s:
        """The bytes of each record's body, 0 without one."""
        lengths = np.where(self.has_stored_body, self.stored_bodies.lengths, self.bodies.lengths)
        return np.maximum(lengths, 0).astype(np.int32)

    def sizes(self) -> Int64s:
        """The bytes of each record."""
        sizes: Int64s = self.body_lengths().astype(np.int64) + self.topics.lengths
        sizes += np.maximum(self.properties.lengths, 0)
        sizes += record.MIN_RECORD_SIZE + self.is_v2
        for bit in (record.BORN_HOST_V6_FLAG, record.STORE_HOST_V6_FLAG):
            sizes += np.where(self.sys_flags & bit, record.HOST_V6_SIZE - record.HOST_V4_SIZE, 0)
        return sizes


def encode_records(fields: RecordFields, out: OutBytes, positions: Int64s) -> int:
    """Write all records to their places in `out`; returns the first with a wrong body CRC, or `NONE_WRONG`."""
    return _write_records(out, positions, fields.sizes(), fields)


@kernel
def _write_records(out: OutBytes, positions: Int64s, sizes: Int64s, fields: RecordFields) -> int:
    first_wrong = NONE_WRONG
    for index in range(positions.size):
        start = positions[index]
        sys_flag = fields.sys_flags[index]
        write_i32(out, start, sizes[index])
        write_i32(out, start + record.MAGIC_AT, record.MAGIC_V2 if fields.is_v2[index] else record.MAGIC_V1)
        write_i32(out, start + record.QUEUE_ID_AT, fields.queue_ids[index])
        write_i32(out, start + record.FLAG_AT, fields.flags[index])
        write_i64(out, start + record.QUEUE_OFFSET_AT, fields.queue_offsets[index])
        write_i64(out, start + record.COMMIT_LOG_OFFSET_AT, fields.commit_log_offsets[index])
        write_i32(out, start + record.SYS_FLAG_AT, sys_flag)
        write_i64(out, start + record.BORN_TIMESTAMP_AT, fields.born_timestamps[index])
        at = start + record.BORN_HOST_AT
        born_host_size = host_size(sys_flag, record.BORN_HOST_V6_FLAG)
        copy_bytes(out, at, fields.born_hosts, fields.born_host_starts[index], born_host_size)
        at += born_host_size
        write_i64(out, at, fields.store_timestamps[index])
        at += record.TIMESTAMP_SIZE
        store_host_size = host_size(sys_flag, record.STORE_HOST_V6_FLAG)
        copy_bytes(out, at, fields.store_hosts, fields.store_host_starts[index], store_host_size)
        at += store_host_size
        write_i32(out, at, fields.reconsume_times[index])
        write_i64(out, at + 4, fields.prepared_transaction_offsets[index])
        bodies = fields.stored_bodies if fields.has_stored_body[index] else fields.bodies
        length = max(int(bodies.lengths[index]), 0)
        write_i32(out, at + 12, length)
        at += 16
        copy_bytes(out, at, bodies.buffer, bodies.starts[index], length)
        body_crc = crc32(out, at, length) & CRC_MASK
        if fields.has_body_crc[index]:
            if length > 0 and body_crc != fields.body_crcs[index] and first_wrong == NONE_WRONG:
                first_wrong = index
            body_crc = int(fields.body_crcs[index])
        write_i32(out, start + record.BODY_CRC_AT, body_crc)
        at += length
        length = int(fields.topics.lengths[index])
        if fields.is_v2[index]:
            out[at] = length >> 8 & 0xFF
            at += 1
        out[at] = length & 0xFF
        copy_bytes(out, at + 1, fields.topics.buffer, fields.topics.starts[index], length)
        at += 1 + length
        length = max(int(fields.properties.lengths[index]), 0)
        out[at] = length >> 8 & 0xFF
        out[at + 1] = length & 0xFF
        copy_bytes(out, at + 2, fields.properties.buffer, fields.properties.starts[index], length)
    return first_wrong


@kernel
def renew_property_crcs(data: OutBytes, positions: Int64s, renewed: Flags) -> None:
    """Compute the property CRC again of each record at `positions` that has one and of which `renewed` is set."""
    for index in range(positions.size):
        if renewed[index]:
            renew_property_crc(data, positions[index])


BATCH_MESSAGE_OVERHEAD = 22
"""The bytes of a message in the body of a batch, without its body and its properties."""


@kernel
def write_batch(buffer: Bytes, frames: Frames, rows: Int64s, out: OutBytes) -> None:
    """Write the messages of some records as the body of a batch (`MessageDecoder.encodeMessage`@5.3.3)."""
    at = 0
    for row in rows:
        frame = frames[row]
        size = BATCH_MESSAGE_OVERHEAD + frame.body_length + frame.properties_length
        write_i32(out, at, size)
        write_i32(out, at + 4, 0)
        write_i32(out, at + 8, 0)
        write_i32(out, at + 12, read_i32(buffer, frame.position + record.FLAG_AT))
        write_i32(out, at + 16, frame.body_length)
        copy_bytes(out, at + 20, buffer, frame.body_start, frame.body_length)
        properties_at = at + 20 + frame.body_length
        out[properties_at] = frame.properties_length >> 8
        out[properties_at + 1] = frame.properties_length & 0xFF
        copy_bytes(out, properties_at + 2, buffer, frame.properties_start, frame.properties_length)
        at += size
