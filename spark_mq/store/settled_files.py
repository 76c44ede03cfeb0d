"""The state of files of a store; none while a broker may change them without a trace.

A broker writes the log and the queues through memory maps, and all files have their full size from the start. The
operating system sets the times of a file when a page of a map is written for the first time since it reached the disk.
The page then can change for half a minute, on tmpfs for ever, while no time does. A broker that starts, or a replica,
may so replace the end of a log that was read before. Therefore:

- Files have no state while a broker has the store's lock, or if the lock cannot be asked for.
- If `abort` exists, the broker crashed, or it runs on another machine, whose lock this one may not see. Then files have
  a state only if none changed in the last minutes: until then every page has reached the disk.
- Every start of a broker writes `lock`, by a call of the system. So the state of `lock` is part of every state.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from spark_mq.io.file_state import file_state
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import ABORT
from spark_mq.store.store_lock import LOCK, is_locked

_ON_DISK_NANOS: Final = 600 * 10**9
"""The age of a change at which all pages have reached the disk. Linux writes them after 35 s, a broker after 60 s."""


def settled_state(store: Location, files: Iterable[Location], about: object = None) -> bytes | None:
    """A hash of the state of some files of a store, as in `io.file_state`; None if a broker may change them unseen.

    Args:
        store: The store directory.
        files: The files.
        about: What else the hash depends on; its `repr` counts.

    """
    if is_locked(store) is not False:
        return None
    age = _ON_DISK_NANOS if os.path.lexists((store / ABORT).path) else None
    state = file_state([store / ABORT, store / LOCK, *files], about, age)
    # The lock is asked for last: a broker that starts from now on changes the state of its file.
    return state if state is not None and is_locked(store) is False else None
