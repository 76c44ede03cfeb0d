"""Units of queues as extents of the log: parts of the log for which units account.

A unit says where a record starts and how long it is, so it is an *extent* of the log. Extents that follow one another
without a gap are a *run*. If the first and the last extent of a run are records, no other record starts between them:
the sizes of records lead from each record to the next one. So a run proves which records its part of the log has, and
nothing of that part has to be read. Everything that no unit accounts for breaks a run: messages that were not
dispatched, lost units, files or queues, and messages that queues never contain (transaction types PREPARED and
ROLLBACK, inner batches).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_DTYPE, Units, is_live
from spark_mq.format.java_text import decode_utf8
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import QueueCover

_LEAST, _MOST = 128, 1 << 16
"""Units of one read, at least and at most."""
_NO_UNITS: Units = np.empty(0, UNIT_DTYPE)
_TRIES = 4
"""The number of extents at each end of a run that are compared with the log before the run is given up."""
_TOGETHER = 1 << 14
"""Units that are compared together: their arrays stay in the cache of a processor, and in memory that is used again."""


class UnitCursor:
    """Reads the units of a queue once, in blocks.

    `position` is the queue offset of the first unit that was not taken. `stop` is the queue offset at which the cursor
    ends. A unit that is out of order can be left out; a reader of its part of the log must not rely on it.
    """

    def __init__(self, queue: ConsumeQueue, stop: int, log_start: int, parts: int) -> None:
        """Begin at the first unit of a message at commit log offset `log_start` or later."""
        self.queue = queue
        self.stop = stop
        self.position = first_unit_from(queue, log_start, stop)
        self._block = _NO_UNITS
        self._count = min(max((stop - self.position) // max(parts, 1) + _LEAST, _LEAST), _MOST)

    def take(self, log_stop: int) -> tuple[int, Units]:
        """The next units of messages before the commit log offset `log_stop`, and the queue offset of the first one."""
        first, parts = self.position, []
        while True:
            if not self._block.size:
                if self.position >= self.stop:
                    break
                self._block = self.queue.units(self.position, min(self.position + self._count, self.stop))
            taken = _units_before(self._block, log_stop)
            parts.append(self._block[:taken])
            self.position += taken
            self._block = self._block[taken:] if taken < self._block.size else _NO_UNITS  # the memory can be used again
            if self._block.size:
                break
        if len(parts) == 1:
            return first, parts[0]
        return first, np.concatenate(parts) if parts else _NO_UNITS

    def following(self) -> tuple[int, int]:
        """The queue offsets from the first to the last (not included) of the next block to be read."""
        start = self.position + self._block.size
        return start, min(start + self._count, self.stop)


def _units_before(block: Units, log_stop: int) -> int:
    """The number of units up to the last one of a message before the commit log offset `log_stop`."""
    if block["commit_log_offset"][-1] < log_stop:
        return block.size
    before = np.flatnonzero(block["commit_log_offset"] < log_stop)
    return int(before[-1]) + 1 if before.size else 0


def first_unit_from(queue: ConsumeQueue, commit_log_offset: int, stop: int) -> int:
    """The queue offset of the first unit of a message at a commit log offset or later, if units are in order."""
    first = queue.files[0].first if queue.files else 0
    if first >= stop or queue.unit(first)[0] >= commit_log_offset:
        return first
    return bisect_left(range(stop), commit_log_offset, first + 1, key=lambda queue_offset: queue.unit(queue_offset)[0])


def own_stop(cover: QueueCover) -> int | None:
    """The queue offset after the last unit that leads to a message of the queue's own topic; None without one.

    Units after it are stale, or of messages that follow the live end. The messages of a light message queue belong to
    other topics. If a recovery truncated the log, stale units remain only at the end of a queue: so the units before
    that of a dispatched message are not stale.
    """
    proven = cover.dispatched.last_proven
    if proven is None:
        return None
    record = proven.record
    is_own = record.queue_id == cover.queue_id and decode_utf8(record.topic) == cover.topic
    return proven.queue_offset + 1 if is_own else None


class Chain:
    """Whether extents, in any order, are one run. It is found without sorting them.

    In a run from `start` to `stop`, each place but these two is the start of one extent and the stop of one. So the
    starts and `stop` are the stops and `start`, in another order. Hashes of both are added up, modulo 2 ** 64, and
    compared. Extents for which the sums agree are one run, because each extent stops after its start.
    """

    def __init__(self) -> None:
        self._difference = 0
        self._stop = 0
        self._size = 0

    def add(self, starts: Int64s, stops: Int64s) -> None:
        """Add extents by their starts and stops; each stop is after its start."""
        if starts.size:
            self._difference += _hash_sum(starts) - _hash_sum(stops)
            self._stop = max(self._stop, int(stops.max()))
            self._size += int((stops - starts).sum())

    def join(self, other: Chain) -> None:
        """Add the extents of another chain."""
        self._difference += other._difference
        self._stop = max(self._stop, other._stop)
        self._size += other._size

    def stop_from(self, start: int) -> int | None:
        """The end of the run from `start` on to which all extents belong; None if they are not one run, or none."""
        ends = np.array([start], np.int64), np.array([self._stop], np.int64)
        agrees = (self._difference + _hash_sum(ends[1]) - _hash_sum(ends[0])) % (1 << 64) == 0
        return self._stop if self._size and agrees and self._stop - start == self._size else None


def _hash_sum(values: Int64s) -> int:
    """The sum of the hashes of all values, modulo 2 ** 64."""
    mixed = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return int(mixed.sum())


def runs_of(offsets: Int64s, sizes: Int64s) -> list[tuple[int, int]]:
    """The runs of extents, as half-open ranges of indexes; `offsets` must be ascending, without repetition."""
    if not offsets.size:
        return []
    breaks = (np.flatnonzero(offsets[:-1] + sizes[:-1] != offsets[1:]) + 1).tolist()
    bounds = [0, *breaks, offsets.size]
    return list(pairwise(bounds))


def accounted(offsets: Int64s, sizes: Int64s, is_record: Callable[[int, int], bool], most: int) -> list[LogRange]:
    """The ranges of the log for which extents account, in order. Each starts and ends with a whole record."""
    runs = runs_of(offsets, sizes)
    if len(runs) > most:
        runs = sorted(sorted(runs, key=lambda run: run[0] - run[1])[:most])

    def leads(at: int) -> bool:
        return is_record(int(offsets[at]), int(sizes[at]))

    found = []
    for start, stop in runs:
        first = next(filter(leads, range(start, min(start + _TRIES, stop))), None)
        if first is None:
            continue
        tries = range(stop - 1, max(stop - 1 - _TRIES, first - 1), -1)
        last = next((at for at in tries if at == first or leads(at)), None)
        if last is not None:
            found.append(LogRange(int(offsets[first]), int(offsets[last] + sizes[last])))
    # Of two that contradict each other, neither proves anything.
    result, reached = [], -1
    for index, part in enumerate(found):
        following = found[index + 1].start if index + 1 < len(found) else part.stop
        if reached <= part.start and part.stop <= following:
            result.append(part)
        reached = max(reached, part.stop)
    return result


def live_extents(block: Units, within: LogRange) -> tuple[Int64s, Int64s]:
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


def extents_of(blocks: Iterable[Units], within: LogRange) -> tuple[Int64s, Int64s]:
    """Commit log offsets and sizes of units that lead to messages in a range of the log, by offset.

    If several units lead to one offset, none of them is returned: a message has one queue, so they contradict each
    other. (Light message queues share messages with other queues, and are not among `blocks`.)
    """
    offsets, sizes = live_extents(np.concatenate([np.empty(0, UNIT_DTYPE), *blocks]), within)
    order = np.argsort(offsets, kind="stable")
    offsets, sizes = offsets[order], sizes[order]
    is_same = offsets[1:] == offsets[:-1]
    if is_same.any():
        is_single = ~(np.append(is_same, False) | np.append(False, is_same))
        offsets, sizes = offsets[is_single], sizes[is_single]
    return offsets, sizes


class UnitChain:
    """The chain of the extents of units in a range of the log: those that `live_extents` and `in_order` leave."""

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
        """The end of the run from the start of the range on to which all extents belong, as in `Chain.stop_from`."""
        self._add_group()
        return self._chain.stop_from(self._within.start)

    def _add_group(self) -> None:
        group, self._group, self._size = self._group, [], 0
        whole = _whole_chain(group, self._within) if group else Chain()
        if whole is not None:
            self._chain.join(whole)
            return
        for block in group:
            offsets, sizes = live_extents(in_order(block), self._within)
            self._chain.add(offsets, offsets + sizes)


def _whole_chain(group: Sequence[Units], within: LogRange) -> Chain | None:
    """The chain of all units of a group; None if a unit does not lead to a message, or is not in order."""
    chain, before = Chain(), -1
    starts = range(0, group[0].size, _TOGETHER)
    for blocks in [group] if len(group) > 1 else ([group[0][start : start + _TOGETHER]] for start in starts):
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
