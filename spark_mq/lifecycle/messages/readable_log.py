"""Which parts of a log can be read, and whether what is missing matters, for many offsets at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Int64s
from spark_mq.lifecycle.messages.selected_messages import SelectedMessages
from spark_mq.store.log.corrupt_range import STRAY, CorruptRange
from spark_mq.store.log.log_range import LogRange

Flags = npt.NDArray[np.bool_]


class ReadableLog:
    """The log of a store as it was read: its start and stop, and the ranges in between without a readable record."""

    def __init__(self, log: LogRange, damage: Sequence[CorruptRange]) -> None:
        self.log = log
        ranges = sorted(
            (one for one in damage if one.code != STRAY and one.length > 0), key=lambda one: one.commit_log_offset
        )
        self._ranges = ranges
        self._starts: Int64s = np.array([one.commit_log_offset for one in ranges], np.int64)
        ends = [one.commit_log_offset + one.length for one in ranges]
        self._ends: Int64s = np.maximum.accumulate(np.array(ends, np.int64))

    @classmethod
    def of(cls, found: SelectedMessages, *more: CorruptRange) -> ReadableLog:
        """The log from which messages were selected; `more` are records that do not count (`sound_messages`)."""
        return cls(found.log, [*found.damage, *more])

    def is_readable(self, offsets: Int64s) -> Flags:
        """Whether the commit log offsets are in the log, and not in a damaged range."""
        in_log: Flags = (offsets >= self.log.start) & (offsets < self.log.stop)
        return in_log & ~self.is_damaged_between(offsets, offsets + 1)

    def is_damaged_between(self, starts: Int64s, stops: Int64s) -> Flags:
        """Whether some bytes from each of `starts` up to the same element of `stops` are damaged."""
        first = np.searchsorted(self._ends, starts, side="right")
        last = np.searchsorted(self._starts, stops, side="left")
        result: Flags = first < last
        return result

    def is_damaged_after(self, starts: Int64s) -> Flags:
        """Whether there is damage from each of `starts` up to the end of the log."""
        result: Flags = np.searchsorted(self._ends, starts, side="right") < len(self._ranges)
        return result

    def first_damage(self, starts: Int64s) -> Int64s:
        """The number of the first damaged range that ends after each of `starts`, an index in `damage_texts`."""
        return np.minimum(np.searchsorted(self._ends, starts, side="right"), max(len(self._ranges) - 1, 0))

    @property
    def damage_texts(self) -> list[str]:
        """Each damaged range as text for a person, in the order of their starts."""
        return [one.describe() for one in self._ranges]
