"""Rows become the bytes of records: columns of `messages` in, what a broker would append out; with unique keys.

Importing this module imports numba; a driver that only checks columns uses `source_columns.check_columns`.

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
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s
from spark_mq.format.consume_queue import Queue
from spark_mq.format.kernels.encode import NONE_WRONG, RecordFields, encode_records, renew_property_crcs
from spark_mq.format.message_id import parse_host
from spark_mq.format.message_schema import CORRUPT_RECORD, MAX_TIMESTAMP_MILLIS
from spark_mq.format.pieces import Pieces, no_pieces
from spark_mq.format.record import (
    BORN_HOST_V6_FLAG,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    INNER_BATCH_FLAG,
    MAX_RECORD_SIZE,
    STORE_HOST_V6_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_TYPE_MASK,
)
from spark_mq.restorer.encoding_rules import DEFAULT_BORN_HOST, DEFAULT_STORE_HOST, EncodingRules
from spark_mq.restorer.properties_column import count_dispatched, read_properties
from spark_mq.restorer.record_columns import Hosts, number_queues, one_host, read_bodies, read_hosts, read_topics
from spark_mq.restorer.source_columns import SourceColumns, check_columns

_SIZE = 16
_DIGITS = 2 * _SIZE
_BLOCK_BITS = 16
_LOCAL_ADDRESS = b"\x7f\x00\x00\x01"
UNKNOWN = -1
"""An offset that a row does not have."""

_MIN_INT32, _MAX_INT32 = -(1 << 31), (1 << 31) - 1
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_MAX_COMMIT_LOG_OFFSET = _MAX_INT64 - MAX_RECORD_SIZE
_MAX_QUEUE_OFFSET = 1 << 58
"""20 bytes for each unit, a file position still fits 64 bits."""
_MAX_V1_TOPIC = 127
_EXACT_COLUMNS = ("properties_bytes", "stored_body", "born_host", "store_host", "sys_flag")
"""The columns without which a record can have another size than it had."""


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


@dataclass(frozen=True)
class EncodedMessages:
    """Records, in the order of their rows, and what decides about their places.

    Attributes:
        data: The bytes of all records, one after the other.
        positions: Where each record starts in `data`.
        sizes: The bytes of each record.
        commit_log_offsets: The commit log offset of each row; `UNKNOWN` if it has none.
        old_queue_offsets: The queue offset of each row; `UNKNOWN` if it has none.
        store_timestamps: The store time of each record, in milliseconds since the epoch.
        queue_numbers: The number of each record's queue in `queues`.
        queues: The topic and the queue id of each distinct queue.
        dispatched: How many units the messages have in other queues, which they name, by queue.
    """

    data: Bytes
    positions: Int64s
    sizes: Int32s
    commit_log_offsets: Int64s
    old_queue_offsets: Int64s
    store_timestamps: Int64s
    queue_numbers: Int32s
    queues: tuple[Queue, ...]
    dispatched: Counter[Queue]


def encode_messages(
    batch: pa.RecordBatch, rules: EncodingRules, partition: int = 0, first_row: int = 0
) -> EncodedMessages:
    """The records of the rows of a batch.

    The columns are those of tables `messages` (`format/message_schema.py`) and of an archive. Only `topic` is needed.
    A row *was in a store* if it has a commit log offset: then its values may be what only a store can have.

    | value | comes from |
    | --- | --- |
    | properties | `properties_bytes`; else `properties`, and `tags`, `keys`, `unique_key` if the map lacks them |
    | unique key | made if a row that was in no store has none, nor `properties_bytes`; see `unique_keys` |
    | body | `stored_body` or `encoded_body`; else `body`, of which the bits of compression are cleared |
    | body CRC | `body_crc` if the stored body, or a faithful message, is written; else computed |
    | times | `*_timestamp_millis`; else `*_timestamp`; else the store time, which is by default `rules.now` |
    | version | V1, or V2 if a topic has more than 127 bytes; of a faithful message the one that fits `store_size` |
    | offsets, also of a prepared transaction | the row's if the message is faithful; else 0 |

    Args:
        rules: How rows become records.
        partition: The number of the partition that contains the rows. With `first_row`, it decides about unique keys.
        first_row: The number of the batch's first row in its partition.
    """
    check_columns(batch.schema, rules.is_faithful)
    columns = SourceColumns(batch, first_row)
    _check_damage(columns)
    if rules.is_faithful:
        _check_offsets(columns)
    commit_log_offsets = columns.numbers("commit_log_offset", 0, _MAX_COMMIT_LOG_OFFSET, UNKNOWN)
    queue_offsets = columns.numbers("queue_offset", 0, _MAX_QUEUE_OFFSET, UNKNOWN)
    is_from_source: Flags = commit_log_offsets >= 0
    topics = read_topics(columns, rules, is_from_source)
    queue_ids = columns.numbers("queue_id", 0, _MAX_INT32 - 1).astype(np.int32)
    queue_numbers, queues = number_queues(topics, queue_ids)
    sys_flags = _sys_flags(columns)
    bodies = read_bodies(columns, rules, sys_flags, _int32s(columns, "body_crc"), is_from_source)
    store_timestamps = _times(columns, "store_timestamp", 1, is_from_source, np.int64(rules.now))
    born_timestamps = _times(columns, "born_timestamp", 0, is_from_source, store_timestamps)
    was_v6 = sys_flags & BORN_HOST_V6_FLAG != 0
    born_hosts = read_hosts(columns, "born_host", DEFAULT_BORN_HOST, was_v6, is_from_source)
    store_hosts = _store_hosts(columns, rules, sys_flags & STORE_HOST_V6_FLAG != 0, is_from_source)
    made_keys = _made_keys(rules, partition, first_row, born_timestamps, is_from_source)
    prepared_offsets = columns.numbers("prepared_transaction_offset", _MIN_INT64, _MAX_INT64)
    zeros = np.broadcast_to(np.int64(0), columns.size)
    properties = read_properties(columns, rules, made_keys)
    fields = RecordFields(
        is_v2=topics.pieces.lengths > _MAX_V1_TOPIC,
        queue_ids=queue_ids,
        flags=_int32s(columns, "flag"),
        queue_offsets=queue_offsets if rules.is_faithful else zeros,
        commit_log_offsets=commit_log_offsets if rules.is_faithful else zeros,
        sys_flags=_with_host_bits(bodies.sys_flags, born_hosts, store_hosts),
        born_timestamps=born_timestamps,
        born_hosts=born_hosts.buffer,
        born_host_starts=born_hosts.starts,
        store_timestamps=store_timestamps,
        store_hosts=store_hosts.buffer,
        store_host_starts=store_hosts.starts,
        reconsume_times=_int32s(columns, "reconsume_times"),
        prepared_transaction_offsets=prepared_offsets if rules.is_faithful else zeros,
        bodies=bodies.contents,
        stored_bodies=bodies.stored,
        has_stored_body=bodies.has_stored,
        body_crcs=bodies.body_crcs,
        has_body_crc=bodies.has_body_crc,
        topics=topics.pieces,
        properties=properties,
    )
    data, positions, sizes = _written(columns, rules, fields)
    in_queues = np.flatnonzero(np.isin(sys_flags & TRANSACTION_TYPE_MASK, (0, TRANSACTION_COMMIT_TYPE)))
    return EncodedMessages(
        data,
        positions,
        sizes,
        commit_log_offsets,
        queue_offsets,
        store_timestamps,
        queue_numbers,
        queues,
        count_dispatched(properties.take(in_queues), queue_ids[in_queues]),
    )


def _written(columns: SourceColumns, rules: EncodingRules, fields: RecordFields) -> tuple[Bytes, Int64s, Int32s]:
    """The bytes of the records, where each record starts, and its size."""
    if rules.is_faithful and columns.has("store_size"):
        fields = _with_stored_sizes(columns, rules, fields)
    columns.check(
        fields.is_v2 & (not rules.allows_v2),
        lambda row: (
            f"the record has version 2 and a topic of {fields.topics.lengths[row]} bytes: brokers before 5.1.0 cannot "
            f"read it. Rename a topic of more than {_MAX_V1_TOPIC} bytes (topic map)"
        ),
    )
    sizes = fields.sizes()
    columns.check(sizes > MAX_RECORD_SIZE, lambda row: f"the message takes {sizes[row]} bytes: {MAX_RECORD_SIZE} fit")
    positions = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), np.uint8)
    wrong = encode_records(fields, data, positions)
    if wrong != NONE_WRONG:
        columns.check(
            np.arange(columns.size) == wrong,
            lambda row: (
                f"body_crc {fields.body_crcs[row]} is not the CRC of the body: leave out column body_crc "
                "if bodies were changed"
            ),
        )
    renew_property_crcs(data, positions, _is_changed(columns, rules))
    return data, positions, sizes.astype(np.int32)


def _check_damage(columns: SourceColumns) -> None:
    reasons = columns.pieces(CORRUPT_RECORD)
    columns.check(
        reasons.is_given(),
        lambda row: (
            f"the row is damaged ({reasons.piece(row)[:200].decode('utf-8', 'replace')!r}), and damage cannot be "
            f"restored: leave out the rows of which {CORRUPT_RECORD} is not NULL"
        ),
    )


def _check_offsets(columns: SourceColumns) -> None:
    for name in ("commit_log_offset", "queue_offset"):
        columns.check(
            ~columns.is_given(name),
            f"{name} is NULL, so the message cannot keep it: give messages new offsets (renumber)",
        )


def _int32s(columns: SourceColumns, name: str) -> Int32s:
    numbers: Int32s = columns.numbers(name, _MIN_INT32, _MAX_INT32).astype(np.int32)
    return numbers


def _sys_flags(columns: SourceColumns) -> Int32s:
    """The sysFlags of the rows. Plain queues have no inner batch (`HookUtils.checkInnerBatch`@5.3.3)."""
    sys_flags = _int32s(columns, "sys_flag")
    columns.check(
        sys_flags & INNER_BATCH_FLAG != 0,
        "the message is a batch of several messages (bit 0x80 of sys_flag) of a topic with batch consume queues, which "
        "are not written, so no consumer would get it: leave such rows out (sys_flag & 128 = 0)",
    )
    return sys_flags


def _times(
    columns: SourceColumns, name: str, earliest: int, is_from_source: Flags, default: Int64s | np.int64
) -> Int64s:
    """The times of a column in milliseconds. Those of rows that were in no store are not before `earliest`."""
    values, given = columns.millis(name, _MIN_INT64, _MAX_INT64)
    outside = (values < earliest) | (values > MAX_TIMESTAMP_MILLIS)
    columns.check(
        outside & given & ~is_from_source,
        lambda row: f"{name} is {values[row]} milliseconds, which is not a time from 1970 to 9999",
    )
    return np.where(given, values, default)


def _store_hosts(columns: SourceColumns, rules: EncodingRules, was_v6: Flags, is_from_source: Flags) -> Hosts:
    if rules.store_host is not None:
        return one_host(rules.store_host, columns.size)
    return read_hosts(columns, "store_host", DEFAULT_STORE_HOST, was_v6, is_from_source)


def _with_host_bits(sys_flags: Int32s, born_hosts: Hosts, store_hosts: Hosts) -> Int32s:
    bits = np.where(born_hosts.is_v6, BORN_HOST_V6_FLAG, 0) | np.where(store_hosts.is_v6, STORE_HOST_V6_FLAG, 0)
    flags: Int32s = (sys_flags & ~(BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG) | bits).astype(np.int32)
    return flags


def _made_keys(
    rules: EncodingRules, partition: int, first_row: int, born_timestamps: Int64s, is_from_source: Flags
) -> Pieces:
    """The unique keys of the rows that were in no store."""
    if is_from_source.all():
        return no_pieces(is_from_source.size)
    store_host = parse_host(rules.store_host or DEFAULT_STORE_HOST)
    times = np.clip(born_timestamps, 0, MAX_TIMESTAMP_MILLIS)
    keys = make_unique_keys(store_host, rules.now, partition, first_row, times)
    return Pieces(keys.buffer, keys.starts, np.where(is_from_source, -1, keys.lengths).astype(np.int32))


def _with_stored_sizes(columns: SourceColumns, rules: EncodingRules, fields: RecordFields) -> RecordFields:
    """The fields with the versions that give the records the sizes that they had."""
    had = columns.numbers("store_size", 0, _MAX_INT32)
    given = columns.is_given("store_size")
    sizes_of_v1 = fields.sizes() - fields.is_v2
    is_v2 = np.where(given, had == sizes_of_v1 + 1, fields.is_v2)
    sizes = sizes_of_v1 + is_v2
    columns.check(
        given & ((sizes != had) | (~is_v2 & (fields.topics.lengths > _MAX_V1_TOPIC))),
        lambda row: (
            f"the message would take {sizes[row]} bytes, but took {had[row]} (store_size): "
            f"{_what_changed(columns, rules, int(sizes[row] - had[row]))}, or give messages new offsets (renumber)"
        ),
    )
    return replace(fields, is_v2=is_v2)


def _what_changed(columns: SourceColumns, rules: EncodingRules, more: int) -> str:
    """Why a message takes `more` bytes than in its source, and what to do."""
    if rules.store_host is not None and abs(more) == HOST_V6_SIZE - HOST_V4_SIZE:
        old, new = ("IPv4", "IPv6") if more > 0 else ("IPv6", "IPv4")
        return f"store host {rules.store_host} is an {new} address, and the source has an {old} one: give one of these"
    missing = [name for name in _EXACT_COLUMNS if not columns.has(name)]
    if not missing:
        return "a value was changed: restore the values of the source"
    return f"columns {', '.join(missing)} are missing, which have its exact bytes: read them, too"


def _is_changed(columns: SourceColumns, rules: EncodingRules) -> Flags:
    """Which records have other bytes than their source, so that their property CRC is computed again."""
    if rules.is_faithful and rules.store_host is None:
        return ~columns.is_given("properties_bytes")
    return np.ones(columns.size, np.bool_)
