"""The pointers that an index file must have, given the key hashes of its entries, and which entries are in order.

`IndexFile.putKey`@5.3.3 lets each entry point to the entry that its slot had before, and then lets the slot point to
the entry. So the hashes alone decide all pointers.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Int32s, Int64s, OutFlags, OutInt32s
from spark_mq.format.kernels.kernel import kernel


@kernel
def follow_slots(key_hashes: Int32s, first_number: int, slots: OutInt32s, previous: OutInt32s) -> int:
    """Put entries that come next, by their hashes, into `slots`; returns the number of slots that were empty before.

    Args:
        slots: The newest entry of each slot, 0 if it has none. It is updated.
        previous: The pointer that each entry must have is written here.
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
def longest_ascending(values: Int64s, kept: OutFlags) -> int:
    """Mark values that never descend, as many as possible; returns their number.

    Args:
        kept: Becomes True for each of these values; False before.
    """
    last = np.empty(values.size, np.int64)  # of each number of values, the place of the smallest value that ends them
    before = np.empty(values.size, np.int64)
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
