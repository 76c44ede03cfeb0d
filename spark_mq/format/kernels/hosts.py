"""Hosts and offset message ids of many messages, in Arrow.

Many messages have the same few hosts, so each host of a batch is written once, by the rule for a single record.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_mq.format import message_row
from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes
from spark_mq.format.arrow_array import array_of
from spark_mq.format.kernels.big_endian import byte_at, int64s_at
from spark_mq.format.kernels.gather import gather_bytes
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.record import HOST_V4_SIZE

_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)

_host_text = lru_cache(maxsize=1 << 14)(message_row.host_text)


def host_texts(buffer: Bytes, starts: Int64s, sizes: Int32s) -> pa.Array:
    """Hosts as `message_row.host_text` writes them.

    Args:
        buffer: The bytes that contain the hosts.
        starts: Where each host starts.
        sizes: The bytes of each host: 8 or 20.
    """
    if (sizes == HOST_V4_SIZE).all():  # the usual case: an integer is found faster than bytes
        distinct = pa.array(int64s_at(buffer, starts)).dictionary_encode()
        hosts = [host.to_bytes(HOST_V4_SIZE, signed=True) for host in distinct.dictionary.to_pylist()]
    else:
        out, offsets = np.empty(int(sizes.sum(dtype=np.int64)), np.uint8), np.empty(sizes.size + 1, np.int32)
        gather_bytes(buffer, starts, sizes, out, offsets)
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
        commit_log_offsets: The commit log offset of each message.
    """
    of_size = {int(size): np.flatnonzero(sizes == size) for size in np.unique(sizes)}
    parts = [_ids_of_one_size(buffer, starts[rows], size, commit_log_offsets[rows]) for size, rows in of_size.items()]
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([np.empty(0, np.intp), *of_size.values()]))
    return pa.concat_arrays([pa.array([], pa.string()), *parts]).take(pa.array(order))


def _ids_of_one_size(buffer: Bytes, starts: Int64s, size: int, commit_log_offsets: Int64s) -> pa.Array:
    count = starts.size
    stored: npt.NDArray[np.uint8] = np.empty((count, size + 8), np.uint8)
    hosts = np.empty(count * size, np.uint8)
    gather_bytes(buffer, starts, np.full(count, size, np.int32), hosts, np.empty(count + 1, np.int32))
    stored[:, :size] = hosts.reshape(count, size)
    stored[:, size:] = commit_log_offsets.astype(">i8").view(np.uint8).reshape(count, 8)
    text = np.empty(2 * stored.size, np.uint8)
    _write_hex(stored.reshape(-1), _DIGITS, text)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(2 * (size + 8))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


@kernel
def _write_hex(stored: Bytes, digits: Bytes, out: OutBytes) -> None:
    for index in range(stored.size):
        byte = byte_at(stored, index)
        out[2 * index] = digits[byte >> 4]
        out[2 * index + 1] = digits[byte & 0xF]
