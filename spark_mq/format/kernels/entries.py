"""The heads of DLedger entries: where the record after them starts, and their fields, as kernels.

`spark_mq.format.dledger` describes a head, and is the twin for one entry. As in `frames`, `base` is the commit log
offset of `buffer[0]`, and `end` the index at which the segment ends.
"""

from __future__ import annotations

from spark_mq.format import dledger
from spark_mq.format.array_types import Bytes, OutInt64s
from spark_mq.format.kernels.big_endian import read_i32, read_i64
from spark_mq.format.kernels.kernel import kernel

FIELDS = 5
"""Numbers of an entry in `scan_entries`: index in the buffer, size, magic number, index, term."""


@kernel
def is_entry(buffer: Bytes, position: int, base: int) -> bool:
    """Whether a head is at `position`; the buffer must have its 48 bytes."""
    magic = read_i32(buffer, position)
    if magic < dledger.MAGIC_NORMAL or magic > dledger.MAGIC_CONFIG_CHANGE:
        return False
    body_size = read_i32(buffer, position + dledger.BODY_SIZE_AT)
    if body_size < 0 or body_size > dledger.MAX_ENTRY_SIZE - dledger.HEAD_SIZE:
        return False
    if read_i32(buffer, position + 4) != body_size + dledger.HEAD_SIZE:
        return False
    return bool(read_i64(buffer, position + dledger.POSITION_AT) == base + position)


@kernel
def after_heads(buffer: Bytes, position: int, base: int) -> int:
    """The position after the head at `position`, and after entries without a body; `position` if no head is there."""
    while buffer.size - position >= dledger.HEAD_SIZE and is_entry(buffer, position, base):
        position += dledger.HEAD_SIZE
        if read_i32(buffer, position - 4) > 0:
            break
    return position


@kernel
def scan_entries(
    buffer: Bytes, position: int, stop: int, base: int, end: int, entries: OutInt64s
) -> tuple[int, int, bool]:
    """The fields of the entries from `position` on that start before `stop`; `entries` has room for `FIELDS` of each.

    Returns the number of entries, the position at which the scan ended, and whether a blank is there.
    """
    count = 0
    while position < stop and buffer.size - position >= dledger.HEAD_SIZE and (count + 1) * FIELDS <= entries.size:
        if not is_entry(buffer, position, base):
            break
        size = read_i32(buffer, position + 4)
        if size > end - position:
            break
        at = count * FIELDS
        entries[at] = position
        entries[at + 1] = size
        entries[at + 2] = read_i32(buffer, position)
        entries[at + 3] = read_i64(buffer, position + 8)
        entries[at + 4] = read_i64(buffer, position + 16)
        position += size
        count += 1
    is_blank = end - position >= 8 and buffer.size - position >= 8 and read_i32(buffer, position) == dledger.BLANK_MAGIC
    return count, position, is_blank and read_i32(buffer, position + 4) == end - position


@kernel
def find_entry(buffer: Bytes, position: int, base: int) -> int:
    """The first position from `position` on that has a head; the first one that the buffer cannot decide if none."""
    while buffer.size - position >= dledger.HEAD_SIZE:
        if is_entry(buffer, position, base):
            return position
        position += 1
    return position
