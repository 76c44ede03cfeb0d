"""The numbers of records, read in one pass over the records, and the texts of their hosts.

A record's head is in the processor's cache when its first field was read, and no longer when another pass comes.

Many messages have the same few hosts, so each host of a batch is written once, by the rule for a single record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_mq.format import message_row, record
from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s, OutInt64s
from spark_mq.format.arrow_array import array_of
from spark_mq.format.kernels.big_endian import int64s_at, read_i32, read_i64, read_u32, write_i64
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.gather import gathered
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.pieces import Pieces

_host_text = lru_cache(maxsize=1 << 14)(message_row.host_text)
_RECORD, _STORE_TIMESTAMP, _AFTER_HOSTS = range(3)
"""What a distance is counted from: the record's start, its store timestamp, or the end of its hosts."""


def host_texts(buffer: Bytes, starts: Int64s, sizes: Int32s) -> pa.Array:
    """Hosts as `message_row.host_text` writes them."""
    if (sizes == record.HOST_V4_SIZE).all():  # the usual case: an integer is found faster than bytes
        distinct = pa.array(int64s_at(buffer, starts)).dictionary_encode()
        hosts = [host.to_bytes(record.HOST_V4_SIZE, signed=True) for host in distinct.dictionary.to_pylist()]
    else:
        distinct = gathered(Pieces(buffer, starts, sizes)).dictionary_encode()
        hosts = distinct.dictionary.to_pylist()
    return array_of([_host_text(host) for host in hosts], pa.string()).take(distinct.indices)


def offset_message_ids(buffer: Bytes, starts: Int64s, sizes: Int32s, commit_log_offsets: Int64s) -> pa.Array:
    """Offset message ids: store host and commit log offset in hex (`MessageDecoder.createMessageId`@5.3.3)."""
    ends = np.empty(starts.size + 1, np.int32)
    text = np.empty(2 * (int(sizes.sum(dtype=np.int64)) + 8 * starts.size), np.uint8)
    _write_ids(buffer, starts, sizes, commit_log_offsets, text, ends)
    return pa.Array.from_buffers(pa.string(), starts.size, [None, pa.py_buffer(ends), pa.py_buffer(text)])


@kernel
def _write_ids(
    buffer: Bytes, starts: Int64s, sizes: Int32s, commit_log_offsets: Int64s, text: OutBytes, ends: OutInt32s
) -> None:
    at = 0
    ends[0] = 0
    for index in range(starts.size):
        for position in range(starts[index], starts[index] + sizes[index], 4):
            _write_hex(read_u32(buffer, position), text, at)
            at += 8
        offset = commit_log_offsets[index]
        _write_hex((offset >> 32) & 0xFFFFFFFF, text, at)
        _write_hex(offset & 0xFFFFFFFF, text, at + 8)
        at += 16
        ends[index + 1] = at


@kernel
def _write_hex(number: int, text: OutBytes, at: int) -> None:
    """Write a number of 32 bits as eight hexadecimal digits, all at the same time."""
    digits = ((number << 16) | number) & 0x0000FFFF0000FFFF
    digits = ((digits << 8) | digits) & 0x00FF00FF00FF00FF
    digits = ((digits << 4) | digits) & 0x0F0F0F0F0F0F0F0F
    is_letter = ((digits + 0x0606060606060606) >> 4) & 0x0101010101010101
    write_i64(text, at, digits + 0x3030303030303030 + is_letter * (ord("A") - ord("9") - 1))


@dataclass(frozen=True)
class _Place:
    """Where a field is in its record."""

    origin: int
    distance: int
    is_long: bool
    """Whether the field has eight bytes, else four."""


FIELDS = {
    "commit_log_offset": _Place(_RECORD, record.COMMIT_LOG_OFFSET_AT, True),
    "body_crc": _Place(_RECORD, record.BODY_CRC_AT, False),
    "queue_id": _Place(_RECORD, record.QUEUE_ID_AT, False),
    "flag": _Place(_RECORD, record.FLAG_AT, False),
    "queue_offset": _Place(_RECORD, record.QUEUE_OFFSET_AT, True),
    "born_timestamp": _Place(_RECORD, record.BORN_TIMESTAMP_AT, True),
    "store_timestamp": _Place(_STORE_TIMESTAMP, 0, True),
    "reconsume_times": _Place(_AFTER_HOSTS, 0, False),
    "prepared_transaction_offset": _Place(_AFTER_HOSTS, 4, True),
}
"""The fields, by the name of their column; timestamps are milliseconds."""


def read_fields(buffer: Bytes, frames: Frames, names: Sequence[str]) -> dict[str, Int32s | Int64s]:
    """The values of some of the `FIELDS`, by name: one for each record."""
    short = [name for name in names if not FIELDS[name].is_long]
    long = [name for name in names if FIELDS[name].is_long]
    places = [FIELDS[name] for name in (*short, *long)]
    int32s = np.empty((len(short), frames.size), np.int32)
    int64s = np.empty((len(long), frames.size), np.int64)
    _read_fields(
        buffer,
        frames,
        np.array([place.origin for place in places], np.int64),
        np.array([place.distance for place in places], np.int64),
        len(short),
        int32s.reshape(-1),
        int64s.reshape(-1),
    )
    return {**dict(zip(short, int32s, strict=True)), **dict(zip(long, int64s, strict=True))}


@kernel
def _read_fields(
    buffer: Bytes, frames: Frames, origins: Int64s, distances: Int64s, short: int, int32s: OutInt32s, int64s: OutInt64s
) -> None:
    count = frames.size
    for index in range(count):
        position = frames[index].position
        store_timestamp_at, after_hosts_at = frames[index].store_timestamp_at, frames[index].after_hosts_at
        for field in range(origins.size):
            at = position
            if origins[field] == _STORE_TIMESTAMP:
                at = store_timestamp_at
            elif origins[field] == _AFTER_HOSTS:
                at = after_hosts_at
            at += distances[field]
            if field < short:
                int32s[field * count + index] = read_i32(buffer, at)
            else:
                int64s[(field - short) * count + index] = read_i64(buffer, at)
