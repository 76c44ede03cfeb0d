"""What the units of all queues showed to this process before, for files that have not changed since.

A read by topic compares 20 bytes for each message of the store with the log, whatever the topic. A session that reads
one topic after another would do so each time. So the result is kept with the state of each file on which it depends:
inode, size, and the times of its last changes. Whoever changes a file, the operating system sets the time of the change
(ctime), and no program can set it back. A file that changed a moment ago could change again at the same time: then
nothing is kept, and nothing is used. So the store of a running broker, whose files change, is compared each time.

Filesystems other than the local one have no such times, and nothing is kept for them.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from spark_mq.io.location import Location
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.unit_cover import LogCover

_SETTLED_NANOS: Final = 2_000_000_000
"""The age of a change at which no other change can have the same time. The clocks of filesystems have steps of 2 s."""
_MOST: Final = 16

_found: OrderedDict[bytes, LogCover] = OrderedDict()


def state_of(files: Iterable[Location], ranges: Sequence[LogRange]) -> bytes | None:
    """A hash of the state of each file, and of ranges of the log; None if a file is not local, or changed just now.

    Args:
        files: The files on which a cover depends.
        ranges: What else it depends on: the part of the log, the live log, the segments.

    """
    digest, newest = hashlib.sha256(repr([(part.start, part.stop) for part in ranges]).encode()), 0
    for file in files:
        if not file.is_local:
            return None
        try:
            found = os.stat(file.path)
        except OSError:
            return None
        state = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        digest.update(b"\0".join((os.fsencode(file.path), repr(state).encode(), b"")))
        newest = max(newest, found.st_ctime_ns)
    return digest.digest() if newest < time.time_ns() - _SETTLED_NANOS else None


def recall(state: bytes | None) -> LogCover | None:
    """The cover that was kept for this state; None if there is none."""
    if state is None or state not in _found:
        return None
    _found.move_to_end(state)
    return _found[state]


def keep(state: bytes | None, cover: LogCover) -> None:
    """Keep a cover for the state that the files had before it was found."""
    if state is not None:
        _found[state] = cover
        while len(_found) > _MOST:
            _found.popitem(last=False)
