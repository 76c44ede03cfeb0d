"""From single records to rows: the columns of messages in plain Python, for a few messages.

The twin `kernels.columns` computes the same values for many records; tests compare the two. This module imports no
numba: a point look-up that prints one message must not wait for that import.

The body of an inner batch, a record of a batch consume queue, has several messages. A consumer gets them one by one
(`MessageDecoder.decodeMessage`@5.3.3): message i has the record's queue offset + i, a body, properties and a flag of
its own, and everything else of the record. The body is one frame after the other:

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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_mq.format.arrow_array import table_of
from spark_mq.format.compression import decompress_or_reason
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import V4_MAPPED, encode_offset_message_id
from spark_mq.format.message_schema import CORRUPT_RECORD, MESSAGE_SCHEMA
from spark_mq.format.properties import KEYS, TAGS, UNIQUE_KEY, parse_properties
from spark_mq.format.record import COMPRESSED_FLAG, TRANSACTION_TYPE_NAMES, UNWRAPPED_FLAGS, Record
from spark_mq.format.timestamp import micros, of_micros

Row = dict[str, Any]
"""Values by column name; a column that the row lacks is NULL. Timestamps are microseconds since the epoch."""

_HEAD = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")
_PORT = struct.Struct(">i")
_IPV6_GROUPS = struct.Struct(">8H")
_IPV4_SIZE = 4


def message_row(record: Record) -> Row:
    """The row of one message: the columns of `MESSAGE_SCHEMA` and of `EXTRA_MESSAGE_SCHEMA`."""
    properties = parse_properties(record.properties)
    repaired = parse_properties(decode_utf8(record.properties).encode("utf-8"))
    keys = properties.get(KEYS)
    row: Row = {
        "commit_log_offset": record.commit_log_offset,
        "store_size": record.size,
        "offset_message_id": encode_offset_message_id(record.store_host, record.commit_log_offset),
        "topic": decode_utf8(record.topic),
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "tags": _text(properties.get(TAGS)),
        "keys": None if keys is None else [decode_utf8(key) for key in keys.split(b" ") if key],
        "unique_key": _text(properties.get(UNIQUE_KEY)),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "transaction_type": TRANSACTION_TYPE_NAMES[record.transaction_type >> 2],
        "born_timestamp": micros(record.born_timestamp),
        "born_host": host_text(record.born_host),
        "store_timestamp": micros(record.store_timestamp),
        "store_host": host_text(record.store_host),
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_crc": record.body_crc,
        "body": record.body,
        "properties": [(name.decode("utf-8"), value.decode("utf-8")) for name, value in repaired.items()],
        "born_timestamp_millis": record.born_timestamp,
        "store_timestamp_millis": record.store_timestamp,
        "properties_bytes": record.properties,
        "stored_body": record.body,
    }
    if record.sys_flag & COMPRESSED_FLAG and record.body:
        row["encoded_body"] = record.body
        row["body"], row[CORRUPT_RECORD] = decompress_or_reason(record.body, record.sys_flag)
    return row


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


def plain_row(record: Record) -> Row:
    """The columns of `MESSAGE_SCHEMA` of one message as values of Python: datetimes in UTC, and a dictionary."""
    row = message_row(record)
    for name in ("born_timestamp", "store_timestamp"):
        row[name] = None if row[name] is None else of_micros(row[name])
    row["properties"] = dict(row["properties"])
    return {name: row.get(name) for name in MESSAGE_SCHEMA.names}


def corrupt_row(commit_log_offset: int | None, store_size: int | None, reason: str) -> Row:
    """The row of a corrupt range of the log.

    Args:
        commit_log_offset: The offset at which the range starts; None for a file without an offset.
        store_size: The length of the range in bytes; None if the column cannot have it.
        reason: The code and text for column `_corrupt_record`.
    """
    return {"commit_log_offset": commit_log_offset, "store_size": store_size, CORRUPT_RECORD: reason}


def message_table(rows: Sequence[Row], schema: pa.Schema = MESSAGE_SCHEMA) -> pa.Table:
    """The rows as a table of `schema`, whose columns are columns of messages."""
    return table_of(rows, schema)


def host_text(host: bytes) -> str:
    """A stored host as `address:port`; an IPv6 address is in brackets, with all its eight groups, as Java prints it.

    As in `InetAddress.getByAddress`, an IPv4-mapped address is an IPv4 address.

    Examples:
        >>> host_text(bytes([127, 0, 0, 1, 0, 0, 42, 159]))
        '127.0.0.1:10911'
    """
    (port,) = _PORT.unpack(host[-_PORT.size :])
    address = host[: -_PORT.size]
    if address.startswith(V4_MAPPED):
        address = address[len(V4_MAPPED) :]
    if len(address) == _IPV4_SIZE:
        return f"{'.'.join(map(str, address))}:{port}"
    groups = _IPV6_GROUPS.unpack(address)
    return f"[{':'.join(f'{group:x}' for group in groups)}]:{port}"


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


def _text(value: bytes | None) -> str | None:
    return None if value is None else decode_utf8(value)
