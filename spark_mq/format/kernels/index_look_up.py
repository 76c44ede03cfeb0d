"""Many keys looked up in an index file at once, as kernels; the twin for one key is `spark_mq.format.index_file`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutFlags, OutInt64s
from spark_mq.format.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader, IndexLayout
from spark_mq.format.kernels.big_endian import prefetch, read_i32, read_i64
from spark_mq.format.kernels.kernel import kernel

_FULL = -1
_AHEAD = 16
_MAX_OFFSET = (1 << 63) - 1


class FoundEntries(NamedTuple):
    """The entries that have one of the hashes: the index of the hash, and the commit log offset of each.

    `is_damaged` says of each hash whether its slot or an entry there is damaged; such a hash has no entries here.
    """

    hash_index: Int64s
    commit_log_offset: Int64s
    is_damaged: Flags


def find_entries(file: Bytes, layout: IndexLayout, header: IndexHeader, last: int, key_hashes: Int32s) -> FoundEntries:
    """The entries of an index file that have one of some hashes, those of a hash from the newest to the oldest.

    Args:
        file: The bytes of the file.
        header: The header of the file, read after the bytes of no slot: entries that a broker adds later are damage.
        last: The largest commit log offset that an entry can have.
        key_hashes: Hashes that are not negative. Their slots are read in this order.
    """
    is_damaged = np.zeros(key_hashes.size, np.bool_)
    size = 4 * key_hashes.size + 1024
    while True:
        walked, before, numbers = (np.empty(key_hashes.size, np.int64) for _ in range(3))
        hash_index, commit_log_offset = np.empty(size, np.int64), np.empty(size, np.int64)
        sizes = layout.hash_slot_num, layout.index_num, header.next_entry
        bounds = header.begin_commit_log_offset, last
        found = hash_index, commit_log_offset
        count = _walk_slots(file, *sizes, *bounds, key_hashes, walked, before, numbers, *found, is_damaged)
        if count != _FULL:
            is_sound = ~is_damaged[hash_index[:count]]
            return FoundEntries(hash_index[:count][is_sound], commit_log_offset[:count][is_sound], is_damaged)
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
    walked: OutInt64s,
    before: OutInt64s,
    numbers: OutInt64s,
    hash_index: OutInt64s,
    commit_log_offset: OutInt64s,
    is_damaged: OutFlags,
) -> int:
    """Write what `find_entries` returns; the number of entries, or `_FULL` if there is no room for all.

    Each round reads one entry of every chain that goes on, so that the processor can fetch the entries ahead.
    `walked` has the indexes of these chains' hashes, `numbers` their next entries, `before` the offsets before these.
    """
    count, chains, highest = 0, 0, min(next_entry, index_num - 1)
    entries_at = HEADER_SIZE + SLOT_SIZE * slots
    for index in range(key_hashes.size):
        number = read_i32(file, HEADER_SIZE + SLOT_SIZE * (int(key_hashes[index]) % slots))
        is_damaged[index] = not 0 <= number <= highest
        if 0 < number <= highest and next_entry > 1:
            walked[chains], before[chains], numbers[chains] = index, last, number
            chains += 1
    while chains > 0:
        going_on = 0
        for chain in range(chains):
            if chain + _AHEAD < chains:
                prefetch(file, entries_at + ENTRY_SIZE * numbers[chain + _AHEAD])
            index, number = walked[chain], numbers[chain]
            key_hash, at = int(key_hashes[index]), entries_at + ENTRY_SIZE * number
            entry_hash, offset = read_i32(file, at), read_i64(file, at + 4)
            time_difference, previous = read_i32(file, at + 12), read_i32(file, at + 16)
            is_sound = entry_hash == key_hash or (entry_hash >= 0 and (entry_hash - key_hash) % slots == 0)
            is_sound = is_sound and time_difference >= 0
            is_sound = is_sound and 0 <= previous < number and first <= offset <= before[chain]
            if is_sound and entry_hash == key_hash:
                left = read_i64(file, at + 4 - ENTRY_SIZE) if number > 1 else -1
                right = read_i64(file, at + 4 + ENTRY_SIZE) if number + 1 < next_entry else _MAX_OFFSET
                is_sound = left <= offset <= right
                if count == hash_index.size:
                    return _FULL
                hash_index[count], commit_log_offset[count] = index, offset
                count += 1
            if not is_sound:
                is_damaged[index] = True
            # No branch: whether a chain goes on cannot be foreseen.
            walked[going_on], before[going_on], numbers[going_on] = index, offset, previous
            going_on += int(is_sound and previous > 0)
        chains = going_on
    return count
