"""Filling index files entry by entry, as the broker does (`IndexFile.putKey`@5.3.3; as in 4.9.0), and following slots.

Header and slots are the whole state, so a file of a broker is continued in the same way as a new file. Only they are in
memory, 20 MB for a file of default size: the entries come and go in blocks.

`IndexFile.putKey`@5.3.3 lets each entry point to the entry that its slot had before, and then lets the slot point to
the entry. So the hashes alone decide all pointers.
"""

from __future__ import annotations

import numpy as np

from spark_mq.errors import CorruptIndexError
from spark_mq.format import index_file
from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutFlags, OutInt32s, OutInt64s, native
from spark_mq.format.index_file import (
    ENTRY,
    ENTRY_DTYPE,
    ENTRY_SIZE,
    HEADER_SIZE,
    MAX_TIME_DIFFERENCE,
    SLOT_SIZE,
    IndexFile,
    IndexHeader,
    IndexLayout,
    decode_header,
)
from spark_mq.format.kernels.big_endian import copy_bytes, read_i32, read_i64, write_i32, write_i64
from spark_mq.format.kernels.kernel import kernel

_BLOCK_ENTRIES = 256
_BATCH = 1 << 20
"""Slots or entries of which the pointers are checked together."""


@kernel
def follow_slots(key_hashes: Int32s, first_number: int, slots: OutInt32s, previous: OutInt32s) -> int:
    """Put entries that come next, by their hashes, into `slots`; returns the number of slots that were empty before.

    `slots` has the newest entry of each slot, or 0. The pointer of each entry is written into `previous`.
    """
    used = 0
    for index in range(key_hashes.size):
        slot = int(np.uint32(key_hashes[index]) % np.uint32(slots.size))
        before = slots[slot]
        previous[index] = before
        slots[slot] = first_number + index
        if before == 0:
            used += 1
    return used


@kernel
def same_entries(
    key_hashes: Int32s, offsets: Int64s, with_tags: int, found_hashes: Int32s, found_offsets: Int64s
) -> tuple[int, int, int]:
    """The number of messages that show whether tags have entries; -1 if not exactly the expected entries were found.

    Hashes of tags are marked, see `indexer.staged_files`; their entries are expected only `with_tags`, which is 0 or 1.
    A message whose key has the hash of its tags shows nothing, and no more does one without keys and without entries.
    Returns also the places of the tags of the first and of the last message that shows it.
    """
    shown, first, last, at, start = 0, -1, -1, 0, 0
    for index in range(key_hashes.size):
        key_hash, offset = key_hashes[index], offsets[index]
        is_tag = key_hash < 0
        key_hash ^= key_hash >> 31
        if index and offset != offsets[index - 1]:
            start = index
        if is_tag:
            is_shown = with_tags != 0 or start < index
            for key in range(start, index):
                is_shown &= key_hashes[key] != key_hash
            if is_shown:
                first = index if shown == 0 else first
                shown, last = shown + 1, index
        if with_tags != 0 or not is_tag:
            if at >= found_hashes.size or found_hashes[at] != key_hash or found_offsets[at] != offset:
                return -1, -1, -1
            at += 1
    return (shown if at == found_hashes.size else -1), first, last


@kernel
def drop_tags(entries: Bytes, edges: Int64s, kept: OutBytes) -> int:
    """Copy staged entries to `kept`, without the marked ones outside some ranges; returns the number of bytes.

    `edges` has the first commit log offset of each range, and the one after its last, in ascending order.
    """
    size, edge = 0, 0
    for position in range(0, entries.size, ENTRY_SIZE):
        while edge < edges.size and edges[edge] <= read_i64(entries, position + 4):
            edge += 1
        if edge % 2 == 1 or read_i32(entries, position) >= 0:
            copy_bytes(kept, size, entries, position, ENTRY_SIZE)
            size += ENTRY_SIZE
    return size


