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
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s
from spark_mq.format.consume_queue import MAX_MESSAGE_COUNT, MAX_QUEUE_OFFSET, Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.encode import NONE_WRONG, RecordFields, encode_records, renew_property_crcs
from spark_mq.format.kernels.gather import gathered
from spark_mq.format.kernels.properties import places_of
from spark_mq.format.kernels.property_writer import (
    ListedPieces,
    PropertyFault,
    PropertySources,
    put_values,
    with_property_crcs,
    write_properties,
)
from spark_mq.format.message_id import parse_host
from spark_mq.format.message_schema import CORRUPT_RECORD, MAX_TIMESTAMP_MILLIS
from spark_mq.format.pieces import Pieces, no_pieces, pieces_of_array, pieces_of_bytes
from spark_mq.format.properties import INNER_BASE, INNER_MULTI_DISPATCH, INNER_NUM, REAL_TOPIC
from spark_mq.format.record import (
    BORN_HOST_V6_FLAG,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    INNER_BATCH_FLAG,
    MAX_RECORD_SIZE,
    MAX_V1_TOPIC,
    STORE_HOST_V6_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_TYPE_MASK,
)
from spark_mq.restorer.record_columns import ChunkRows, RowQueues, read_bodies, read_hosts, read_queues
from spark_mq.restorer.source_columns import (
    DEFAULT_BORN_HOST,
    DEFAULT_STORE_HOST,
    OWN_COLUMNS,
    EncodingRules,
    SourceColumns,
    check_columns,
    is_list,
)
from spark_mq.restorer.waiting_messages import place_waiting

MAX_PROPERTIES_SIZE = 32_767

_TOPIC_PROPERTIES = (REAL_TOPIC, b"RETRY_TOPIC")
_FAULTS = {
    PropertyFault.NAME_SEPARATOR: "the name of a property contains the character 1 or 2, which separates properties",
    PropertyFault.VALUE_SEPARATOR: (
        "a property, a tag or a key contains the character 1 or 2, which separates properties "
        "(column properties_bytes can have such a value)"
    ),
    PropertyFault.EMPTY_NAME: "the name of a property is empty",
    PropertyFault.KEY_WITH_SPACE: "a key in column keys contains a space, which separates keys",
}
_SIZE = 16
_DIGITS = 2 * _SIZE
_BLOCK_BITS = 16
_LOCAL_ADDRESS = b"\x7f\x00\x00\x01"
UNKNOWN = -1
"""An offset that a row does not have."""

_MIN_INT32, _MAX_INT32 = -(1 << 31), (1 << 31) - 1
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_MAX_COMMIT_LOG_OFFSET = _MAX_INT64 - MAX_RECORD_SIZE
_BASE_DIGITS = 19
"""The largest number of digits that INNER_BASE of an inner batch can get."""
_EXACT_COLUMNS = ("properties_bytes", "stored_body", "born_host", "store_host", "sys_flag")
"""The columns without which a record can have another size than it had."""


def read_properties(columns: SourceColumns, rules: EncodingRules, made_keys: Pieces) -> Pieces:
    """The properties of each row: `properties_bytes`, or those of the other columns; and those of `OWN_COLUMNS`."""
    properties = columns.pieces("properties_bytes")
    if not properties.is_given().all():
        properties = _written_properties(columns, properties, made_keys)
    for column, name in OWN_COLUMNS.items():
        values = columns.texts(column)
        columns.check(_has_separator(values), _FAULTS[PropertyFault.VALUE_SEPARATOR])
        properties = put_values(properties, name, values)
    return _with_new_topics(properties, rules.topics) if rules.topics else properties


def _has_separator(values: Pieces) -> Flags:
    """Which values have a character that separates properties."""
    if not values.is_given().any():
        return np.zeros(values.size, np.bool_)
    has_one: Flags = pc.match_substring_regex(gathered(values), "[\x01\x02]").to_numpy(zero_copy_only=False)
    return has_one


