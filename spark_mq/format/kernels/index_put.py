"""Index files filled entry by entry, as the broker does (`IndexFile.putKey`@5.3.3; the same in 4.9.0).

The state of a file is its bytes, so that a broker's file is continued just as one that was begun here. A full file of
default size is 420 MB: it is made in one array, in place.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s, Int64s
from spark_mq.format.index_file import (
    BEGIN_COMMIT_LOG_OFFSET_AT,
    BEGIN_TIMESTAMP_AT,
    END_COMMIT_LOG_OFFSET_AT,
    END_TIMESTAMP_AT,
    ENTRY_SIZE,
    HASH_SLOT_COUNT_AT,
    HEADER_SIZE,
    INDEX_COUNT_AT,
    SLOT_SIZE,
    IndexHeader,
    IndexLayout,
    decode_header,
)
from spark_mq.format.kernels.big_endian import read_i32, read_i64, write_i32, write_i64
from spark_mq.format.kernels.kernel import kernel

_MAX_SECONDS = 0x7FFFFFFF


def new_index_file(
    layout: IndexLayout, end_timestamp: int = 0, end_commit_log_offset: int = 0, index_count: int = 1
) -> Bytes:
    """A file without entries: `layout.file_size` bytes.

    It begins where the file before it ended: `end_timestamp`, `end_commit_log_offset`; 0 where there is none.
    `index_count` shows only as long as no entry is put: a broker of 5.x that is stopped leaves 1 there, and one of 4.9,
    or one that is killed, 0 (`IndexService.shutdown`@5.3.3 flushes the header, @4.9.7 does nothing).
    """
    timestamp, offset = max(end_timestamp, 0), max(end_commit_log_offset, 0)
    header = IndexHeader(timestamp, timestamp, offset, offset, index_count=index_count)
    data = np.zeros(layout.file_size, np.uint8)
    data[:HEADER_SIZE] = np.frombuffer(header.encode(), np.uint8)
    return data


def drop_uncounted(data: Bytes, layout: IndexLayout, file: str = "index file") -> None:
    """Make a file, in place, what it was before an entry that a killed broker wrote and did not count.

    `IndexFile.putKey`@5.3.3 writes entry and slot before it counts the entry. Put again, the entry would find itself in
    its slot, and cut off all that the slot had before. What else a slot points to behind the last entry is no entry
    either, and would become one. Raises `CorruptIndexError` as `put_keys`.
    """
    layout.check_file_size(data.size, file)
    number = decode_header(data, layout, file).next_entry
    slots = data[HEADER_SIZE : layout.entries_at].view(">i4")
    if number < layout.index_num:
        entry_at = layout.entries_at + number * ENTRY_SIZE
        slot = read_i32(data, entry_at) % layout.hash_slot_num
        if slots[slot] == number:
            slots[slot] = read_i32(data, entry_at + 16)
        data[entry_at:] = 0
    slots[(slots < 0) | (slots >= number)] = 0


def put_keys(
    data: Bytes,
    layout: IndexLayout,
    key_hashes: Int32s,
    commit_log_offsets: Int64s,
    store_timestamps: Int64s,
    file: str = "index file",
) -> int:
    """Put entries into the file `data`, in place, until it is full; returns how many went in.

    The arrays have one value for each entry, in the order of the log. Raises `CorruptIndexError`, naming `file`, where
    `data` has another size than `layout`, or its header counts more entries than there is room for.
    """
    layout.check_file_size(data.size, file)
    decode_header(data, layout, file)
    if not key_hashes.size == commit_log_offsets.size == store_timestamps.size:
        raise ValueError("an entry has one key hash, one commit log offset and one store timestamp")
    return _put_keys(data, layout.hash_slot_num, layout.index_num, key_hashes, commit_log_offsets, store_timestamps)


@kernel
def _put_keys(
    data: Bytes,
    hash_slot_num: int,
    index_num: int,
    key_hashes: Int32s,
    commit_log_offsets: Int64s,
    store_timestamps: Int64s,
) -> int:
    begin_timestamp = read_i64(data, BEGIN_TIMESTAMP_AT)
    hash_slot_count = read_i32(data, HASH_SLOT_COUNT_AT)
    index_count = max(read_i32(data, INDEX_COUNT_AT), 1)
    put = 0
    while put < key_hashes.size and index_count < index_num:
        key_hash = int(key_hashes[put])
        commit_log_offset, store_timestamp = commit_log_offsets[put], store_timestamps[put]
        slot_at = HEADER_SIZE + key_hash % hash_slot_num * SLOT_SIZE
        previous_entry = read_i32(data, slot_at)
        if previous_entry <= 0 or previous_entry > index_count:
            previous_entry = 0

        time_difference = (store_timestamp - begin_timestamp) // 1000
        if begin_timestamp <= 0 or time_difference < 0:
            time_difference = 0
        elif time_difference > _MAX_SECONDS:
            time_difference = _MAX_SECONDS

        entry_at = HEADER_SIZE + hash_slot_num * SLOT_SIZE + index_count * ENTRY_SIZE
        write_i32(data, entry_at, key_hash)
        write_i64(data, entry_at + 4, commit_log_offset)
        write_i32(data, entry_at + 12, time_difference)
        write_i32(data, entry_at + 16, previous_entry)
        write_i32(data, slot_at, index_count)

        if index_count <= 1:  # only now: the first entry was timed against the end of the file before
            begin_timestamp = store_timestamp
            write_i64(data, BEGIN_TIMESTAMP_AT, store_timestamp)
            write_i64(data, BEGIN_COMMIT_LOG_OFFSET_AT, commit_log_offset)
        if previous_entry == 0:
            hash_slot_count += 1
        index_count += 1
        put += 1
    if put > 0:
        write_i32(data, HASH_SLOT_COUNT_AT, hash_slot_count)
        write_i32(data, INDEX_COUNT_AT, index_count)
        write_i64(data, END_COMMIT_LOG_OFFSET_AT, commit_log_offsets[put - 1])
        write_i64(data, END_TIMESTAMP_AT, store_timestamps[put - 1])
    return put
