"""Parts of the commit log, and where it ends. Values only: no file is read here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_mq.store.log.segment_files import CorruptRange

UNDISPATCHED = 256 << 10
"""Bytes at the end of a log in which messages may have no units yet. A broker dispatches a message in milliseconds."""


@dataclass(frozen=True)
class LogRange:
    """The records that start at commit log offset `start` or later, and before `stop`."""

    start: int
    stop: int

    def __contains__(self, commit_log_offset: int) -> bool:
        return self.start <= commit_log_offset < self.stop

    @property
    def size(self) -> int:
        """Bytes of the range, including blanks and gaps between segments."""
        return self.stop - self.start


@dataclass(frozen=True)
class LiveEnd:
    """Where a log ends.

    Attributes:
        offset: The commit log offset after the last live record (`CommitLog.getMaxOffset`@5.3.3); -1 for an empty log.
        last_record: The offset at which that record starts; None if the search did not read it.
        uncertain_from: The offset of the first record that counts as live only because nothing proves that it is stale:
            the record before it is newer. It and all later ones can be stale. None if there is no such record.
        is_dispatched: Whether all messages have their units, because the broker stopped cleanly.
    """

    offset: int
    last_record: int | None = None
    uncertain_from: int | None = None
    is_dispatched: bool = True

    @property
    def certain(self) -> int:
        """The commit log offset up to which no record can be stale."""
        return self.offset if self.uncertain_from is None else min(self.uncertain_from, self.offset)

    @property
    def dispatched(self) -> int:
        """The commit log offset before which units of queues are not stale.

        A unit stays stale until its message is dispatched. By chance, it can lead to its message before.
        """
        return self.certain if self.is_dispatched else self.certain - UNDISPATCHED


def range_of(corrupt: CorruptRange) -> LogRange:
    """The part of the log that is corrupt."""
    return LogRange(corrupt.commit_log_offset, corrupt.commit_log_offset + corrupt.length)


def between(parts: Iterable[tuple[int, int]], start: int, stop: int) -> list[LogRange]:
    """The ranges from `start` to `stop` that are not in `parts`: the start and stop of each part, in order."""
    ranges = []
    for part_start, part_stop in parts:
        if start < min(part_start, stop):
            ranges.append(LogRange(start, min(part_start, stop)))
        start = max(start, part_stop)
    if start < stop:
        ranges.append(LogRange(start, stop))
    return ranges


def rest(whole: LogRange, parts: Iterable[LogRange]) -> list[LogRange]:
    """What `parts`, which are in order, leave of `whole`."""
    return between(((part.start, part.stop) for part in parts), whole.start, whole.stop)


def cut(parts: Iterable[LogRange], within: LogRange) -> list[LogRange]:
    """The parts of `parts` that are in `within`."""
    inside = (LogRange(max(part.start, within.start), min(part.stop, within.stop)) for part in parts)
    return [part for part in inside if part.size > 0]


def merged(parts: Sequence[LogRange], distance: int) -> list[LogRange]:
    """The ranges, which are ordered by their starts; ranges with less than `distance` bytes between them become one."""
    result: list[LogRange] = []
    for part in parts:
        if result and part.start - result[-1].stop < distance:
            result[-1] = LogRange(result[-1].start, max(result[-1].stop, part.stop))
        else:
            result.append(part)
    return result


def joined(parts: Iterable[LogRange], most: int | None = None) -> list[LogRange]:
    """The same bytes of the log as ranges in order, none of which touches another one.

    With `most`, they are at most so many: the last one is all that is left, with what is between.
    """
    result = merged(sorted(parts, key=lambda part: part.start), 1)
    if most is not None and len(result) > most:
        result[most - 1 :] = [LogRange(result[most - 1].start, result[-1].stop)]
    return result