def _completed(columns: SourceColumns, rules: EncodingRules, properties: Pieces) -> Pieces:
    """The properties with the property CRC, if the broker adds one."""
    if rules.properties_crc and not rules.is_faithful:
        properties = with_property_crcs(properties)
    has_new_bases = bool(rules.batch_topics) and not rules.is_faithful
    columns.check(
        properties.lengths > MAX_PROPERTIES_SIZE - (_BASE_DIGITS if has_new_bases else 0),
        lambda row: (
            f"the properties have {properties.lengths[row]} bytes: a message can have {MAX_PROPERTIES_SIZE} at most"
        ),
    )
    return properties


def count_dispatched(properties: Pieces, queue_ids: Int32s) -> Counter[Queue]:
    """How often messages name other queues in INNER_MULTI_DISPATCH, by queue.

    A light message queue has id 0, any other one that of the message (`ConsumeQueue.multiDispatchLmqQueue`@5.3.3).
    """
    values = Pieces(properties.buffer, *places_of(properties, INNER_MULTI_DISPATCH))
    rows = np.flatnonzero(values.lengths > 0)
    names = pc.split_pattern(gathered(values.take(rows)), b",")
    queues = pa.table([names.flatten(), pa.array(queue_ids[rows]).take(pc.list_parent_indices(names))], ["name", "id"])
    counts: Counter[Queue] = Counter()
    for row in queues.group_by(["name", "id"]).aggregate([([], "count_all")]).to_pylist():
        topic = decode_utf8(row["name"])
        counts[topic, 0 if topic.startswith(LIGHT_PREFIX) else row["id"]] += row["count_all"]
    return counts


def _written_properties(columns: SourceColumns, stored: Pieces, made_keys: Pieces) -> Pieces:
    names, values = _no_lists(columns.size), no_pieces(0)
    if columns.has("properties"):
        maps, given = columns.array("properties"), columns.is_given("properties")
        names, values = _listed(given, maps.offsets, maps.keys), _listed(given, maps.offsets, maps.items).pieces
    unique_keys = columns.pieces("unique_key")
    sources = PropertySources(
        stored=stored,
        names=names,
        values=values,
        tags=columns.pieces("tags"),
        keys=_keys(columns),
        keys_are_lists=columns.has("keys") and is_list(columns.array("keys").type),
        unique_keys=_first_given(unique_keys, made_keys),
    )
    properties, faults = write_properties(sources)
    columns.check(faults != PropertyFault.NONE, lambda row: _FAULTS[PropertyFault(int(faults[row]))])
    return properties


def _keys(columns: SourceColumns) -> ListedPieces:
    if not columns.has("keys"):
        return _no_lists(columns.size)
    keys = columns.array("keys")
    if is_list(keys.type):
        return _listed(columns.is_given("keys"), keys.offsets, keys.values)
    rows = np.arange(columns.size, dtype=np.int64)
    return ListedPieces(rows, rows + 1, pieces_of_array(keys))


def _listed(given: Flags, offsets: pa.Array, values: pa.Array) -> ListedPieces:
    """The lists of the rows. `values` can have the elements of many more rows."""
    ends = offsets.to_numpy().astype(np.int64)
    start, stop = int(ends[0]), int(ends[-1])
    ends = ends - start
    pieces = pieces_of_array(values.slice(start, stop - start))
    return ListedPieces(ends[:-1], np.where(given, ends[1:], ends[:-1]), pieces)


def _no_lists(count: int) -> ListedPieces:
    zeros = np.zeros(count, np.int64)
    return ListedPieces(zeros, zeros, no_pieces(0))


