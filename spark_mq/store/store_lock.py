"""The lock of a store directory, which one broker or job has at a time; and whether files stay as they are.

A broker locks byte 0 of the file `lock` for itself and writes the four bytes `lock` into it
(`DefaultMessageStore.start`@4.9.7 and 5.3.3: `FileChannel.tryLock(0, 1, false)`). On POSIX systems that is a record
lock of `fcntl`, which every other process sees, and which ends with the process. While a job has the lock, a broker
does not start: "Lock failed,MQ already started". Neither a broker nor a job deletes the file when it stops, because a
broker that is starting may already have opened it.

A broker writes the log and the queues through memory maps, and all files have their full size from the start. The
operating system sets the times of a file when a page of a map is written for the first time since it reached the disk.
The page then can change for half a minute, on tmpfs for ever, while no time does. A broker that starts, or a replica,
may so replace the end of a log that was read before. Therefore:

- Files have no state while a broker has the store's lock, or if the lock cannot be asked for.
- If `abort` exists, the broker crashed, or it runs on another machine, whose lock this one may not see. Then files have
  a state only if none changed in the last minutes: until then every page has reached the disk.
- Whoever changes a file by a call of the system, the system sets the time of the change (ctime), which no program can
  set back. A file that changed a moment ago could change again at the same time: it has no state yet.
- Every start of a broker writes `lock`, by a call of the system. So the state of `lock` is part of every state.

A session that reads one topic after another asks the same of the same files each time.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
import sys
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final, Generic, TypeVar

from spark_mq.errors import StorageError, StoreLockedError
from spark_mq.io.local import open_regular
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import ABORT

Fact = TypeVar("Fact")

_MOST: Final = 16
_ON_DISK_NANOS: Final = 600 * 10**9
"""The age of a change at which all pages have reached the disk. Linux writes them after 35 s, a broker after 60 s."""

_SETTLED_NANOS: Final = 2_000_000_000
"""The age of a change at which no other change can have the same time. The clocks of filesystems have steps of 2 s."""


_MEMORIES: list[StateMemory[Any]] = []
"""All memories of this process."""
LOCK = "lock"
_CONTENT = b"lock"
_FLOCK = struct.Struct("hhqqi0q")
"""`struct flock` of Linux: type, whence, start, length, process."""
_ELSEWHERE = "give --output with another folder, which needs no lock"


class StateMemory(Generic[Fact]):
    """Facts by what they depend on; those that were used last are kept. Threads share a memory."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: OrderedDict[Hashable, Fact] = OrderedDict()
        _MEMORIES.append(self)

    def recall(self, key: Hashable) -> Fact | None:
        """The fact that was kept; None if there is none."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def keep(self, key: Hashable, fact: Fact) -> None:
        """Keep a fact."""
        with self._lock:
            self._found[key] = fact
            while len(self._found) > _MOST:
                self._found.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._found.clear()


def forget_everything() -> None:
    """Clear all memories of this process."""
    for memory in _MEMORIES:
        memory.clear()


def settled_state(
    store: Location, files: Iterable[Location], about: object, read_at: int | None = None
) -> bytes | None:
    """A hash of the state of some files of a store, which differs after each change; None if one may change unseen.

    That is, if a broker runs, if the file is not local, or if it changed just now, or since it was read. A file that
    does not exist has a state, too.

    Args:
        about: What the state is about, besides the files: another value is another state.
        read_at: When the first of the files was read (nanoseconds since the epoch), if that is not to be done yet.
    """
    if is_locked(store) is not False:
        return None
    settled = _ON_DISK_NANOS if os.path.lexists((store / ABORT).path) else _SETTLED_NANOS
    digest, newest = hashlib.sha256(repr(about).encode("utf-8", "surrogateescape")), 0
    for file in (store / ABORT, store / LOCK, *files):
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
    # The lock is asked for last: a broker that starts from now on changes the state of its file.
    read_at = time.time_ns() if read_at is None else read_at
    return digest.digest() if newest < read_at - settled and is_locked(store) is False else None


@contextmanager
def store_lock(store: Location, or_else: str | None = _ELSEWHERE) -> Iterator[None]:
    """A context in which no broker and no other job can take the store.

    The file `lock` is created if it does not exist. On a filesystem that is not local there is no lock, and no broker.

    Args:
        or_else: What a user can do instead of stopping the broker, for the errors; None for a job that must change the
            store itself.
    """
    if not store.locks:
        yield
        return
    descriptor = _open((store / LOCK).path, or_else)
    try:
        yield
    finally:
        os.close(descriptor)  # which ends the lock


def _open(path: str, or_else: str | None) -> int:
    """The descriptor of the file, whose byte 0 is now locked."""
    remedy = "make the store writable for this user" if or_else is None else or_else
    try:
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        why = error.strerror or error
        raise StorageError(f"{path}: the store's lock file cannot be opened: {why}; {remedy}") from error
    try:
        _lock_first_byte(descriptor)
        if os.fstat(descriptor).st_size == 0:
            with suppress(OSError):  # a full disk; no broker reads the bytes
                os.pwrite(descriptor, _CONTENT, 0)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise StoreLockedError(
                f"{path} is locked: a broker runs on this store, or another job writes into it. Stop the broker, or "
                f"{'wait for the job' if or_else is None else or_else}"
            ) from error
        raise StorageError(f"{path}: the store's lock file cannot be locked: {error.strerror}; {remedy}") from error
    return descriptor


def _lock_first_byte(descriptor: int) -> None:
    """Lock byte 0; raises `OSError` if another has it.

    On Linux the lock belongs to the open file: plain record locks, which belong to the process, end when any part of
    the process closes the same file, and do not keep two jobs of one process apart. The two kinds exclude each other.
    """
    if sys.platform == "linux":
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    else:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def is_locked(store: Location) -> bool | None:
    """Whether a broker, or a job that writes into the directory, has the store's lock now. Nothing is changed."""
    if not store.locks or sys.platform != "linux":
        return None
    try:
        descriptor = open_regular((store / LOCK).path)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return bool(kind != fcntl.F_UNLCK)
