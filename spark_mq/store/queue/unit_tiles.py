"""From units of queues to tiles of the log (`tiles`): units that lead to messages and do not contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_DTYPE, Units, is_live
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.tiles import Chain

_TOGETHER = 1 << 14
"""Units that are compared together: their arrays stay in the cache of a processor, and in memory that is used again."""


def live_tiles(block: Units, within: LogRange) -> tuple[Int64s, Int64s]:
    """Commit log offsets and sizes of the units that lead to messages in a range of the log, in the order of units."""
    offsets, sizes = block["commit_log_offset"].astype(np.int64), block["store_size"].astype(np.int64)
    if not sizes.size or _are_live(offsets, sizes, within):
        return offsets, sizes
    is_kept = (sizes > 0) & (sizes != PRE_BLANK_SIZE) & (offsets >= within.start) & (offsets <= within.stop - sizes)
    return offsets[is_kept], sizes[is_kept]


def _are_live(offsets: Int64s, sizes: Int64s, within: LogRange) -> bool:
    """Whether all units lead to messages in a range of the log; there must be one."""
    return bool(
        sizes.min() > 0
        and sizes.max() < PRE_BLANK_SIZE
        and offsets.min() >= within.start
        and offsets.max() <= within.stop
        and (offsets + sizes).max() <= within.stop
    )


def in_order(block: Units) -> Units:
    """The units of one queue that are in the order of the log with all others of the block.

    The messages of a queue are in the log in the order of the queue. So of units that are not, some lead to messages of
    other queue offsets, and none of them is relied on.
    """
    offsets = block["commit_log_offset"].astype(np.int64)
    if (np.diff(offsets) > 0).all():
        return block
    live = np.flatnonzero(is_live(block))
    offsets = offsets[live]
    highest_before = np.maximum.accumulate(offsets[:-1])
    lowest_after = np.minimum.accumulate(offsets[:0:-1])[::-1]
    follows, precedes = np.append(True, offsets[1:] > highest_before), np.append(offsets[:-1] < lowest_after, True)
    kept: Units = block[live[follows[: live.size] & precedes[: live.size]]]
    return kept


def tiles_of(blocks: Iterable[Units], within: LogRange) -> tuple[Int64s, Int64s]:
    """Commit log offsets and sizes of units that lead to messages in a range of the log, by offset.

    If several units lead to one offset, none of them is returned: a message has one queue, so they contradict each
    other. (Light message queues share messages with other queues, and are not among `blocks`.)
    """
    offsets, sizes = live_tiles(np.concatenate([np.empty(0, UNIT_DTYPE), *blocks]), within)
    order = np.argsort(offsets, kind="stable")
    offsets, sizes = offsets[order], sizes[order]
    is_same = offsets[1:] == offsets[:-1]
    if is_same.any():
        is_single = ~(np.append(is_same, False) | np.append(False, is_same))
        offsets, sizes = offsets[is_single], sizes[is_single]
    return offsets, sizes


class UnitChain:
    """The chain of the tiles of units in a range of the log: those that `live_tiles` and `in_order` leave.

    Units are added queue by queue, each queue in its order. Blocks that were added are soon forgotten.
    """

    def __init__(self, within: LogRange) -> None:
        self._within = within
        self._chain = Chain()
        self._group: list[Units] = []
        self._size = 0

    def add(self, block: Units) -> None:
        """Add the units of one queue."""
        if self._size + block.size > _TOGETHER:
            self._add_group()
        if block.size:
            self._group.append(block)
            self._size += block.size

    def stop(self) -> int | None:
        """The end of the run from the start of the range on to which all tiles belong, as in `Chain.stop_from`."""
        self._add_group()
        return self._chain.stop_from(self._within.start)

    def _add_group(self) -> None:
        group, self._group, self._size = self._group, [], 0
        whole = _whole_chain(group, self._within) if group else Chain()
        if whole is not None:
            self._chain.join(whole)
            return
        for block in group:
            offsets, sizes = live_tiles(in_order(block), self._within)
            self._chain.add(offsets, offsets + sizes)


def _whole_chain(group: Sequence[Units], within: LogRange) -> Chain | None:
    """The chain of all units of a group; None if a unit does not lead to a message, or is not in order."""
    chain, before = Chain(), -1
    for blocks in [group] if len(group) > 1 else _pieces(group[0]):
        offsets = np.concatenate([block["commit_log_offset"] for block in blocks], dtype=np.int64)
        sizes = np.concatenate([block["store_size"] for block in blocks], dtype=np.int64)
        is_after = offsets[1:] > offsets[:-1]
        last = np.cumsum([block.size for block in blocks], dtype=np.intp) - 1
        is_after[last[:-1]] = True  # from one queue to the next
        if offsets[0] <= before or not is_after.all():
            return None
        # Each queue is ascending now: only its ends can be outside.
        first, stops = np.append(0, last[:-1] + 1), offsets + sizes
        if offsets[first].min() < within.start or offsets[last].max() > within.stop or stops.max() > within.stop:
            return None
        if sizes.min() <= 0 or sizes.max() >= PRE_BLANK_SIZE:
            return None
        chain.add(offsets, stops)
        before = int(offsets[-1])
    return chain


def _pieces(block: Units) -> Iterator[list[Units]]:
    """A block in pieces of at most `_TOGETHER` units."""
    for start in range(0, block.size, _TOGETHER):
        yield [block[start : start + _TOGETHER]]
