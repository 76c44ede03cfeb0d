"""Flags expected index entry each found entry is: found ones can be wrong, doubled, missing, or of expired messages.

Both kinds are in the order of the log, so almost always they are equal, one after the other. If they are not, an entry
is found by its commit log offset and key hash, and an entry between two found ones takes the place between them.

A broker never puts a message that is before the last one of the index (`IndexService.buildIndex`@5.3.3), so the offsets
of entries never descend. An entry that is not in this order is wrong, whatever message it leads to.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Self

import numpy as np

from spark_mq.format.array_types import Flags, Int32s, Int64s
from spark_mq.format.kernels.index_put import longest_ascending
from spark_mq.indexer.staged_files import NO_ENTRIES, EntryBatch, EntryRange, StagedEntries
from spark_mq.io.location import Location
from spark_mq.verifier.log_bounds import LogBounds

NONE = -1
_MAX_WINDOWS = 8
"""Parts of the log in which entries of one block are searched for: a block has few gaps, but can have any offsets."""
_WINDOW = 1 << 20
"""Entries that are read together if some of them are wanted."""


@dataclass(frozen=True)
class ExpectedEntries:
    """The staged entries of all splits."""

    splits: tuple[StagedEntries, ...]
    starts: tuple[int, ...]

    def save(self, file: Location) -> None:
        """Write the list of splits to a new file: a job of 75,000 splits must not send it with every task."""
        pairs = zip(self.splits, self.starts, strict=True)
        with file.open_output() as stream:
            stream.write(json.dumps([[split.location.name, split.count, start] for split, start in pairs]).encode())

    @classmethod
    def load(cls, file: Location, folder: Location) -> Self:
        """The entries whose list `save` wrote."""
        splits = json.loads(file.read_bytes())
        staged = tuple(StagedEntries(folder / name, count) for name, count, _ in splits)
        return cls(staged, tuple(start for _, _, start in splits))

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
        return parts[0] if len(parts) == 1 else EntryBatch.concatenate([NO_ENTRIES, *parts])

    def at(self, numbers: Int64s) -> EntryBatch:
        """The entries with these numbers, in any order."""
        order = np.argsort(numbers, kind="stable")
        parts = []
        for at in np.split(order, np.flatnonzero(np.diff(numbers[order] // _WINDOW)) + 1):
            if at.size:
                low = int(numbers[at[0]])
                window = self.read(low, int(numbers[at[-1]]) + 1)
                parts.append(window.take(numbers[at] - low))
        return EntryBatch.concatenate([NO_ENTRIES, *parts]).take(np.argsort(order))


@dataclass(frozen=True)
class EntryMatch:
    """The result for one block of found entries.

    `number` is that of the expected entry for each found entry, -1 without one; `is_same` says whether it has its hash
    and offset, `is_double` whether an earlier one is the same. `key_hashes` and `store_timestamps` are what found
    entries should have (-1: not known). Before the last matched one, no found entry is one of `missing`.
    """

    number: Int64s
    is_same: Flags
    is_double: Flags
    key_hashes: Int32s
    store_timestamps: Int64s
    missing: Int64s
    next_number: int | None


def match_entries(
    key_hashes: Int32s, offsets: Int64s, expected: ExpectedEntries, next_number: int | None, bounds: LogBounds
) -> EntryMatch:
    """Match one block of found entries; the entry `next_number` is expected first, if that is known."""
    size = offsets.size
    if next_number is not None:
        same = expected.read(next_number, next_number + size)
        if np.array_equal(same.key_hashes, key_hashes) and np.array_equal(same.commit_log_offsets, offsets):
            stop = next_number + size
            yes, no, nothing = np.ones(size, np.bool_), np.zeros(size, np.bool_), np.empty(0, np.int64)
            return EntryMatch(np.arange(next_number, stop), yes, no, key_hashes, same.store_timestamps, nothing, stop)
    return _Search(key_hashes, offsets, expected, next_number, bounds).result()


@dataclass
class _Search:
    """The match of a block that is not equal to the entries that are expected next."""

    key_hashes: Int32s
    offsets: Int64s
    expected: ExpectedEntries
    next_number: int | None
    bounds: LogBounds

    def __post_init__(self) -> None:
        self.in_log = self.bounds.contain(self.offsets)
        self.is_lost = self.in_log & self.bounds.is_lost(self.offsets)
        self.number = np.full(self.offsets.size, NONE, np.int64)
        self.is_double = np.zeros(self.offsets.size, np.bool_)

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
        placed = np.flatnonzero(self.number != NONE)
        matched = self.number[placed[~self.is_double[placed]]]
        begin = self.next_number
        if begin is None and placed.size:
            begin = int(self.number[placed[0]])
        stop = begin
        missing = np.empty(0, np.int64)
        if matched.size and begin is not None:
            stop = max(begin, int(matched.max()) + 1)
            is_there = np.zeros(stop - begin, np.bool_)
            is_there[matched[matched >= begin] - begin] = True
            missing = begin + np.flatnonzero(~is_there)
        hashes, times = self.key_hashes.copy(), np.full(self.offsets.size, -1, np.int64)
        entries = self.expected.at(self.number[placed])
        hashes[placed], times[placed] = entries.key_hashes, entries.store_timestamps
        return EntryMatch(self.number, is_same, self.is_double, hashes, times, missing, stop)

    def _search_near(self, at: Int64s, offset: int) -> Flags:
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
        decided: Flags = (offsets >= lowest) & (offsets <= highest)
        if first == 0:
            decided |= offsets < lowest
        if first + window.key_hashes.size == self.expected.count:
            decided |= offsets > highest
        decided |= offsets == offset
        self._join(at[decided], window, first)
        return decided

    def _join(self, at: Int64s, window: EntryBatch, first: int) -> None:
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

    def _keep(self, values: Int64s) -> None:
        """Forget the place of entries whose values are not in order with most; -1 is in order with all."""
        at = np.flatnonzero((self.number != NONE) & (values != NONE))
        is_kept = np.zeros(at.size, np.bool_)
        longest_ascending(values[at], is_kept)
        self.number[at[~is_kept]] = NONE

    def _place_between(self) -> None:
        """Let entries that are not found take the places that are free between their neighbours."""
        unknown = (self.number == NONE) & ~self.is_lost
        # Before or after all others, an offset can be of an expired message, or of one after the log.
        inside = np.cumsum(self.in_log)
        plausible: Flags = inside == inside[-1]
        if not self.next_number:
            plausible |= inside == 0
        lost = np.flatnonzero(unknown & ~(plausible & ~self.in_log & (self.offsets >= 0)))
        if not lost.size:
            return
        taken = np.flatnonzero((self.number != NONE) & ~self.is_double)
        # By how much the number of an entry is larger than its index: no place is free between two that differ.
        shift = np.concatenate(([self.next_number or 0], self.number[taken] - taken))
        before = np.searchsorted(taken, lost)
        place = lost + shift[before]
        fits = shift[np.minimum(before + 1, taken.size)] == shift[before]
        if self.next_number is None:
            fits &= before > 0
        fits &= (place >= 0) & (place < self.expected.count)
        self.number[lost[fits]] = place[fits]
