"""Which index files can have messages of a time range, by their names and the begin times in their headers.

A name is the time at which the broker created the file, so the first message of the file was stored before. Both are
only hints: a name or a header can be damaged, and a broker that dispatches its log again creates files much later. So
`coverage` checks the files at both ends of the range before it leaves out the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo

from spark_mq.store.index.names import time_of_name, zone_of_names
from spark_mq.store.log.time_pruning import CLOCK_TOLERANCE_MILLIS

BeginOf = Callable[[int], int | None]
"""The begin time in the header of a file, by the file's index; None if the header cannot be read."""


def files_in_time(names: Sequence[str], begin_of: BeginOf, begin: int | None, end: int | None) -> tuple[int, int]:
    """The newest file before all messages of a time range, and the oldest file after all of them.

    Args:
        names: The names of a store's index files, in order.
        begin_of: Reads the begin time of a file's header, in milliseconds; called for few files.
        begin: The earliest store time in milliseconds, included; None for any.
        end: The latest store time in milliseconds, included; None for any.

    Returns:
        Two indexes of `names`. The first is 0 if there is no such file, the second `len(names)`.
    """
    count = len(names)
    if not count or (begin is None and end is None):
        return 0, count
    newest = ((names[index], begin_of(index)) for index in range(count - 1, max(count - 3, -1), -1))
    zone = zone_of_names([(name, time) for name, time in newest if time is not None])
    first, stop = 0, count
    if begin is not None:
        earliest = begin - CLOCK_TOLERANCE_MILLIS
        start = _first_created_from(names, zone, earliest) if zone is not None else 0
        first = max(_first_begun_from(begin_of, earliest, start, count) - 1, 0)
    if end is not None:
        latest = end + CLOCK_TOLERANCE_MILLIS + 1
        start = _first_created_from(names, zone, latest) if zone is not None else 0
        stop = _first_begun_from(begin_of, latest, max(start, first), count)
    return first, stop


def _first_created_from(names: Sequence[str], zone: tzinfo, time: int) -> int:
    """The index of the first file that was created at `time` (milliseconds) or later."""
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        created = time_of_name(names[middle], zone)
        if created is not None and created < time:
            low = middle + 1
        else:
            high = middle
    return low


def _first_begun_from(begin_of: BeginOf, time: int, start: int, count: int) -> int:
    """The index of the first file from `start` on whose header has a begin time of `time` or later.

    The steps from `start` on double: names are nearly always right.
    """

    def is_before(index: int) -> bool:
        found = begin_of(index)
        return found is None or found < time

    low, step = start, 1
    while low < count and is_before(low):
        if low + step >= count or not is_before(low + step):
            break
        low, step = low + step, 2 * step
    else:
        return low
    high = min(low + step, count)
    low += 1
    while low < high:
        middle = (low + high) // 2
        if is_before(middle):
            low = middle + 1
        else:
            high = middle
    return low
