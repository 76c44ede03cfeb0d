"""The index entries that the log has, in its order, numbered from 0 through all splits."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Self

import numpy as np

from spark_mq.indexer.staging.staged_entries import EntryBatch, EntryRange, StagedEntries
from spark_mq.io.location import Location


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
