"""Places in last segments that this process reached before, for files that have not changed since.

All records before a place decide which records there are live, so the reader of a split first skips the records before
it. A worker that reads the same store again and again would skip them each time. So each place that a reader reached
without the end of the log is kept with the state of the files that decide about the end (`settled_files`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from typing import Final

from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.log.commit_log import Segment
from spark_mq.store.settled_files import settled_state

_MOST: Final = 16
_MOST_PLACES: Final = 1 << 12

_found: OrderedDict[bytes, list[tuple[int, int, int]]] = OrderedDict()
"""By the state of the files: from where on a reader searched, the place that it found, and the store time before it."""


def state_of_end(segment: Segment) -> bytes | None:
    """The state of all files that decide where the log ends in a last segment; None if they have none."""
    store = segment.location.parent.parent
    files = [segment.location, store / CHECKPOINT]
    return settled_state(store, files, (segment.base, segment.size, segment.data_end))


def place_before(state: bytes | None, start: int) -> tuple[int, int] | None:
    """The first record at or after `start`, or else an earlier place, from which a reader gets there; None if unknown.

    The result is its position, and the store time of the record before it in milliseconds.
    """
    if state is None or state not in _found:
        return None
    _found.move_to_end(state)
    places = _found[state]
    after = bisect_right(places, (start, 1 << 63))
    return places[after - 1][1:] if after else None


def keep_place(state: bytes | None, start: int, position: int, newest: int) -> None:
    """Keep the place that a reader found: the first record, or corrupt range, at or after a position of the segment.

    Args:
        state: The state of the files before they were read; nothing is kept for None.
        start: The position from which on it searched.
        position: The place; the log has not ended before it.
        newest: The store time of the record before it, in milliseconds.

    """
    if state is None:
        return
    places = _found.setdefault(state, [])
    place = start, position, newest
    if place not in places and len(places) < _MOST_PLACES:
        insort(places, place)
    while len(_found) > _MOST:
        _found.popitem(last=False)
