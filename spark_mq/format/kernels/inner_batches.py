"""The messages of inner batches as records of their own, as kernels.

`spark_mq.format.message_row` describes the body of such a record, and is the twin for one record. A message becomes a
record with everything of the record of its batch, except its queue offset, flag, body, body CRC and properties, and
without the bits of a batch and of a compressed body. So what reads records reads these messages.

A broker writes the queue offset of an inner batch into its property INNER_BASE, as decimal digits, before it encodes
the record (`BatchConsumeQueue.assignQueueOffset`@5.3.3). So a record with another queue offset can have another size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutBytes, OutInt32s, OutInt64s
from spark_mq.format.kernels.batches import message_batches
from spark_mq.format.kernels.big_endian import (
    SLACK,
    append_bytes,
    copy_bytes,
    read_i16,
    read_i32,
    read_i64,
    write_i32,
    write_i64,
)
from spark_mq.format.kernels.columns import is_compressed
from spark_mq.format.kernels.crc import crc32
from spark_mq.format.kernels.frames import Frames, new_frames, read_frames_at
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.kernels.properties import find_value
from spark_mq.format.properties import INNER_BASE
from spark_mq.format.record import (
    BODY_CRC_AT,
    COMPRESSED_FLAG,
    CRC_MASK,
    FLAG_AT,
    INNER_BATCH_FLAG,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    UNWRAPPED_FLAGS,
)

_CLEARED = ~(UNWRAPPED_FLAGS | COMPRESSED_FLAG)
_HEAD_SIZE = 20
"""Bytes before the body of a message in a batch: its size, two numbers that are not used, flag, length of the body."""
_FLAG_AT, _BODY_LENGTH_AT = 12, 16
_MOST_RECORDS = 4096
_OF_BODY = frozenset(("body", "stored_body"))
"""The columns that are bytes of the body; `encoded_body` is NULL."""
_INNER_BASE, _ZERO = np.frombuffer(INNER_BASE, np.uint8), ord("0")


def needs_unwrap(frames: Frames) -> Flags:
    """Which records have several messages, that a consumer gets one by one (`PullAPIWrapper`@5.3.3)."""
    found: Flags = frames.sys_flag & UNWRAPPED_FLAGS == UNWRAPPED_FLAGS
    return found


def inner_messages(buffer: Bytes, frames: Frames, columns: Collection[str]) -> tuple[list[tuple[Bytes, Frames]], Flags]:
    """The messages of inner batches, as records in other arrays; and which batches cannot be read.

    The size in the frame of a message is that of its batch, as in column `store_size`. The messages have a body, and a
    body CRC, only if one of `columns` needs it.
    """
    is_left, parts, first = np.empty(frames.size, np.bool_), list[tuple[Bytes, Frames]](), 0
    has_body, has_crc = not _OF_BODY.isdisjoint(columns), "body_crc" in columns
    for batch, data, starts, ends in _bodies(buffer, frames):
        counts = np.zeros(batch.size, np.int32)
        size = _measure(buffer, batch, data, starts, ends, has_body, counts)
        is_left[first : first + batch.size] = counts < 0
        first += batch.size
        out, found = np.empty(size + SLACK, np.uint8), new_frames(int(counts[counts > 0].sum()))
        _write(buffer, batch, data, starts, counts, has_body, has_crc, out, found)
        parts.append((out, found))
    return parts, is_left


def _bodies(buffer: Bytes, frames: Frames) -> Iterator[tuple[Frames, Bytes, Int64s, Int64s]]:
    """Some batches at a time, and where their bodies begin and end; -1 for one that cannot be decompressed."""
    if not is_compressed(frames).any():
        for first in range(0, frames.size, _MOST_RECORDS):
            batch = frames[first : first + _MOST_RECORDS]
            yield batch, buffer, batch.body_start, batch.body_start + batch.body_length
        return
    for messages in message_batches(buffer, frames, ["body"], _MOST_RECORDS):
        bodies = messages.column("body")
        _, offsets, content = bodies.buffers()
        starts = np.frombuffer(offsets, np.int32, bodies.offset + len(bodies) + 1)[bodies.offset :].astype(np.int64)
        begins = np.where(bodies.is_valid().to_numpy(zero_copy_only=False), starts[:-1], -1)
        yield messages.frames, np.frombuffer(content or b"", np.uint8), begins, starts[1:]


@kernel
def _after(data: Bytes, position: int, end: int) -> int:
    """The position after the message of a batch at `position`; -1 if no message of a batch is there."""
    if end - position < _HEAD_SIZE + 2:
        return -1
    body_length = read_i32(data, position + _BODY_LENGTH_AT)
    if body_length < 0 or body_length > end - position - _HEAD_SIZE - 2:
        return -1
    properties_length = read_i16(data, position + _HEAD_SIZE + body_length)
    after = position + _HEAD_SIZE + body_length + 2 + properties_length
    if properties_length < 0 or after > end or read_i32(data, position) != after - position:
        return -1
    return after


@kernel
def _measure(
    buffer: Bytes, frames: Frames, data: Bytes, starts: Int64s, ends: Int64s, has_body: bool, counts: OutInt32s
) -> int:
    """Write the number of messages of each batch, or -1, to `counts`; returns the bytes of all records.

    A body is in the processor's cache when its CRC was computed: then its messages are followed.
    """
    total = 0
    for index in range(frames.size):
        frame, position, size = frames[index], starts[index], 0
        body_length = int(frame.body_length)
        crc = crc32(buffer, frame.body_start, body_length) & CRC_MASK
        if body_length > 0 and crc != read_i32(buffer, frame.position + BODY_CRC_AT):
            position = -1
        # What a record has besides the body and properties of a message: its fields, its topic, two lengths.
        own = frame.properties_start - frame.position - body_length
        while 0 <= position < ends[index]:
            after = _after(data, position, ends[index])
            if after >= 0:
                size += own + after - position - _HEAD_SIZE - 2
                size -= 0 if has_body else read_i32(data, position + _BODY_LENGTH_AT)
            counts[index] += 1
            position = after
        if position < 0:
            counts[index] = -1
        else:
            total += size
    return total


@kernel
def _write(
    buffer: Bytes,
    frames: Frames,
    data: Bytes,
    starts: Int64s,
    counts: Int32s,
    has_body: bool,
    has_crc: bool,
    out: OutBytes,
    found: Frames,
) -> None:
    """Write the records of all messages to `out`, their frames to `found`."""
    at = row = 0
    for index in range(frames.size):
        frame, position = frames[index], starts[index]
        start, head = int(frame.position), int(frame.body_start - frame.position)
        topic_part = int(frame.properties_start - frame.body_start - frame.body_length) - 2
        sys_flag = int(frame.sys_flag) & _CLEARED
        for number in range(counts[index]):
            body_length = read_i32(data, position + _BODY_LENGTH_AT)
            properties_at = position + _HEAD_SIZE + body_length
            properties_length = read_i16(data, properties_at)
            topic_at = at + head + (body_length if has_body else 0)
            append_bytes(out, at, buffer, start, head)
            append_bytes(out, at + head, data, position + _HEAD_SIZE, topic_at - at - head)
            append_bytes(out, topic_at, buffer, int(frame.body_start) + int(frame.body_length), topic_part)
            append_bytes(out, topic_at + topic_part, data, properties_at, 2 + properties_length)
            size = head + body_length + topic_part + 2 + properties_length
            write_i32(out, at, size)
            crc = crc32(data, position + _HEAD_SIZE, body_length) & CRC_MASK if has_crc else 0
            write_i32(out, at + BODY_CRC_AT, crc)
            write_i32(out, at + FLAG_AT, read_i32(data, position + _FLAG_AT))
            write_i64(out, at + QUEUE_OFFSET_AT, read_i64(buffer, start + QUEUE_OFFSET_AT) + number)
            write_i32(out, at + SYS_FLAG_AT, sys_flag)
            write_i32(out, at + head - 4, body_length)
            message = found[row]
            message.position, message.store_size, message.sys_flag = at, frame.store_size, sys_flag
            message.store_timestamp_at = at + frame.store_timestamp_at - start
            message.store_host_at = at + frame.store_host_at - start
            message.after_hosts_at = at + frame.after_hosts_at - start
            message.body_start, message.body_length = at + head, body_length
            message.topic_start = topic_at + topic_part - frame.topic_length
            message.topic_length = frame.topic_length
            message.properties_start = topic_at + topic_part + 2
            message.properties_length = properties_length
            position = properties_at + 2 + properties_length
            at = topic_at + topic_part + 2 + properties_length
            row += 1


def put_bases(data: Bytes, starts: Int64s, queue_offsets: Int64s) -> tuple[Bytes, Int32s]:
    """Records with new queue offsets in INNER_BASE, where they are inner batches, and the sizes of all.

    The records follow each other, and do not have commit log offsets yet.
    """
    frames, sizes = new_frames(queue_offsets.size), np.empty(queue_offsets.size, np.int32)
    read_frames_at(data, starts[:-1], np.zeros(queue_offsets.size, np.int64), np.diff(starts), frames)
    ends, lengths = np.empty(queue_offsets.size, np.int64), np.empty(queue_offsets.size, np.int32)
    _measure_bases(data, frames, queue_offsets, ends, lengths, sizes)
    out = np.empty(int(sizes.sum(dtype=np.int64)), np.uint8)
    _put_bases(data, frames, queue_offsets, ends, lengths, sizes, out)
    return out, sizes


@kernel
def _measure_bases(
    data: Bytes, frames: Frames, queue_offsets: Int64s, base_ends: OutInt64s, base_lengths: OutInt32s, sizes: OutInt32s
) -> None:
    """Write where INNER_BASE ends in each record, its digits, and the new size; another record has none."""
    for index in range(frames.size):
        frame = frames[index]
        base_ends[index], base_lengths[index] = frame.position + int(frame.store_size), 0
        sizes[index] = int(frame.store_size)
        if int(frame.sys_flag) & INNER_BATCH_FLAG:
            start, length = find_value(data, frame.properties_start, int(frame.properties_length), _INNER_BASE)
            digits, rest = 1, queue_offsets[index] // 10
            while rest > 0:
                digits, rest = digits + 1, rest // 10
            base_ends[index], base_lengths[index] = start + length, length
            sizes[index] += digits - length


@kernel
def _put_bases(
    data: Bytes,
    frames: Frames,
    queue_offsets: Int64s,
    base_ends: Int64s,
    base_lengths: Int32s,
    sizes: Int32s,
    out: OutBytes,
) -> None:
    at = 0
    for index in range(frames.size):
        frame = frames[index]
        position, old_size, size = int(frame.position), int(frame.store_size), int(sizes[index])
        more = size - old_size
        digits = int(base_lengths[index]) + more
        head = int(base_ends[index]) - int(base_lengths[index]) - position
        copy_bytes(out, at, data, position, head)
        rest = int(queue_offsets[index])
        for place in range(at + head + digits - 1, at + head - 1, -1):
            out[place] = _ZERO + rest % 10
            rest //= 10
        copy_bytes(out, at + head + digits, data, base_ends[index], position + old_size - int(base_ends[index]))
        write_i32(out, at, size)
        length_at = at + int(frame.properties_start) - position - 2
        out[length_at] = int(frame.properties_length) + more >> 8
        out[length_at + 1] = int(frame.properties_length) + more & 0xFF
        at += size