def _first_given(first: Pieces, second: Pieces) -> Pieces:
    """The pieces of `first`, and those of `second` where `first` has none or an empty one."""
    if not second.is_given().any():
        return first
    is_first = first.lengths > 0
    starts = np.where(is_first, first.starts, second.starts + first.buffer.size)
    lengths = np.where(is_first, first.lengths, second.lengths).astype(np.int32)
    return Pieces(np.concatenate([first.buffer, second.buffer]), starts, lengths)


def _with_new_topics(properties: Pieces, topics: Mapping[str, str]) -> Pieces:
    new_names = {old.encode("utf-8"): new.encode("utf-8") for old, new in topics.items()}
    for name in _TOPIC_PROPERTIES:
        distinct = gathered(Pieces(properties.buffer, *places_of(properties, name))).dictionary_encode()
        found = [new_names.get(value) for value in distinct.dictionary.to_pylist()]
        renamed = pieces_of_array(pa.array(found, pa.binary()))
        properties = put_values(properties, name, renamed.take(distinct.indices.to_numpy()))
    return properties


def make_unique_keys(store_host: bytes, now: int, partition: int, first_row: int, born_timestamps: Int64s) -> Pieces:
    """A unique key for each of the rows of a batch."""
    count = born_timestamps.size
    rows = first_row + np.arange(count, dtype=np.int64)
    keys: Bytes = np.empty((count, _SIZE), np.uint8)
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
    """Records, in the order of their rows; `dispatched` has their units in other queues, which they name, by queue.

    After the queues of the records, `queues` has those to which messages that wait will be delivered.
    """

    data: Bytes
    rows: ChunkRows
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
    | unique key | made if a row that was in no store has none, nor `properties_bytes`; see `make_unique_keys` |
    | body | `stored_body` or `encoded_body`; else `body`, of which the bits of compression are cleared |
    | body CRC | `body_crc` if the stored body, or a faithful message, is written; else computed |
    | times | `*_timestamp_millis`; else `*_timestamp`; else the store time, which is by default `rules.now` |
    | version | V1, or V2 if a topic has more than 127 bytes; of a faithful message the one that fits `store_size` |
    | queue | `queue_id`; else, or as `rules.queues` says, chosen; a message that waits: `waiting_messages` |
    | offsets, also of a prepared transaction | the row's if the message is faithful; else 0 |
    """
    check_columns(batch.schema, rules.is_faithful)
    columns = SourceColumns(batch, first_row)
    reasons = columns.pieces(CORRUPT_RECORD)
    columns.check(
        reasons.is_given(),
        lambda row: (
            f"the row is damaged ({reasons.piece(row)[:200].decode('utf-8', 'replace')!r}), and damage cannot be "
            f"restored: leave out the rows of which {CORRUPT_RECORD} is not NULL"
        ),
    )
    for name in ("commit_log_offset", "queue_offset") if rules.is_faithful else ():
        columns.check(
            ~columns.is_given(name),
            f"{name} is NULL, so the message cannot keep it: give messages new offsets (renumber)",
        )
    commit_log_offsets = columns.numbers("commit_log_offset", 0, _MAX_COMMIT_LOG_OFFSET, UNKNOWN)
    queue_offsets = columns.numbers("queue_offset", 0, MAX_QUEUE_OFFSET, UNKNOWN)
    is_from_source: Flags = commit_log_offsets >= 0
    queues = read_queues(columns, rules, is_from_source)
    sys_flags = _int32s(columns, "sys_flag")
    bodies, stored_bodies, new_flags = read_bodies(columns, rules, sys_flags, is_from_source)
    has_stored_body = stored_bodies.is_given()
    store_timestamps = _times(columns, "store_timestamp", 1, is_from_source, np.int64(rules.now))
    born_timestamps = _times(columns, "born_timestamp", 0, is_from_source, store_timestamps)
    was_v6 = sys_flags & BORN_HOST_V6_FLAG != 0
    born_hosts = read_hosts(columns, "born_host", DEFAULT_BORN_HOST, was_v6, is_from_source)
    if rules.store_host is not None:
        store_hosts = pieces_of_bytes([parse_host(rules.store_host)]).take(np.zeros(columns.size, np.int64))
    else:
        was_v6 = sys_flags & STORE_HOST_V6_FLAG != 0
        store_hosts = read_hosts(columns, "store_host", DEFAULT_STORE_HOST, was_v6, is_from_source)
    made_keys = _made_keys(rules, partition, first_row, born_timestamps, is_from_source)
    prepared_offsets = columns.numbers("prepared_transaction_offset", _MIN_INT64, _MAX_INT64)
    zeros = np.broadcast_to(np.int64(0), columns.size)
    properties = read_properties(columns, rules, made_keys)
    has_unit: Flags = np.isin(sys_flags & TRANSACTION_TYPE_MASK, (0, TRANSACTION_COMMIT_TYPE))
    if rules.queues is None:
        queues = replace(queues, queue_ids=np.maximum(queues.queue_ids, 0))
        real = queues
    else:
        real = queues.chosen(rules.queues, properties, partition + first_row)
        is_new = has_unit & ~is_from_source
        queues, properties = place_waiting(columns, real, properties, is_new, rules.queues.delay_levels)
    messages = _message_counts(columns, rules, queues, properties)
    properties = _completed(columns, rules, properties)
    for hosts, flag in ((born_hosts, BORN_HOST_V6_FLAG), (store_hosts, STORE_HOST_V6_FLAG)):
        new_flags = np.where(hosts.lengths == HOST_V6_SIZE, new_flags | flag, new_flags & ~flag).astype(np.int32)
    topics = pieces_of_bytes([name.encode("utf-8") for name in queues.names]).take(queues.topics)
    fields = RecordFields(
        is_v2=topics.lengths > MAX_V1_TOPIC,
        queue_ids=queues.queue_ids,
        flags=_int32s(columns, "flag"),
        queue_offsets=queue_offsets if rules.is_faithful else zeros,
        commit_log_offsets=commit_log_offsets if rules.is_faithful else zeros,
        sys_flags=new_flags,
        born_timestamps=born_timestamps,
        born_hosts=born_hosts.buffer,
        born_host_starts=born_hosts.starts,
        store_timestamps=store_timestamps,
        store_hosts=store_hosts.buffer,
        store_host_starts=store_hosts.starts,
        reconsume_times=_int32s(columns, "reconsume_times"),
        prepared_transaction_offsets=prepared_offsets if rules.is_faithful else zeros,
        bodies=bodies,
        stored_bodies=stored_bodies,
        has_stored_body=has_stored_body,
        body_crcs=_int32s(columns, "body_crc"),
        has_body_crc=columns.is_given("body_crc") & (has_stored_body | (rules.is_faithful & is_from_source)),
        topics=topics,
        properties=properties,
    )
    data, sizes = _written(columns, rules, fields)
    in_queues = np.flatnonzero(has_unit)
    distinct = pa.array(queues.numbers).dictionary_encode()
    named = tuple(map(queues.queue, distinct.dictionary.to_pylist()))
    belonging = () if real is queues else map(real.queue, np.unique(real.numbers).tolist())
    numbers = distinct.indices.to_numpy()
    rows = ChunkRows(sizes, commit_log_offsets, queue_offsets, numbers, has_unit, store_timestamps, messages)
    dispatched = count_dispatched(properties.take(in_queues), queues.queue_ids[in_queues])
    return EncodedMessages(data, rows, tuple(dict.fromkeys((*named, *belonging))), dispatched)


def _written(columns: SourceColumns, rules: EncodingRules, fields: RecordFields) -> tuple[Bytes, Int32s]:
    if rules.is_faithful and columns.has("store_size"):
        fields = _with_stored_sizes(columns, rules, fields)
    columns.check(
        fields.is_v2 & (not rules.allows_v2),
        lambda row: (
            f"the record has version 2 and a topic of {fields.topics.lengths[row]} bytes: brokers before 5.1.0 cannot "
            f"read it. Rename a topic of more than {MAX_V1_TOPIC} bytes (topic map)"
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
    keeps_bytes = rules.is_faithful and rules.store_host is None
    is_changed = ~columns.is_given("properties_bytes") if keeps_bytes else np.ones(columns.size, np.bool_)
    renew_property_crcs(data, positions, is_changed)
    return data, sizes.astype(np.int32)


def _int32s(columns: SourceColumns, name: str) -> Int32s:
    numbers: Int32s = columns.numbers(name, _MIN_INT32, _MAX_INT32).astype(np.int32)
    return numbers


def _message_counts(columns: SourceColumns, rules: EncodingRules, queues: RowQueues, properties: Pieces) -> Int32s:
    """How many messages each record has: those of an inner batch, or one.

    A broker takes a record with INNER_NUM only with the bit of an inner batch, and that only for a topic with batch
    consume queues; it adds INNER_BASE (`HookUtils.checkInnerBatch`, `BatchConsumeQueue.assignQueueOffset`@5.3.3).
    """
    is_batch = _int32s(columns, "sys_flag") & INNER_BATCH_FLAG != 0
    is_of_topic: Flags = np.array([name in rules.batch_topics for name in queues.names], np.bool_)[queues.topics]
    columns.check(
        is_batch & ~is_of_topic,
        "the message is a batch of several messages (bit 0x80 of sys_flag), and the topic has no batch consume queues "
        "(queue.type=BatchCQ) in the store, so no consumer would get it: leave such rows out (sys_flag & 128 = 0)",
    )
    messages, is_wrong = np.ones(columns.size, np.int32), np.zeros(columns.size, np.bool_)
    rows = np.flatnonzero(is_of_topic)
    if rows.size:
        own = properties.take(rows)
        texts = gathered(Pieces(own.buffer, *places_of(own, INNER_NUM)))
        numbers = pc.if_else(pc.match_substring_regex(texts, "^[1-9][0-9]{0,4}$"), texts, b"0")
        messages[rows] = np.where(is_batch[rows], numbers.cast(pa.string()).cast(pa.int32()), 1)
        has_base = places_of(own, INNER_BASE)[1] > 0
        is_wrong[rows] = (messages[rows] < 1) | (messages[rows] > MAX_MESSAGE_COUNT) | (has_base != is_batch[rows])
    columns.check(
        is_wrong,
        "bit 0x80 of sys_flag and the properties INNER_BASE and INNER_NUM (1 to 32767) belong together: a broker gives "
        "all of them to a batch of several messages, and none of them to another message",
    )
    return messages


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


def _made_keys(
    rules: EncodingRules, partition: int, first_row: int, born_timestamps: Int64s, is_from_source: Flags
) -> Pieces:
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
        given & ((sizes != had) | (~is_v2 & (fields.topics.lengths > MAX_V1_TOPIC))),
        lambda row: (
            f"the message would take {sizes[row]} bytes, but took {had[row]} (store_size): "
            f"{_what_changed(columns, rules, int(sizes[row] - had[row]))}, or give messages new offsets (renumber)"
        ),
    )
    return fields._replace(is_v2=is_v2)


def _what_changed(columns: SourceColumns, rules: EncodingRules, more: int) -> str:
    if rules.store_host is not None and abs(more) == HOST_V6_SIZE - HOST_V4_SIZE:
        old, new = ("IPv4", "IPv6") if more > 0 else ("IPv6", "IPv4")
        return f"store host {rules.store_host} is an {new} address, and the source has an {old} one: give one of these"
    missing = [name for name in _EXACT_COLUMNS if not columns.has(name)]
    if not missing:
        return "a value was changed: restore the values of the source"
    return f"columns {', '.join(missing)} are missing, which have its exact bytes: read them, too"
