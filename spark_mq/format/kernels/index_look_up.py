"""Many keys looked up in an index file at once, as kernels; the twin for one key is `spark_mq.format.index_query`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutFlags, OutInt64s
from spark_mq.format.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader, IndexLayout
from spark_mq.format.kernels.big_endian import read_i32, read_i64
from spark_mq.format.kernels.kernel import kernel

_FULL = -1
_MAX_OFFSET = (1 << 63) - 1


class FoundEntries(NamedTuple):
    """The entries that have one of the hashes: the index of the hash, and the commit log offset of each.

    `is_damaged` says of each hash whether its slot or an entry there is damaged; such a hash has no entries here.
    """

    hash_index: Int64s
    commit_log_offset: Int64s
    is_damaged: Flags


def find_entries(file: Bytes, layout: IndexLayout, header: IndexHeader, last: int, key_hashes: Int32s) -> FoundEntries:
    """The entries of an index file that have one of some hashes.

    Args:
        file: The bytes of the file.
        header: The header of the file, read after the bytes of no slot: entries that a broker adds later are damage.
        last: The largest commit log offset that an entry can have.
        key_hashes: Hashes that are not negative.
    """
    order = np.argsort(key_hashes % layout.hash_slot_num, kind="stable")
    is_damaged = np.zeros(key_hashes.size, np.bool_)
    size = 4 * key_hashes.size + 1024
    while True:
        hash_index, commit_log_offset = np.empty(size, np.int64), np.empty(size, np.int64)
        sizes = layout.hash_slot_num, layout.index_num, header.next_entry
        bounds = header.begin_commit_log_offset, last
        count = _walk_slots(file, *sizes, *bounds, key_hashes, order, hash_index, commit_log_offset, is_damaged)
        if count != _FULL:
            return FoundEntries(hash_index[:count], commit_log_offset[:count], is_damaged)
        size *= 2


@kernel
def _walk_slots(
    file: Bytes,
    slots: int,
    index_num: int,
    next_entry: int,
    first: int,
    last: int,
    key_hashes: Int32s,
    order: Int64s,
    hash_index: OutInt64s,
    commit_log_offset: OutInt64s,
    is_damaged: OutFlags,
) -> int:
    """Write what `find_entries` returns; the number of entries, or `_FULL` if there is no room for all."""
    count, highest = 0, min(next_entry, index_num - 1)
    entries_at = HEADER_SIZE + SLOT_SIZE * slots
    for index in order:
        key_hash = int(key_hashes[index])
        slot = key_hash % slots
        number = read_i32(file, HEADER_SIZE + SLOT_SIZE * slot)
        start, before = count, last
        is_sound = 0 <= number <= highest
        if next_entry <= 1:
            number = 0
        while is_sound and number > 0:
            at = entries_at + ENTRY_SIZE * number
            entry_hash, offset = read_i32(file, at), read_i64(file, at + 4)
            time_difference, previous = read_i32(file, at + 12), read_i32(file, at + 16)
            is_sound = entry_hash >= 0 and entry_hash % slots == slot and time_difference >= 0
            is_sound = is_sound and 0 <= previous < number and first <= offset <= before
            before = offset
            if is_sound and entry_hash == key_hash:
                left = read_i64(file, at + 4 - ENTRY_SIZE) if number > 1 else -1
                right = read_i64(file, at + 4 + ENTRY_SIZE) if number + 1 < next_entry else _MAX_OFFSET
                is_sound = left <= offset <= right
                if count == hash_index.size:
                    return _FULL
                hash_index[count], commit_log_offset[count] = index, offset
                count += 1
            number = previous
        if not is_sound:
            is_damaged[index], count = True, start
    return count
