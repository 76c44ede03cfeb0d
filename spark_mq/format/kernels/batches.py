"""Batches of messages whose bodies fit into memory, decompressed, with checked CRCs if requested; or by keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Bytes, Flags, Int64s
from spark_mq.format.compression import DEFAULT_BODY_LIMIT
from spark_mq.format.dispatch import KeyType
from spark_mq.format.kernels.columns import Bodies, MessageColumns, decompress_body, is_compressed
from spark_mq.format.kernels.crc import wrong_body_crcs, wrong_property_crcs
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.message_schema import CORRUPT_RECORD, KEY_FIELDS, WRONG_BODY_CRC, WRONG_PROPERTY_CRC
from spark_mq.format.record import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK

BODY_COLUMNS = frozenset(("body", "encoded_body", CORRUPT_RECORD))
"""Columns whose values depend on the decompression of bodies."""


_BATCH_BODY_BYTES = 32 << 20


@dataclass(frozen=True)
class MessageKeys:
    """Keys of messages; each attribute has one value for each key.

    `message` is the index of the message that has the key, `is_unique` whether the key is its unique key.
    """

    message: Int64s
    key: pa.Array
    is_unique: Flags

    @property
    def key_type(self) -> pa.Array:
        """KEYS or UNIQ_KEY, for each key."""
        numbers = pa.array(self.is_unique.astype(np.int8))
        return pa.DictionaryArray.from_arrays(numbers, pa.array([*KeyType])).cast(pa.string())

    def take(self, chosen: Int64s) -> MessageKeys:
        """The keys with these numbers."""
        return MessageKeys(self.message[chosen], self.key.take(pa.array(chosen)), self.is_unique[chosen])


def rows_of_keys(messages: MessageColumns, keys: MessageKeys, columns: Sequence[str]) -> pa.RecordBatch:
    """A row for each key: columns of table `messages_by_key`."""
    repeated = messages.record_batch([name for name in columns if name not in KEY_FIELDS]).take(pa.array(keys.message))
    own = {name: getattr(keys, name) for name in columns if name in KEY_FIELDS}
    fields = [KEY_FIELDS[name] if name in own else repeated.schema.field(name) for name in columns]
    arrays = [own[name] if name in own else repeated.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _stored_keys(messages: MessageColumns) -> MessageKeys:
    """The keys of messages, those that a message has twice, too: all unique keys, then the keys in KEYS."""
    unique_key, keys = messages.column("unique_key"), messages.column("keys")
    is_indexed = messages.frames.sys_flag & TRANSACTION_TYPE_MASK != TRANSACTION_ROLLBACK_TYPE
    has_unique_key = is_indexed & unique_key.is_valid().to_numpy(zero_copy_only=False)
    owner = np.concatenate((np.flatnonzero(has_unique_key), pc.list_parent_indices(keys).to_numpy())).astype(np.int64)
    key = pa.concat_arrays([unique_key.filter(pa.array(has_unique_key)), keys.flatten()])
    found = MessageKeys(owner, key, np.arange(owner.size) < has_unique_key.sum())
    return found if is_indexed.all() else found.take(np.flatnonzero(is_indexed[owner]))


def message_keys(messages: MessageColumns, requested: frozenset[str] | None = None) -> MessageKeys:
    """The distinct keys of each message, the unique key first, in the order of the messages."""
    keys = _stored_keys(messages)
    if requested is not None:
        is_requested = pc.is_in(keys.key, value_set=pa.array(sorted(requested), pa.string()))
        keys = keys.take(np.flatnonzero(is_requested))
    codes = keys.key.dictionary_encode().indices.to_numpy().astype(np.int64)
    # If a message has a key twice, the first one counts; unique keys come first.
    _, first = np.unique(keys.message * (codes.max(initial=0) + 1) + codes, return_index=True)
    return keys.take(first[np.lexsort((first, keys.message[first]))])


def message_batches(
    buffer: Bytes,
    frames: Frames,
    columns: list[str],
    max_rows: int,
    body_limit: int = DEFAULT_BODY_LIMIT,
    check_crc: bool = False,
) -> Iterator[MessageColumns]:
    """Batches of at most `max_rows` messages and about 32 MiB of decompressed bodies.

    With `check_crc`, CRCs are checked whatever `columns` are, and a body whose CRC is wrong is NULL.
    """
    needs_bodies = not BODY_COLUMNS.isdisjoint(columns)
    for first in range(0, frames.size, max_rows):
        batch = MessageColumns(buffer, frames[first : first + max_rows])
        if needs_bodies or check_crc:
            yield from _cut_by_body_bytes(batch, body_limit, needs_bodies, check_crc)
        else:
            yield batch


def _cut_by_body_bytes(
    batch: MessageColumns, body_limit: int, decompresses: bool, check_crc: bool
) -> Iterator[MessageColumns]:
    """Check and decompress bodies, and end a batch early, so that decompression bombs fill only small batches."""
    frames = batch.frames
    no_messages = np.zeros(frames.size, np.bool_)
    compressed = is_compressed(frames) if decompresses else no_messages
    wrong_body = wrong_body_crcs(batch.buffer, frames) if check_crc else no_messages
    wrong_properties = wrong_property_crcs(batch.buffer, frames) if check_crc else no_messages
    first, body_bytes = 0, 0
    rows: list[int] = []
    contents: list[bytes | None] = []
    reasons: dict[int, str] = {}
    for row in np.flatnonzero(compressed | wrong_body | wrong_properties).tolist():
        content, problems = None, []
        if wrong_body[row]:
            problems.append(WRONG_BODY_CRC)
        elif compressed[row]:
            content, reason = decompress_body(batch.buffer, frames[row], body_limit)
            problems += [reason] if reason is not None else []
        if wrong_properties[row]:
            problems.append(WRONG_PROPERTY_CRC)
        if wrong_body[row] or compressed[row]:
            rows.append(row - first)
            contents.append(content)
        if problems:
            reasons[row - first] = "; ".join(problems)
        body_bytes += len(content or b"")
        if body_bytes >= _BATCH_BODY_BYTES:
            bodies = Bodies(np.array(rows, np.intp), contents, reasons)
            yield MessageColumns(batch.buffer, frames[first : row + 1], bodies)
            first, rows, contents, reasons, body_bytes = row + 1, [], [], {}, 0
    if first < frames.size:
        bodies = Bodies(np.array(rows, np.intp), contents, reasons)
        yield MessageColumns(batch.buffer, frames[first:], bodies)
