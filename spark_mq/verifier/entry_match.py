"""Which expected index entry each found entry is: found entries can be wrong, doubled, missing, or of expired messages.

Both kinds are in the order of the log, so almost always they are equal, one after the other. If they are not, an entry
is found by its commit log offset and key hash, and an entry between two found ones takes the place between them.

A broker never puts a message that is before the last one of the index (`IndexService.buildIndex`@5.3.3), so the offsets
of entries never descend. An entry that is not in this order is wrong, whatever message it leads to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_mq.format.kernels.index_chain import longest_ascending
from spark_mq.indexer.staging.staged_entries import EntryBatch
from spark_mq.verifier.expected_entries import ExpectedEntries
from spark_mq.verifier.log_bounds import LogBounds

Numbers = npt.NDArray[np.int64]
Which = npt.NDArray[np.bool_]

NONE = -1
_MAX_WINDOWS = 8
"""Parts of the log in which entries of one block are searched for: a block has few gaps, but can have any offsets."""


@dataclass(frozen=True)
class EntryMatch:
    """The result for one block of found entries.

    Attributes:
        number: The number of the expected entry for each found entry; -1 if there is none.
        is_same: Whether the found entry has the hash and the offset of that expected entry.
        is_double: Whether an earlier found entry is the same expected entry.
        key_hashes: The hash that each found entry should have.
        store_timestamps: The store time of each found entry's message, in milliseconds; -1 if it is not known.
        missing: The numbers of expected entries that no found entry is, before the last matched one.
        next_number: The number of the entry that is expected after the block.
    """

    number: Numbers
    is_same: Which
    is_double: Which
    key_hashes: npt.NDArray[np.int32]
    store_timestamps: Numbers
    missing: Numbers
    next_number: int | None


def match_entries(
    key_hashes: npt.NDArray[np.int32],
    offsets: Numbers,
    expected: ExpectedEntries,
    next_number: int | None,
    bounds: LogBounds,
) -> EntryMatch:
    """Match one block of found entries.

    Args:
        next_number: The number of the entry that is expected first; None if that is not known.
        bounds: Start, end and holes of the log.
    """
    size = offsets.size
    if next_number is not None:
        same = expected.read(next_number, next_number + size)
        if (
            same.key_hashes.size == size
            and (same.key_hashes == key_hashes).all()
            and (same.commit_log_offsets == offsets).all()
        ):
            numbers = np.arange(next_number, next_number + size)
            everything, nothing = np.ones(size, np.bool_), np.zeros(size, np.bool_)
            empty = np.empty(0, np.int64)
            return EntryMatch(
                numbers, everything, nothing, key_hashes, same.store_timestamps, empty, next_number + size
            )
    return _Search(key_hashes, offsets, expected, next_number, bounds).result()


class _Search:
    """The match of a block that is not equal to the entries that are expected next."""

    def __init__(
        self,
        key_hashes: npt.NDArray[np.int32],
        offsets: Numbers,
        expected: ExpectedEntries,
        next_number: int | None,
        bounds: LogBounds,
    ) -> None:
        self.key_hashes, self.offsets, self.expected, self.next_number = key_hashes, offsets, expected, next_number
        self.in_log = (offsets >= bounds.start) & (offsets < bounds.end)
        self.is_lost = self.in_log & bounds.is_lost(offsets)
        self.number = np.full(offsets.size, NONE, np.int64)
        self.is_double = np.zeros(offsets.size, np.bool_)

    def result(self) -> EntryMatch:
        untried = self.in_log.copy()
        for _ in range(_MAX_WINDOWS):
            at = np.flatnonzero(untried)
            if not at.size:
                break
            untried[at] = ~self._search_near(at, int(np.sort(self.offsets[at])[at.size // 2]))
        self._drop_displaced()
        is_same = self.number != NONE
        self._place_between()
        matched = self.number[(self.number != NONE) & ~self.is_double]
        begin = self.next_number
        if begin is None and (self.number != NONE).any():
            begin = int(self.number[self.number != NONE][0])
        stop = begin
        missing = np.empty(0, np.int64)
        if matched.size and begin is not None:
            stop = max(begin, int(matched.max()) + 1)
            is_there = np.zeros(max(stop - begin, 0), np.bool_)
            is_there[matched[matched >= begin] - begin] = True
            missing = begin + np.flatnonzero(~is_there)
        hashes, times = self.key_hashes.copy(), np.full(self.offsets.size, -1, np.int64)
        placed = np.flatnonzero(self.number != NONE)
        if placed.size:
            first, last = int(self.number[placed].min()), int(self.number[placed].max())
            if last - first < 4 * self.offsets.size + (1 << 20):
                window = self.expected.read(first, last + 1)
                at = self.number[placed] - first
                hashes[placed], times[placed] = window.key_hashes[at], window.store_timestamps[at]
            else:
                for index in placed.tolist():
                    one = self.expected.read(int(self.number[index]), int(self.number[index]) + 1)
                    hashes[index], times[index] = one.key_hashes[0], one.store_timestamps[0]
        return EntryMatch(self.number, is_same, self.is_double, hashes, times, missing, stop)

    def _search_near(self, at: Numbers, offset: int) -> Which:
        """Search for the entries `at` among those near a commit log offset; which of them are decided."""
        middle, size = self.expected.position_of(offset), self.offsets.size
        window = self.expected.read(max(middle - 2 * size, 0), middle + 2 * size + 1)
        if not window.key_hashes.size:
            return np.ones(at.size, np.bool_)
        lowest, highest = int(window.commit_log_offsets[0]), int(window.commit_log_offsets[-1])
        # All entries of each message: one with more keys than the block has entries fills several index files.
        first = self.expected.position_of(lowest)
        window = self.expected.read(first, self.expected.position_of(highest + 1))
        offsets = self.offsets[at]
        decided: Which = (offsets >= lowest) & (offsets <= highest)
        if first == 0:
            decided |= offsets < lowest
        if first + window.key_hashes.size == self.expected.count:
            decided |= offsets > highest
        decided |= offsets == offset
        self._join(at[decided], window, first)
        return decided

    def _join(self, at: Numbers, window: EntryBatch, first: int) -> None:
        messages, message_of = np.unique(window.commit_log_offsets, return_inverse=True)
        want = message_of.astype(np.int64) << 32 | window.key_hashes.astype(np.int64)
        offsets = self.offsets[at]
        place = np.minimum(np.searchsorted(messages, offsets), messages.size - 1)
        known = messages[place] == offsets
        at, place = at[known], place[known]
        have = place.astype(np.int64) << 32 | (self.key_hashes[at].astype(np.int64) & 0xFFFFFFFF)
        want_order, have_order = np.argsort(want, kind="stable"), np.argsort(have, kind="stable")
        want, have = want[want_order], have[have_order]
        left, right = np.searchsorted(want, have, "left"), np.searchsorted(want, have, "right")
        rank = np.arange(have.size) - np.searchsorted(have, have, "left")
        is_there = left + rank < right
        self.number[at[have_order[is_there]]] = first + want_order[(left + rank)[is_there]]
        double = ~is_there & (right > left)
        self.number[at[have_order[double]]] = first + want_order[(right - 1)[double]]
        self.is_double[at[have_order[double]]] = True

    def _drop_displaced(self) -> None:
        """Forget the place of entries that are not in the order of the log; mark those that come again.

        Only the message at which the index ended before can come again, so its entries are before `next_number`.
        """
        if self.next_number:
            last = self.expected.read(self.next_number - 1, self.next_number).commit_log_offsets
            self.number[(self.number < self.next_number) & ~np.isin(self.offsets, last)] = NONE
        self._keep(self.offsets)
        found = np.flatnonzero(self.number != NONE)
        order = found[np.argsort(self.number[found], kind="stable")]
        again = order[1:][np.diff(self.number[order]) == 0]
        self.is_double[:] = False
        self.is_double[again] = True
        if self.next_number is not None:
            self.is_double |= (self.number != NONE) & (self.number < self.next_number)
        self._keep(np.where(self.is_double, NONE, self.number))

    def _keep(self, values: Numbers) -> None:
        """Forget the place of entries whose values are not in order with most; -1 is in order with all."""
        at = np.flatnonzero((self.number != NONE) & (values != NONE))
        is_kept = np.zeros(at.size, np.bool_)
        longest_ascending(values[at], is_kept)
        self.number[at[~is_kept]] = NONE

    def _place_between(self) -> None:
        """Let entries that are not found take the places that are free between their neighbours."""
        unknown = (self.number == NONE) & ~self.is_lost
        lost = np.flatnonzero(unknown & (self.in_log | (self.offsets < 0) | ~self._is_plausible()))
        if not lost.size:
            return
        taken = np.flatnonzero((self.number != NONE) & ~self.is_double)
        after = np.searchsorted(taken, lost)
        has_before, has_after = after > 0, after < taken.size
        before_at = np.where(has_before, taken[np.maximum(after - 1, 0)] if taken.size else 0, -1)
        before_number = np.where(
            has_before,
            self.number[before_at] if self.number.size else 0,
            (self.next_number if self.next_number is not None else -1 << 40) - 1,
        )
        after_at = taken[np.minimum(after, taken.size - 1)] if taken.size else np.zeros(lost.size, np.int64)
        place = before_number + (lost - before_at)
        fits = np.where(has_after, self.number[after_at] - before_number == after_at - before_at, True)
        if self.next_number is None:
            fits &= has_before | (has_after & (self.number[after_at] >= after_at))
            place = np.where(has_before, place, self.number[after_at] - (after_at - lost))
        fits &= (place >= 0) & (place < self.expected.count)
        self.number[lost[fits]] = place[fits]

    def _is_plausible(self) -> Which:
        """Which offsets can be of expired messages or of messages after the log: those in the order of the block."""
        running = np.maximum.accumulate(np.where(self.in_log, self.offsets, -1))
        following = np.minimum.accumulate(np.where(self.in_log, self.offsets, np.iinfo(np.int64).max)[::-1])[::-1]
        # Expired entries come before all others, entries after the log come after all others.
        expired = (self.offsets >= 0) & ~self.in_log & (running < 0)
        if self.next_number:
            expired[:] = False
        after = ~self.in_log & (following == np.iinfo(np.int64).max) & (self.offsets >= 0)
        result: Which = expired | after
        return result
