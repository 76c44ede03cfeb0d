"""The index entries that a broker writes when it dispatches records: the hashes of their keys, as kernels.

Rules (`IndexService.buildIndex`, `CommitLog.checkMessageAndReturnSize`@5.5.0; the same from 4.9 on, except tags):

- Every message is indexed under its stored topic, except messages of transaction type ROLLBACK.
- The first entry is that of the unique key. Then each piece of KEYS between single spaces that is not empty has an
  entry, in order. A repeated key has an entry each time.
- The last entry is that of TAGS, if they are not empty, by brokers of the rule `INDEX_TAGS`.
- A message without keys has no entry, but the broker dispatches it, too: see `spark_mq.format.index_file`.

The twins for one record are `spark_mq.format.dispatch` and `spark_mq.format.index_file.index_key_hash`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutBytes, OutInt32s, OutInt64s, is_in
from spark_mq.format.index_file import ENTRY_SIZE
from spark_mq.format.kernels.big_endian import read_i64, write_i32, write_i64
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.java_string import extend_hash, hash_code, is_utf8
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.kernels.properties import named_value_length, same_bytes, skip_to, skip_value
from spark_mq.format.properties import KEYS, TAGS, UNIQUE_KEY
from spark_mq.format.record import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK

_KEYS = np.frombuffer(KEYS, np.uint8)
_UNIQUE_KEY = np.frombuffer(UNIQUE_KEY, np.uint8)
_TAGS = np.frombuffer(TAGS, np.uint8)
_INDEX_TAG_TYPE = ord("T")
_MARKED = 2
"""Tags have entries, which are marked; 1 if they have entries, 0 if they have none."""
_HAS_NO_KEYS, _HAS_NO_PAIR, _HAS_PAIR = 0, 1, 2
_SPACE = ord(" ")
_BETWEEN = ord("#")
"""The separator between topic and key (`IndexService.buildKey`@5.3.3)."""


@dataclass(frozen=True)
class IndexKeys:
    """The index entries of messages, in log order.

    `key_hash` has one value for each entry: a number that is not negative, or all of its bits inverted, which marks an
    entry. `entry_count` has one value for each message: the number of its entries.
    """

    key_hash: Int32s
    entry_count: Int32s

    def staged(self, buffer: Bytes, frames: Frames, base: int) -> Bytes:
        """The entries as `index_put.put_keys` takes them; the commit log offset of `buffer[0]` is `base`."""
        entries = np.empty(self.key_hash.size * ENTRY_SIZE, np.uint8)
        _write_entries(buffer, frames, base, self.key_hash, self.entry_count, entries)
        return entries


def index_keys(
    buffer: Bytes, frames: Frames, has_tags: bool | None = False, tags_codes: OutInt64s | None = None
) -> IndexKeys:
    """The index entries of the messages `frames`, whose bytes are in `buffer`.

    Args:
        has_tags: Whether tags have entries; None if that is decided later: such an entry is then marked.
        tags_codes: `String.hashCode` of the tags of each message is written here, 0 without tags.
    """
    # A key takes at least two bytes of the properties: one of its own and a separator.
    max_entries = frames.size + int(frames.properties_length.sum(dtype=np.int64)) // 2
    key_hash = np.empty(max_entries, np.int32)
    entry_count = np.empty(frames.size, np.int32)
    tags = _MARKED if has_tags is None else int(has_tags)
    codes = np.empty(0, np.int64) if tags_codes is None else tags_codes
    count = _hash_keys(buffer, frames, tags, key_hash, entry_count, codes)
    return IndexKeys(key_hash[:count].copy(), entry_count)


def entry_counts(buffer: Bytes, frames: Frames) -> tuple[Int32s, Flags]:
    """The number of index entries of each message, without that of its tags; and whether tags can have one."""
    keys = index_keys(buffer, frames, has_tags=None)
    last = np.append(keys.key_hash, np.int32(0))[np.cumsum(keys.entry_count) - 1]
    has_tags: Flags = (keys.entry_count > 0) & (last < 0)
    return keys.entry_count - has_tags, has_tags


@kernel
def _hash_keys(
    buffer: Bytes, frames: Frames, tags: int, key_hash: OutInt32s, entry_count: OutInt32s, tags_codes: OutInt64s
) -> int:
    count = 0
    for index in range(frames.size):
        frame = frames[index]
        first = count
        start, length = frame.properties_start, int(frame.properties_length)
        (unique_key_start, unique_key_length, keys_start, keys_length, tags_start, tags_length) = _find_keys(
            buffer, start, length
        )
        if tags_codes.size:
            tags_codes[index] = hash_code(buffer, tags_start, tags_length) if tags_length > 0 else 0
        if frame.sys_flag & TRANSACTION_TYPE_MASK != TRANSACTION_ROLLBACK_TYPE:
            topic_hash = extend_hash(0, buffer, frame.topic_start, int(frame.topic_length))
            before_key = (31 * topic_hash + _BETWEEN) & 0xFFFFFFFF
            if unique_key_length > 0:
                key_hash[count] = _absolute(extend_hash(before_key, buffer, unique_key_start, unique_key_length))
                count += 1
            position = keys_start if keys_start > 0 else 0
            end = position + keys_length
            while position < end:
                key_start = position
                while position < end and buffer[position] != _SPACE:
                    position += 1
                if position > key_start:
                    key_hash[count] = _absolute(extend_hash(before_key, buffer, key_start, position - key_start))
                    count += 1
                position += 1
            if tags and tags_length > 0:
                before_tags = (31 * (31 * before_key + _INDEX_TAG_TYPE) + _BETWEEN) & 0xFFFFFFFF
                tag_hash = _absolute(extend_hash(before_tags, buffer, tags_start, tags_length))
                key_hash[count] = ~tag_hash if tags == _MARKED else tag_hash
                count += 1
        entry_count[index] = count - first
    return count


@kernel
def _write_entries(
    buffer: Bytes, frames: Frames, base: int, key_hash: Int32s, entry_count: Int32s, entries: OutBytes
) -> None:
    number = 0
    for index in range(frames.size):
        commit_log_offset = base + frames[index].position
        store_timestamp = read_i64(buffer, frames[index].store_timestamp_at)
        for _ in range(entry_count[index]):
            entry_at = number * ENTRY_SIZE
            write_i32(entries, entry_at, int(key_hash[number]))
            write_i64(entries, entry_at + 4, commit_log_offset)
            write_i64(entries, entry_at + 12, store_timestamp)
            number += 1


@kernel
def _find_keys(buffer: Bytes, start: int, length: int) -> tuple[int, int, int, int, int, int]:
    """Start and length of the values of UNIQ_KEY, KEYS and TAGS: `find_value` for all in one pass."""
    unique_key_start, unique_key_length, keys_start, keys_length, tags_start, tags_length = 0, -1, 0, -1, 0, -1
    position = start if start > 0 else 0
    end = position + length
    while position < end:
        piece = position
        position = skip_value(buffer, position, end)
        value_length = named_value_length(buffer, piece, position, _UNIQUE_KEY)
        if value_length > 0:
            unique_key_start, unique_key_length = piece + _UNIQUE_KEY.size + 1, value_length
        value_length = named_value_length(buffer, piece, position, _KEYS)
        if value_length > 0:
            keys_start, keys_length = piece + _KEYS.size + 1, value_length
        value_length = named_value_length(buffer, piece, position, _TAGS)
        if value_length > 0:
            tags_start, tags_length = piece + _TAGS.size + 1, value_length
        position += 1
    return unique_key_start, unique_key_length, keys_start, keys_length, tags_start, tags_length


@kernel
def _absolute(unsigned: int) -> int:
    """The absolute value of a hash modulo 2^32; 0 for Integer.MIN_VALUE (`IndexFile.indexKeyHashMethod`@5.3.3)."""
    if unsigned < 0x80000000:
        return unsigned
    return 0 if unsigned == 0x80000000 else 0x100000000 - unsigned


@dataclass(frozen=True)
class AskedKeys:
    """Pairs of topic and key, those of one hash one after the other.

    Hash i is `hashes[i]`, and has the pairs from `firsts[i]` to `firsts[i + 1]` - 1.
    """

    topics: pa.Array
    keys: pa.Array
    hashes: Int32s
    firsts: Int64s

    def of_messages(
        self, buffer: Bytes, frames: Frames, message: Int64s, hash_index: Int64s
    ) -> tuple[Int64s, Int64s, Flags, Flags]:
        """Which messages have which pairs, where entries of an index say which hashes they have.

        Args:
            message: The number of the message of each entry.
            hash_index: The number of the hash of each entry.

        Returns:
            The message, the pair, and whether the key is the message's unique key, for each message and pair that it
            has; and for each entry, whether its message has the hash. It has none if its topic or keys are not UTF-8.
        """
        size = int((self.firsts[hash_index + 1] - self.firsts[hash_index]).sum())
        found, result = np.empty(size, np.int64), np.empty(message.size, np.uint8)
        texts = *_text_buffers(self.topics), *_text_buffers(self.keys)
        count = _match_keys(buffer, frames, message, hash_index, self.firsts, *texts, found, result)
        numbers = np.sort(found[:count])
        numbers = numbers[np.diff(numbers, prepend=-1) > 0]  # an index has a key twice that a message has twice
        messages, pairs = np.divmod(numbers >> 1, max(len(self.keys), 1))
        is_right = result == _HAS_PAIR
        others = np.flatnonzero(result == _HAS_NO_PAIR)
        if others.size:
            stored = index_keys(buffer, frames[message[others]], has_tags=None)
            owners = np.repeat(np.arange(others.size, dtype=np.int64), stored.entry_count)
            hashes = owners << 32 | np.maximum(stored.key_hash, ~stored.key_hash)
            asked = np.arange(others.size, dtype=np.int64) << 32 | self.hashes[hash_index[others]]
            is_right[others] = is_in(asked, hashes)
        return messages, pairs, (numbers & 1).astype(np.bool_), is_right


@kernel
def _match_keys(
    buffer: Bytes,
    frames: Frames,
    message: Int64s,
    hash_index: Int64s,
    firsts: Int64s,
    topics: Bytes,
    topic_ends: Int32s,
    keys: Bytes,
    key_ends: Int32s,
    found: OutInt64s,
    result: OutBytes,
) -> int:
    """Write ((message x pairs) + pair) x 2 + whether it is the unique key to `found`; returns the number of them.

    What each entry leads to is written to `result`.
    """
    count = 0
    for entry in range(message.size):
        frame = frames[message[entry]]
        topic_start, topic_length = frame.topic_start, int(frame.topic_length)
        unique_key, unique_key_length, all_keys, all_keys_length, _, _ = _find_keys(
            buffer, frame.properties_start, int(frame.properties_length)
        )
        result[entry] = _HAS_NO_KEYS
        if (
            frame.sys_flag & TRANSACTION_TYPE_MASK == TRANSACTION_ROLLBACK_TYPE
            or not is_utf8(buffer, topic_start, topic_start + topic_length)
            or not is_utf8(buffer, unique_key, unique_key + unique_key_length)
            or not is_utf8(buffer, all_keys, all_keys + all_keys_length)
        ):
            continue
        result[entry] = _HAS_NO_PAIR
        for pair in range(firsts[hash_index[entry]], firsts[hash_index[entry] + 1]):
            topic, key, length = int(topic_ends[pair]), int(key_ends[pair]), int(key_ends[pair + 1] - key_ends[pair])
            if topic_ends[pair + 1] - topic != topic_length or not same_bytes(
                topics, topic, buffer, topic_start, topic_length
            ):
                continue
            is_unique_key = length == unique_key_length and same_bytes(keys, key, buffer, unique_key, length)
            if is_unique_key or _is_among(keys, key, length, buffer, all_keys, all_keys + all_keys_length):
                found[count] = (message[entry] * (key_ends.size - 1) + pair) << 1 | int(is_unique_key)
                count += 1
                result[entry] = _HAS_PAIR
    return count


@kernel
def _is_among(keys: Bytes, start: int, length: int, buffer: Bytes, position: int, end: int) -> bool:
    """Whether a key, which is a piece of `keys`, is one of those in a value of KEYS."""
    while position < end:
        key_start = position
        position = skip_to(buffer, position, end, _SPACE)
        if position - key_start == length > 0 and same_bytes(keys, start, buffer, key_start, length):
            return True
        position += 1
    return False


def hash_keys(topics: pa.Array, keys: pa.Array) -> Int32s:
    """The hash in index files of each key of a topic; both arrays have texts of the same number, and no NULL."""
    buffers = [_text_buffers(texts) for texts in (topics, keys)]
    key_hash = np.empty(len(keys), np.int32)
    _hash_texts(*buffers[0], *buffers[1], key_hash)
    return key_hash


def _text_buffers(texts: pa.Array) -> tuple[Bytes, Int32s]:
    """The bytes of all texts, and where each begins, and the last one ends."""
    _, offsets, data = texts.cast(pa.string()).buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data or b"", np.uint8), ends


@kernel
def _hash_texts(topics: Bytes, topic_ends: Int32s, keys: Bytes, key_ends: Int32s, key_hash: OutInt32s) -> None:
    for index in range(key_hash.size):
        start, key_start = int(topic_ends[index]), int(key_ends[index])
        topic_hash = extend_hash(0, topics, start, int(topic_ends[index + 1]) - start)
        before_key = (31 * topic_hash + _BETWEEN) & 0xFFFFFFFF
        key_hash[index] = _absolute(extend_hash(before_key, keys, key_start, int(key_ends[index + 1]) - key_start))
