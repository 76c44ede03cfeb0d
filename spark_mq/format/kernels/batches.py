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
from spark_mq.format.message_schema import CORRUPT_RECORD, KEY, KEY_FIELDS, KEY_TYPE
from spark_mq.format.record import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK

BODY_COLUMNS = frozenset(("body", "encoded_body", CORRUPT_RECORD))
"""Columns whose values depend on the decompression of bodies."""

WRONG_BODY_CRC = "BODY_CRC: the CRC of the stored body is not the body CRC of the record"
WRONG_PROPERTY_CRC = "PROPERTIES_CRC: the CRC of the record is not the one in its property __CRC32#"

_BATCH_BODY_BYTES = 32 << 20


@dataclass(frozen=True)
class MessageKeys:
    """Keys of messages; each attribute has one value for each key.

    `message` is the index of the message that has the key. `key_type` is KEYS or UNIQ_KEY.
    """

    message: Int64s
    key: pa.Array
    key_type: pa.Array

    def filtered(self, is_kept: Flags) -> MessageKeys:
        """The keys at which `is_kept` is true."""
        kept = pa.array(is_kept)
        return MessageKeys(self.message[is_kept], self.key.filter(kept), self.key_type.filter(kept))


def rows_of_keys(messages: MessageColumns, keys: MessageKeys, columns: Sequence[str]) -> pa.RecordBatch:
    """A row for each key: columns of table `messages_by_key`."""
    repeated = messages.record_batch([name for name in columns if name not in KEY_FIELDS]).take(pa.array(keys.message))
    own = {KEY: keys.key, KEY_TYPE: keys.key_type}
    fields = [KEY_FIELDS[name] if name in own else repeated.schema.field(name) for name in columns]
    arrays = [own[name] if name in own else repeated.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def message_keys(messages: MessageColumns, requested: frozenset[str] | None = None) -> MessageKeys:
    """The distinct keys of each message, the unique key first, in the order of the messages."""
    unique_key, keys = messages.column("unique_key"), messages.column("keys")
    is_indexed = messages.frames.sys_flag & TRANSACTION_TYPE_MASK != TRANSACTION_ROLLBACK_TYPE
    has_unique_key = is_indexed & unique_key.is_valid().to_numpy(zero_copy_only=False)
    owner = np.concatenate((np.flatnonzero(has_unique_key), pc.list_parent_indices(keys).to_numpy()))
    key = pa.concat_arrays([unique_key.filter(pa.array(has_unique_key)), keys.flatten()])
    is_unique = np.arange(owner.size) < has_unique_key.sum()
    is_returned = is_indexed[owner]
    if requested is not None:
        is_returned &= pc.is_in(key, value_set=pa.array(sorted(requested), pa.string())).to_numpy(zero_copy_only=False)
    owner, key, is_unique = owner[is_returned], key.filter(pa.array(is_returned)), is_unique[is_returned]
    codes = key.dictionary_encode().indices.to_numpy().astype(np.int64)
    # If a message has a key twice, the first one counts; unique keys come first.
    _, first = np.unique(owner.astype(np.int64) * (codes.max(initial=0) + 1) + codes, return_index=True)
    first = first[np.lexsort((first, owner[first]))]
    types = pa.DictionaryArray.from_arrays(pa.array(is_unique[first].astype(np.int8)), pa.array([*KeyType]))
    return MessageKeys(owner[first].astype(np.int64), key.take(pa.array(first)), types.cast(pa.string()))


def message_batches(
    buffer: Bytes,
    frames: Frames,
    columns: list[str],
    max_rows: int,
    body_limit: int = DEFAULT_BODY_LIMIT,
    check_crc: bool = False,
) -> Iterator[MessageColumns]:
    """Batches of at most `max_rows` messages and about 32 MiB of decompressed bodies.

    Args:
        check_crc: Whether the CRCs of messages are checked, whatever `columns` are. If a body CRC is wrong, the
            message's body is NULL.
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
