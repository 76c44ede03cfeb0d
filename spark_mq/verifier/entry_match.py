"""Which expected index entry each found entry is: found ones can be wrong, doubled, missing, or of expired messages.

Both kinds are in the order of the log, so almost always they are equal, one after the other. If they are not, an entry
is found by its commit log offset and key hash, and an entry between two found ones takes the place between them.

A broker never puts a message that is before the last one of the index (`IndexService.buildIndex`@5.3.3), so the offsets
of entries never descend. An entry that is not in this order is wrong, whatever message it leads to.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Self

import numpy as np
import numpy.typing as npt

from spark_mq.format.kernels.index_put import longest_ascending
from spark_mq.indexer.staged_files import EntryBatch, EntryRange, StagedEntries
from spark_mq.io.location import Location
from spark_mq.verifier.log_bounds import LogBounds

Numbers = npt.NDArray[np.int64]
Which = npt.NDArray[np.bool_]

NONE = -1
_MAX_WINDOWS = 8
"""Parts of the log in which entries of one block are searched for: a block has few gaps, but can have any offsets."""


@dataclass(frozen=True)
class ExpectedEntries:
    """The staged entries of all splits.

    Attributes:
        splits: The staged entries of each split, in the order of the log.
        starts: The commit log offset at which each split starts.
    """

    splits: tuple[StagedEntries, ...]
    starts: tuple[int, ...]

    def save(self, file: Location) -> None:
        """Write the list of splits to a new file: a job of 75,000 splits must not send it with every task."""
        splits = [
            [split.location.name, split.count, start] for split, start in zip(self.splits, self.starts, strict=True)
        ]
        with file.open_output() as stream:
            stream.write(json.dumps(splits).encode())

    @classmethod
    def load(cls, file: Location, folder: Location) -> Self:
        """The entries whose list `save` wrote."""
        splits = json.loads(file.read_bytes())
        return cls(
            tuple(StagedEntries(folder / name, count) for name, count, _ in splits),
            tuple(start for _, _, start in splits),
        )

    @cached_property
    def _firsts(self) -> list[int]:
        """The number of the first entry of each split, and the number of all entries."""
        return list(accumulate((split.count for split in self.splits), initial=0))

    @property
    def count(self) -> int:
        """The number of entries."""
        return self._firsts[-1]

    def position_of(self, commit_log_offset: int) -> int:
        """The number of entries of messages before a commit log offset."""
        split = bisect_right(self.starts, commit_log_offset) - 1
        if split < 0:
            return 0
        return self._firsts[split] + self.splits[split].count_before(commit_log_offset)

    def read(self, start: int, stop: int) -> EntryBatch:
        """The entries from number `start` to before `stop`, as far as they exist."""
        start, stop = max(start, 0), min(stop, self.count)
        parts: list[EntryBatch] = []
        number = bisect_right(self._firsts, start) - 1
        while start < stop and number < len(self.splits):
            first = self._firsts[number]
            count = min(stop, self._firsts[number + 1]) - start
            if count > 0:
                parts += EntryRange(self.splits[number], start - first, count).read()
                start += count
            number += 1
        return _joined(parts)


def _joined(parts: Sequence[EntryBatch]) -> EntryBatch:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return EntryBatch(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
    return EntryBatch(
        np.concatenate([part.key_hashes for part in parts]),
        np.concatenate([part.commit_log_offsets for part in parts]),
        np.concatenate([part.store_timestamps for part in parts]),
    )


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