def check_pointers(file: IndexFile, header: IndexHeader) -> None:
    """Check all slots and entries of an index file; a wrong pointer or order, or a cut, is a `CorruptIndexError`."""
    slots, newest_offset = np.zeros(file.layout.hash_slot_num, np.int32), 0
    wrong = f"{file.name}: a slot or an entry points to the wrong entry, so look-ups miss other entries"
    for first in range(1, header.next_entry, _BATCH):
        count = min(_BATCH, header.next_entry - first)
        data = file.read_exactly(file.layout.entries_at + ENTRY_SIZE * first, ENTRY_SIZE * count)
        entries, previous = np.frombuffer(data, ENTRY_DTYPE), np.empty(count, np.int32)
        offsets = np.concatenate(([newest_offset], entries["commit_log_offset"]))
        if (np.diff(offsets) < 0).any():
            raise CorruptIndexError(f"{file.name}: entries are not in the order of the log, so look-ups miss messages")
        newest_offset = int(offsets[-1])
        follow_slots(native(entries["key_hash"]), first, slots, previous)
        if (entries["previous_entry"] != previous).any():
            raise CorruptIndexError(wrong)
    for first in range(0, slots.size, _BATCH):
        count = min(_BATCH, slots.size - first)
        data = file.read_exactly(HEADER_SIZE + SLOT_SIZE * first, SLOT_SIZE * count)
        if (np.frombuffer(data, ">i4") != slots[first : first + count]).any():
            raise CorruptIndexError(wrong)


def longest_ascending(values: Int64s, kept: OutFlags) -> int:
    """Mark values that never descend, as many as possible; returns their number."""
    return _longest_ascending(values, kept, np.empty(values.size, np.int64), np.empty(values.size, np.int64))


@kernel
def _longest_ascending(values: Int64s, kept: OutFlags, last: OutInt64s, before: OutInt64s) -> int:
    # `last` has, of each number of values, the place of the smallest value that ends them.
    count = 0
    for index in range(values.size):
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if values[last[middle]] <= values[index]:
                low = middle + 1
            else:
                high = middle
        before[index] = last[low - 1] if low else -1
        last[low] = index
        count = max(count, low + 1)
    at = last[count - 1] if count else -1
    while at >= 0:
        kept[at] = True
        at = before[at]
    return count


def new_index_head(
    layout: IndexLayout, end_timestamp: int = 0, end_commit_log_offset: int = 0, index_count: int = 1
) -> Bytes:
    """Header and slots of an index file without entries: `layout.entries_at` bytes; the rest of the file are zeros.

    Args:
        index_count: The index count in the header as long as the file has no entry. A broker of 5.x that is stopped
            leaves 1, a broker of 4.9 or one that is killed leaves 0 (`IndexService.shutdown`@5.3.3 flushes the header,
            @4.9.7 does not).
    """
    timestamp, offset = max(end_timestamp, 0), max(end_commit_log_offset, 0)
    header = IndexHeader(timestamp, timestamp, offset, offset, index_count=index_count)
    head = np.zeros(layout.entries_at, np.uint8)
    head[:HEADER_SIZE] = np.frombuffer(header.encode(), np.uint8)
    return head


def drop_uncounted(head: Bytes, entry: bytes, layout: IndexLayout, file: str = "index file") -> None:
    """Remove from header and slots of a file, in place, the entry that a killed broker wrote but did not count.

    `entry` has the bytes of the entry after the last one that counts; none if the file is full.

    `IndexFile.putKey`@5.3.3 writes an entry and its slot before it counts the entry. If this entry were put again, its
    slot would already point to it, so the entry would point to itself and the slot's earlier entries would be lost.
    Other slots that point past the last entry are cleared, too: they would point to entries that are put later.
    """
    number = decode_header(head, layout, file).next_entry
    slots = head[HEADER_SIZE:].view(">i4")
    if number < layout.index_num:
        key_hash, _, _, previous_entry = ENTRY.unpack(entry)
        slot = key_hash % layout.hash_slot_num
        if slots[slot] == number:
            slots[slot] = previous_entry
    slots[(slots < 0) | (slots >= number)] = 0


