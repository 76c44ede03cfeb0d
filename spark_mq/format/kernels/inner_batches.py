"""The messages of inner batches, as kernels.

`spark_mq.format.message_row` describes the body of such a record, and is the twin for one record. A message has
everything of the record of its batch, except its queue offset, flag, body, body CRC and properties, and without the
bits of a batch and of a compressed body. Its frame leads to the record and into the record's body: nothing is copied.

A broker writes the queue offset of an inner batch into its property INNER_BASE, as decimal digits, before it encodes
the record (`BatchConsumeQueue.assignQueueOffset`@5.3.3). So a record with another queue offset can have another size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutBytes, OutFlags, OutInt32s, OutInt64s
from spark_mq.format.kernels.batches import message_batches
from spark_mq.format.kernels.big_endian import copy_bytes, read_i16, read_i32, read_i64, write_i32
from spark_mq.format.kernels.columns import MessageColumns, is_compressed
from spark_mq.format.kernels.crc import crc32
from spark_mq.format.kernels.frames import Frames, new_frames, read_frames_at
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.kernels.properties import find_value
from spark_mq.format.properties import INNER_BASE
from spark_mq.format.record import (
    BODY_CRC_AT,
    COMPRESSED_FLAG,
    CRC_MASK,
    INNER_BATCH_FLAG,
    QUEUE_OFFSET_AT,
    UNWRAPPED_FLAGS,
)

_CLEARED = ~(UNWRAPPED_FLAGS | COMPRESSED_FLAG)
_HEAD_SIZE, _MIN_SIZE = 20, 22
"""Bytes before the body of a message in a batch: its size, two numbers that are not used, flag, length of the body;
and the bytes of a message that has neither body nor properties."""
_FLAG_AT, _BODY_LENGTH_AT = 12, 16
_MOST_RECORDS = 4096
_INNER_BASE, _ZERO = np.frombuffer(INNER_BASE, np.uint8), ord("0")


def needs_unwrap(frames: Frames) -> Flags:
    """Which records have several messages, that a consumer gets one by one (`PullAPIWrapper`@5.3.3)."""
    found: Flags = frames.sys_flag & UNWRAPPED_FLAGS == UNWRAPPED_FLAGS
    return found


def inner_messages(buffer: Bytes, frames: Frames, columns: Collection[str]) -> tuple[list[MessageColumns], Flags]:
    """The messages of inner batches; and which batches cannot be read.

    The frame of a message has the places of everything that all messages of its batch share, also its size.
    """
    is_left, parts, first = np.empty(frames.size, np.bool_), list[MessageColumns](), 0
    has_crc = "body_crc" in columns
    for batch, data, starts, ends in _bodies(buffer, frames):
        most = int((ends - starts).sum()) // _MIN_SIZE
        found, body_crcs = new_frames(most), np.empty(most if has_crc else 0, np.int32)
        queue_offsets, flags, left = np.empty(most, np.int64), np.empty(most, np.int32), is_left[first:]
        count = _unwrap(data, batch, starts, ends, has_crc, left, found, queue_offsets, flags, body_crcs)
        first += batch.size
        fields: dict[str, Int32s | Int64s] = {"queue_offset": queue_offsets[:count], "flag": flags[:count]}
        if has_crc:
            fields["body_crc"] = body_crcs[:count]
        parts.append(MessageColumns(data, found[:count], fields=fields))
    return parts, is_left


def _bodies(buffer: Bytes, frames: Frames) -> Iterator[tuple[Frames, Bytes, Int64s, Int64s]]:
    """Some batches at a time; the bytes of their records and bodies; where these begin (-1: unreadable) and end."""
    if not is_compressed(frames).any():
        yield frames, buffer, frames.body_start, frames.body_start + frames.body_length
        return
    for messages in message_batches(buffer, frames, ["body"], _MOST_RECORDS):
        bodies = messages.column("body")
        _, offsets, content = bodies.buffers()
        starts = np.frombuffer(offsets, np.int32, bodies.offset + len(bodies) + 1)[bodies.offset :].astype(np.int64)
        starts += buffer.size
        begins = np.where(bodies.is_valid().to_numpy(zero_copy_only=False), starts[:-1], -1)
        data: Bytes = np.concatenate([buffer, np.frombuffer(content or b"", np.uint8)])
        yield messages.frames, data, begins, starts[1:]


@kernel
def _after(data: Bytes, position: int, end: int) -> int:
    """The position after the message of a batch at `position`; -1 if no message of a batch is there."""
    if end - position < _MIN_SIZE:
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
def _unwrap(
    data: Bytes,
    frames: Frames,
    starts: Int64s,
    ends: Int64s,
    has_crc: bool,
    is_left: OutFlags,
    found: Frames,
    queue_offsets: OutInt64s,
    flags: OutInt32s,
    body_crcs: OutInt32s,
) -> int:
    """Write which batches cannot be read, and the messages of the others, whose number is returned.

    A body is in the processor's cache when its CRC was computed: then its messages are followed.
    """
    count = 0
    for index in range(frames.size):
        frame, position, row = frames[index], starts[index], count
        body_length = int(frame.body_length)
        crc = crc32(data, frame.body_start, body_length) & CRC_MASK
        if body_length > 0 and crc != read_i32(data, frame.position + BODY_CRC_AT):
            position = -1
        queue_offset = read_i64(data, frame.position + QUEUE_OFFSET_AT)
        while 0 <= position < ends[index]:
            after = _after(data, position, ends[index])
            if after >= 0:
                message, length = found[row], read_i32(data, position + _BODY_LENGTH_AT)
                message.position, message.store_size = frame.position, frame.store_size
                message.sys_flag = int(frame.sys_flag) & _CLEARED
                message.store_timestamp_at = frame.store_timestamp_at
                message.store_host_at, message.after_hosts_at = frame.store_host_at, frame.after_hosts_at
                message.topic_start, message.topic_length = frame.topic_start, frame.topic_length
                message.body_start, message.body_length = position + _HEAD_SIZE, length
                message.properties_start = position + _HEAD_SIZE + length + 2
                message.properties_length = after - int(message.properties_start)
                queue_offsets[row] = queue_offset + row - count
                flags[row] = read_i32(data, position + _FLAG_AT)
                if has_crc:
                    body_crcs[row] = crc32(data, position + _HEAD_SIZE, length) & CRC_MASK
                row += 1
            position = after
        is_left[index] = position < 0
        if position >= 0:
            count = row
    return count


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
