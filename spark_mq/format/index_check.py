"""A check of all pointers of an index file, and of the order of its entries, which a look-up of one key cannot do.

The key hashes of the entries decide every slot and every pointer, and the offsets of entries never descend
(`IndexFile.putKey`, `IndexService.buildIndex`@5.3.3). `format.kernels.index_chain` has the same rule as a kernel.
"""

from __future__ import annotations

import numpy as np

from spark_mq.errors import CorruptIndexError
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader
from spark_mq.format.index_query import IndexFile

_BATCH = 1 << 20
"""Slots or entries that are read together."""


def check_pointers(file: IndexFile, header: IndexHeader) -> None:
    """Check each pointer of an index file, and the order of its entries. Reads all slots and all entries.

    Raises:
        CorruptIndexError: A slot or an entry points to the wrong entry, entries are not in the order of the log, or the
            file is cut.
    """
    slots = np.zeros(file.layout.hash_slot_num, np.int32)
    newest_offset = 0
    for first in range(1, header.next_entry, _BATCH):
        count = min(_BATCH, header.next_entry - first)
        data = file.read_exactly(file.layout.entries_at + ENTRY_SIZE * first, ENTRY_SIZE * count)
        entries = np.frombuffer(data, ENTRY_DTYPE)
        offsets = np.concatenate(([newest_offset], entries["commit_log_offset"]))
        if (np.diff(offsets) < 0).any():
            raise CorruptIndexError(f"{file.name}: entries are not in the order of the log, so look-ups miss messages")
        newest_offset = int(offsets[-1])
        slot = entries["key_hash"].astype(np.int64) % slots.size
        order = np.argsort(slot, kind="stable")
        of_slot = slot[order]
        is_first = np.diff(of_slot, prepend=-1) != 0
        previous = np.where(is_first, slots[of_slot], first + np.concatenate(([0], order[:-1])))
        slots[of_slot] = first + order  # of equal slots, the last one stays
        if (entries["previous_entry"][order] != previous).any():
            raise _wrong_entry(file)
    for first in range(0, slots.size, _BATCH):
        count = min(_BATCH, slots.size - first)
        data = file.read_exactly(HEADER_SIZE + SLOT_SIZE * first, SLOT_SIZE * count)
        if (np.frombuffer(data, ">i4") != slots[first : first + count]).any():
            raise _wrong_entry(file)


def _wrong_entry(file: IndexFile) -> CorruptIndexError:
    return CorruptIndexError(
        f"{file.name}: a slot or an entry points to the wrong entry, so look-ups miss other entries"
    )