def put_keys(head: Bytes, layout: IndexLayout, entries: Bytes, file: str = "index file") -> int:
    """Put staged entries into a file, until it is full; returns the number of entries that were put.

    Args:
        head: Header and slots of the file, which are updated in place.
        entries: The bytes of entries whose last eight bytes are the store timestamp, and whose hashes can be marked
            (`IndexKeys`). In place, they become the entries of the file that follow those that it has.
    """
    if head.size != layout.entries_at:
        raise ValueError(f"{file}: header and slots have {layout.entries_at} bytes, not {head.size}")
    decode_header(head, layout, file)
    block_slots = np.empty(_BLOCK_ENTRIES, np.int64)
    count, _ = _put_keys(head, layout.hash_slot_num, layout.index_num, entries, block_slots)
    return count


@kernel
def _put_keys(
    head: OutBytes, hash_slot_num: int, index_num: int, entries: OutBytes, block_slots: OutInt64s
) -> tuple[int, int]:
    """Put entries block by block; returns their number, and a value that keeps the compiler from dropping a loop.

    Slots are spread over more memory than a processor's cache has. The first loop over a block reads all its slots,
    independently of each other, so that the second loop, which is `IndexFile.putKey`, finds them in the cache.
    """
    begin_timestamp = read_i64(head, index_file.BEGIN_TIMESTAMP_AT)
    hash_slot_count = read_i32(head, index_file.HASH_SLOT_COUNT_AT)
    index_count = read_i32(head, index_file.INDEX_COUNT_AT)
    if index_count < 1:
        index_count = 1
    count = entries.size // ENTRY_SIZE
    if count > index_num - index_count:
        count = index_num - index_count
    touched, commit_log_offset, store_timestamp = 0, 0, 0
    for block in range(0, count, block_slots.size):
        block_end = block + block_slots.size if block + block_slots.size < count else count
        for number in range(block, block_end):
            key_hash = read_i32(entries, number * ENTRY_SIZE)
            key_hash ^= key_hash >> 31  # without its mark
            slot = int(np.uint32(key_hash) % np.uint32(hash_slot_num))  # faster than with 64 bits
            slot_at = HEADER_SIZE + slot * SLOT_SIZE
            block_slots[number - block] = slot_at
            touched |= read_i32(head, slot_at)
            write_i32(entries, number * ENTRY_SIZE, key_hash)
        for number in range(block, block_end):
            entry_at = number * ENTRY_SIZE
            commit_log_offset, store_timestamp = read_i64(entries, entry_at + 4), read_i64(entries, entry_at + 12)
            slot_at = block_slots[number - block]
            previous_entry = read_i32(head, slot_at)
            if previous_entry <= 0 or previous_entry > index_count:
                previous_entry = 0

            time_difference = (store_timestamp - begin_timestamp) // 1000
            if begin_timestamp <= 0 or time_difference < 0:
                time_difference = 0
            elif time_difference > MAX_TIME_DIFFERENCE:
                time_difference = MAX_TIME_DIFFERENCE

            write_i32(entries, entry_at + 12, time_difference)
            write_i32(entries, entry_at + 16, previous_entry)
            write_i32(head, slot_at, index_count)

            if index_count <= 1:  # only now, because the first entry's time counts from the end of the file before
                begin_timestamp = store_timestamp
                write_i64(head, index_file.BEGIN_TIMESTAMP_AT, store_timestamp)
                write_i64(head, index_file.BEGIN_COMMIT_LOG_OFFSET_AT, commit_log_offset)
            if previous_entry == 0:
                hash_slot_count += 1
            index_count += 1
    if count > 0:
        write_i32(head, index_file.HASH_SLOT_COUNT_AT, hash_slot_count)
        write_i32(head, index_file.INDEX_COUNT_AT, index_count)
        write_i64(head, index_file.END_COMMIT_LOG_OFFSET_AT, commit_log_offset)
        write_i64(head, index_file.END_TIMESTAMP_AT, store_timestamp)
    return count if count > 0 else 0, touched
