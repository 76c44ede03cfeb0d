"""The pointers that an index file must have, given the key hashes of its entries, as a kernel.

`IndexFile.putKey`@5.3.3 lets each entry point to the entry that its slot had before, and then lets the slot point to
the entry. So the hashes alone decide all pointers.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Int32s, OutInt32s
from spark_mq.format.kernels.kernel import kernel


@kernel
def follow_slots(key_hashes: Int32s, first_number: int, slots: OutInt32s, previous: OutInt32s) -> int:
    """Put entries that come next, by their hashes, into `slots`; returns the number of slots that were empty before.

    Args:
        key_hashes: The key hash of each entry.
        first_number: The number of the first of these entries.
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
