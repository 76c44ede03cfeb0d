"""Hosts and offset message ids of many messages, in Arrow.

Many messages have the same few hosts, so each host of a batch is written once, by the rule for a single record.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_mq.format import message_row
from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s
from spark_mq.format.arrow_array import array_of
from spark_mq.format.kernels.big_endian import int64s_at, read_u32, write_i64
from spark_mq.format.kernels.gather import gather
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.record import HOST_V4_SIZE

_host_text = lru_cache(maxsize=1 << 14)(message_row.host_text)


def host_texts(buffer: Bytes, starts: Int64s, sizes: Int32s) -> pa.Array:
    """Hosts as `message_row.host_text` writes them.

    Args:
        buffer: The bytes that contain the hosts.
        sizes: The bytes of each host: 8 or 20.
    """
    if (sizes == HOST_V4_SIZE).all():  # the usual case: an integer is found faster than bytes
        distinct = pa.array(int64s_at(buffer, starts)).dictionary_encode()
        hosts = [host.to_bytes(HOST_V4_SIZE, signed=True) for host in distinct.dictionary.to_pylist()]
    else:
        out, offsets = gather(buffer, starts, sizes)
        stored = pa.Array.from_buffers(pa.binary(), sizes.size, [None, pa.py_buffer(offsets), pa.py_buffer(out)])
        distinct = stored.dictionary_encode()
        hosts = distinct.dictionary.to_pylist()
    return array_of([_host_text(host) for host in hosts], pa.string()).take(distinct.indices)


def offset_message_ids(buffer: Bytes, starts: Int64s, sizes: Int32s, commit_log_offsets: Int64s) -> pa.Array:
    """Offset message ids: store host and commit log offset in hex (`MessageDecoder.createMessageId`@5.3.3).

    Args:
        buffer: The bytes that contain the store hosts.
        starts: Where each store host starts.
        sizes: The bytes of each store host: 8 or 20.
    """
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
