"""The parts of the log for which units account, from arrays of units alone.

A unit says where a record starts and how long it is, so it is a *tile* of the log. Tiles that follow one another
without a gap are a *run*. If the first and the last tile of a run are records, no other record starts between them: the
sizes of records lead from each record to the next one. So a run proves which records its part of the log has, and
nothing of that part has to be read. Everything that no unit accounts for breaks a run: messages that were not
dispatched, lost units, files or queues, and messages that queues never contain (transaction types PREPARED and
ROLLBACK, inner batches).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from spark_mq.format.array_types import Int64s
from spark_mq.store.log.log_range import LogRange, between

_TRIES = 4
"""The number of tiles at each end of a run that are compared with the log before the run is given up."""


class Chain:
    """Whether tiles, in any order, are one run. It is found without sorting them.

    In a run from `start` to `stop`, each place but these two is the start of one tile and the stop of one tile. So the
    starts and `stop` are the stops and `start`, in another order. Hashes of both are added up, modulo 2 ** 64, and
    compared. Tiles for which the sums agree are one run, because each tile stops after its start.
    """

    def __init__(self) -> None:
        self._difference = 0
        self._stop = 0
        self._size = 0

    def add(self, starts: Int64s, stops: Int64s) -> None:
        """Add tiles by their starts and stops; each stop is after its start."""
        if starts.size:
            self._difference += _hash_sum(starts) - _hash_sum(stops)
            self._stop = max(self._stop, int(stops.max()))
            self._size += int((stops - starts).sum())

    def join(self, other: Chain) -> None:
        """Add the tiles of another chain."""
        self._difference += other._difference
        self._stop = max(self._stop, other._stop)
        self._size += other._size

    def stop_from(self, start: int) -> int | None:
        """The end of the run from `start` on to which all tiles belong; None if they are not one run, or none."""
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
    """The runs of tiles, as half-open ranges of indexes; `offsets` must be ascending, without repetition."""
    if not offsets.size:
        return []
    breaks = (np.flatnonzero(offsets[:-1] + sizes[:-1] != offsets[1:]) + 1).tolist()
    bounds = [0, *breaks, offsets.size]
    return list(pairwise(bounds))


def accounted(offsets: Int64s, sizes: Int64s, is_record: Callable[[int, int], bool], most: int) -> list[LogRange]:
    """The ranges of the log for which tiles account, in order. Each starts and ends with a whole record.

    Args:
        offsets: The commit log offsets of the tiles, ascending, without repetition.
        sizes: The sizes of the records, in bytes.
        is_record: Whether the log has a record at an offset, of a size. A few tiles of each run are looked at.
        most: The largest number of runs. The shortest ones of more runs are left out.
    """
    runs = runs_of(offsets, sizes)
    if len(runs) > most:
        runs = sorted(sorted(runs, key=lambda run: run[0] - run[1])[:most])
    found = []
    for start, stop in runs:
        first = next(
            (at for at in range(start, min(start + _TRIES, stop)) if _is_tile(at, offsets, sizes, is_record)), None
        )
        if first is None:
            continue
        tries = range(stop - 1, max(stop - 1 - _TRIES, first - 1), -1)
        last = next((at for at in tries if at == first or _is_tile(at, offsets, sizes, is_record)), None)
        if last is not None:
            found.append(LogRange(int(offsets[first]), int(offsets[last] + sizes[last])))
    return _without_overlaps(found)


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


def joined(parts: Sequence[LogRange]) -> list[LogRange]:
    """The same bytes of the log as ranges in order, none of which overlaps another one."""
    return merged(sorted(parts, key=lambda part: part.start), 0)


def _is_tile(at: int, offsets: Int64s, sizes: Int64s, is_record: Callable[[int, int], bool]) -> bool:
    return is_record(int(offsets[at]), int(sizes[at]))


def _without_overlaps(parts: Sequence[LogRange]) -> list[LogRange]:
    """The ranges that overlap no other one: of two that contradict each other, neither proves anything."""
    result, reached = [], -1
    for index, part in enumerate(parts):
        following = parts[index + 1].start if index + 1 < len(parts) else part.stop
        if reached <= part.start and part.stop <= following:
            result.append(part)
        reached = max(reached, part.stop)
    return result
