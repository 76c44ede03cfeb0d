"""A check of all pointers of an index file, which a look-up of one key cannot do.

Exactly one pointer leads to each entry: its slot, or the next entry of that slot (`IndexFile.putKey`@5.3.3). So the
pointers of a file with n entries add up to 1 + 2 + ... + n, and a single changed pointer changes the sum.
"""

from __future__ import annotations

import numpy as np

from spark_mq.errors import CorruptIndexError
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader
from spark_mq.format.index_query import IndexFile

_BATCH = 1 << 20
"""Slots or entries that are read together."""


def check_pointers(file: IndexFile, header: IndexHeader) -> None:
    """Check the sum of an index file's pointers. Reads all slots and all entries that `header` counts.

    Raises:
        CorruptIndexError: A slot or an entry points to the wrong entry, or the file is cut.
    """
    total = 0
    for first in range(0, file.layout.hash_slot_num, _BATCH):
        count = min(_BATCH, file.layout.hash_slot_num - first)
        data = file.read_exactly(HEADER_SIZE + SLOT_SIZE * first, SLOT_SIZE * count)
        total += int(np.frombuffer(data, ">i4").sum(dtype=np.int64))
    for first in range(1, header.next_entry, _BATCH):
        count = min(_BATCH, header.next_entry - first)
        data = file.read_exactly(file.layout.entries_at + ENTRY_SIZE * first, ENTRY_SIZE * count)
        total += int(np.frombuffer(data, ENTRY_DTYPE)["previous_entry"].sum(dtype=np.int64))
    if total != header.next_entry * (header.next_entry - 1) // 2:
        raise CorruptIndexError(
            f"{file.name}: a slot or an entry points to the wrong entry, so look-ups miss other entries"
        )
