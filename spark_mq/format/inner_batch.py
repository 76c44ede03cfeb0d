"""The messages of an inner batch: a record of a batch consume queue whose body has several messages.

A producer's batch is one record if its topic has `queue.type=BatchCQ`. A consumer gets its messages one by one
(`MessageDecoder.decodeMessage`@5.3.3): message i has the record's queue offset + i, a body, properties and a flag of
its own, and everything else of the record. The body of the record is one frame after the other:

| at | width | field |
| --- | --- | --- |
| 0 | i32 | size of the frame |
| 4 | i32, i32 | not used |
| 12 | i32 | flag |
| 16 | i32 + n | body |
| | i16 + n | properties |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from spark_mq.format.message_row import Row, message_row
from spark_mq.format.message_schema import CORRUPT_RECORD
from spark_mq.format.record import COMPRESSED_FLAG, INNER_BATCH_FLAG, Record

NEED_UNWRAP_FLAG = 0x40
UNWRAPPED_FLAGS = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
"""The bits of a record whose messages a consumer gets one by one (`PullAPIWrapper`@5.3.3)."""
_HEAD = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")


def consumer_rows(record: Record) -> list[Row]:
    """The rows of the messages that a consumer gets of a record, which are several ones of an inner batch.

    Such a row has neither of the two bits of a batch in `sys_flag`; `store_size`, `commit_log_offset` and
    `offset_message_id` are those of the record. If the body is not a batch, the result is the row of the record, with
    the reason in `_corrupt_record`.
    """
    row = message_row(record)
    if record.sys_flag & UNWRAPPED_FLAGS != UNWRAPPED_FLAGS or row.get(CORRUPT_RECORD) is not None:
        return [row]
    sys_flag = record.sys_flag & ~(UNWRAPPED_FLAGS | COMPRESSED_FLAG)
    rows: list[Row] = []
    try:
        for number, (flag, body, properties) in enumerate(_frames(row["body"])):
            message = replace(
                record,
                queue_offset=record.queue_offset + number,
                flag=flag,
                body=body,
                properties=properties,
                sys_flag=sys_flag,
                body_crc=None,
            )
            rows.append({**message_row(message), "store_size": record.size})
    except (ValueError, struct.error) as error:
        return [{**row, CORRUPT_RECORD: f"BAD_INNER_BATCH: the body is not a batch of messages: {error}"}]
    return rows


def _frames(body: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Flag, body and properties of each message."""
    position = 0
    while position < len(body):
        size, _, _, flag, body_length = _HEAD.unpack_from(body, position)
        after_body = position + _HEAD.size + body_length
        if body_length < 0 or after_body + _LENGTH.size > len(body):
            raise ValueError(f"a body of {body_length} bytes at byte {position}")
        (properties_length,) = _LENGTH.unpack_from(body, after_body)
        end = after_body + _LENGTH.size + properties_length
        if properties_length < 0 or end != position + size or end > len(body):
            raise ValueError(f"a message of {size} bytes at byte {position}")
        yield flag, body[position + _HEAD.size : after_body], body[after_body + _LENGTH.size : end]
        position = end
