"""The state of files: whether they are the same that they were when something was found out about them.

Whoever changes a file, the operating system sets the time of the change (ctime), and no program can set it back. A file
that changed a moment ago could change again at the same time: it has no state yet. Filesystems other than the local one
have no such times.

A program that writes through a memory map changes a file without a new time, until the system has written the page to
the disk. `store.settled_files` knows when that can happen to the files of a store.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from typing import Final

from spark_mq.io.location import Location

_SETTLED_NANOS: Final = 2_000_000_000
"""The age of a change at which no other change can have the same time. The clocks of filesystems have steps of 2 s."""


def file_state(files: Iterable[Location], about: object = None, age: int | None = None) -> bytes | None:
    """A hash of the state of some files, which differs after each change; None if one of them may change unseen.

    That is, if it is not local, or if it changed just now. A file that does not exist has a state, too.

    Args:
        files: The files.
        about: What else the hash depends on; its `repr` counts.
        age: How long ago the last change must be, in nanoseconds; None for two seconds.

    """
    digest, newest = hashlib.sha256(repr(about).encode("utf-8", "surrogateescape")), 0
    for file in files:
        if not file.is_local:
            return None
        try:
            found = os.stat(file.path)
        except FileNotFoundError:
            state: tuple[int, ...] = ()
        except OSError:
            return None
        else:
            state = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
            newest = max(newest, found.st_ctime_ns)
        digest.update(b"\0".join((os.fsencode(file.path), repr(state).encode(), b"")))
    settled = _SETTLED_NANOS if age is None else age
    return digest.digest() if newest < time.time_ns() - settled else None
