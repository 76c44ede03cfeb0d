"""What the broker makes of a record when it dispatches it to the index, as kernels.

Rules (`IndexService.buildIndex`, `CommitLog.checkMessageAndReturnSize`@5.3.3; the same in 4.9):

- every message but those of transaction type ROLLBACK is indexed, under the topic that is stored;
- first its unique key, then each piece of KEYS between single spaces that is not empty, in order; a key that is
  repeated is put again;
- a message without keys puts no entry, but it is dispatched too: see `index_placement`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.java_string import extend_hash
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.kernels.properties import named_value_length
from spark_mq.format.properties import KEYS, PROPERTY_SEPARATOR, UNIQUE_KEY
from spark_mq.format.sys_flag import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK

_KEYS = np.frombuffer(KEYS, np.uint8)
_UNIQUE_KEY = np.frombuffer(UNIQUE_KEY, np.uint8)
_SPACE = ord(" ")
_BETWEEN = ord("#")
"""What is between topic and key (`IndexService.buildKey`@5.3.3)."""


@dataclass(frozen=True)
class IndexKeys:
    """The index entries of n messages, in log order.

    `key_hash` has one value for each entry; `entry_count`, n values, says how many of them are each message's.
    """

    key_hash: Int32s
    entry_count: Int32s


def index_keys(buffer: Bytes, frames: Frames) -> IndexKeys:
    """The entries that these messages put."""
    most = frames.size + int(frames.properties_length.sum(dtype=np.int64)) // 2  # a key has a byte, and one between
    key_hash = np.empty(most, np.int32)
    entry_count = np.empty(frames.size, np.int32)
    count = _hash_keys(buffer, frames, key_hash, entry_count)
    return IndexKeys(key_hash[:count].copy(), entry_count)


@kernel
def _hash_keys(buffer: Bytes, frames: Frames, key_hash: Int32s, entry_count: Int32s) -> int:
    count = 0
    for index in range(frames.size):
        frame = frames[index]
        first = count
        if frame.sys_flag & TRANSACTION_TYPE_MASK != TRANSACTION_ROLLBACK_TYPE:
            unique_key_start, unique_key_length, keys_start, keys_length = _find_keys(
                buffer, frame.properties_start, int(frame.properties_length)
            )
            topic_hash = extend_hash(0, buffer, frame.topic_start, int(frame.topic_length))
            before_key = (31 * topic_hash + _BETWEEN) & 0xFFFFFFFF
            if unique_key_length > 0:
                key_hash[count] = _absolute(extend_hash(before_key, buffer, unique_key_start, unique_key_length))
                count += 1
            position = max(keys_start, 0)
            end = position + keys_length
            while position < end:
                key_start = position
                while position < end and buffer[position] != _SPACE:
                    position += 1
                if position > key_start:
                    key_hash[count] = _absolute(extend_hash(before_key, buffer, key_start, position - key_start))
                    count += 1
                position += 1
        entry_count[index] = count - first
    return count


@kernel
def _find_keys(buffer: Bytes, start: int, length: int) -> tuple[int, int, int, int]:
    """Start and length of the values of UNIQ_KEY and KEYS: `find_value` for both, in one pass."""
    unique_key_start, unique_key_length, keys_start, keys_length = 0, -1, 0, -1
    position = max(start, 0)
    end = position + length
    while position < end:
        piece = position
        while position < end and buffer[position] != PROPERTY_SEPARATOR:
            position += 1
        value_length = named_value_length(buffer, piece, position, _UNIQUE_KEY)
        if value_length > 0:
            unique_key_start, unique_key_length = piece + _UNIQUE_KEY.size + 1, value_length
        else:
            value_length = named_value_length(buffer, piece, position, _KEYS)
            if value_length > 0:
                keys_start, keys_length = piece + _KEYS.size + 1, value_length
        position += 1
    return unique_key_start, unique_key_length, keys_start, keys_length


@kernel
def _absolute(unsigned: int) -> int:
    """`IndexFile.indexKeyHashMethod`@5.3.3 for a hash modulo 2^32: 0 for Integer.MIN_VALUE."""
    if unsigned < 0x80000000:
        return unsigned
    return 0 if unsigned == 0x80000000 else 0x100000000 - unsigned
