"""Whether an index file's pointers are whole: a check of all of it, which no look-up of a key can make.

Each entry is pointed to exactly once, by its slot or by the next entry of that slot (`IndexFile.putKey`@5.3.3). So the
pointers of a file add up to 1 + 2 + ... + n, and one that was changed changes the sum.
"""

from __future__ import annotations

import numpy as np

from spark_mq.errors import CorruptIndexError
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader
from spark_mq.format.index_query import IndexFile

_AT_A_TIME = 1 << 20


def check_pointers(file: IndexFile, header: IndexHeader) -> None:
    """Raise `CorruptIndexError` where an entry is not pointed to exactly once. Reads the whole file."""
    total = 0
    for first in range(0, file.layout.hash_slot_num, _AT_A_TIME):
        count = min(_AT_A_TIME, file.layout.hash_slot_num - first)
        data = file.read_exactly(HEADER_SIZE + SLOT_SIZE * first, SLOT_SIZE * count)
        total += int(np.frombuffer(data, ">i4").sum(dtype=np.int64))
    for first in range(1, header.next_entry, _AT_A_TIME):
        count = min(_AT_A_TIME, header.next_entry - first)
        data = file.read_exactly(file.layout.entries_at + ENTRY_SIZE * first, ENTRY_SIZE * count)
        total += int(np.frombuffer(data, ENTRY_DTYPE)["previous_entry"].sum(dtype=np.int64))
    if total != header.next_entry * (header.next_entry - 1) // 2:
        raise CorruptIndexError(f"{file.name}: a slot or an entry points to the wrong entry, so that others are lost")
