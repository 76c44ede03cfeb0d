"""What the units of all queues showed to this process before, for files that have not changed since.

A read by topic compares 20 bytes for each message of the store with the log, whatever the topic. A session that reads
one topic after another would do so each time. So the result is kept with the state of all files on which it depends
(`store.settled_files`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from spark_mq.store.queue.unit_cover import LogCover

_MOST: Final = 16

_found: OrderedDict[bytes, LogCover] = OrderedDict()


def recall(state: bytes | None) -> LogCover | None:
    """The cover that was kept for files in this state; None if there is none."""
    if state is None or state not in _found:
        return None
    _found.move_to_end(state)
    return _found[state]


def keep(state: bytes | None, cover: LogCover) -> None:
    """Keep a cover for the state that the files had before it was found; nothing is kept for None."""
    if state is not None:
        _found[state] = cover
        while len(_found) > _MOST:
            _found.popitem(last=False)
