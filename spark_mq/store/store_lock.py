"""The lock of a store directory: one broker, or one job that writes into the directory, has it at a time.

A broker locks byte 0 of the file `lock` for itself and writes the four bytes `lock` into it
(`DefaultMessageStore.start`@4.9.7 and 5.3.3: `FileChannel.tryLock(0, 1, false)`). On POSIX systems that is a record
lock of `fcntl`, which every other process sees, and which ends with the process. While a job has the lock, a broker
does not start: "Lock failed,MQ already started". Neither a broker nor a job deletes the file when it stops, because a
broker that is starting may already have opened it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from spark_mq.errors import StorageError, StoreLockedError
from spark_mq.io.local import open_regular
from spark_mq.io.location import Location

LOCK = "lock"
_CONTENT = b"lock"
_FLOCK = struct.Struct("hhqqi0q")
"""`struct flock` of Linux: type, whence, start, length, process."""
_ELSEWHERE = "give --output with another folder, which needs no lock"


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
    """Whether a broker, or a job that writes into the directory, has the store's lock now. Nothing is changed.

    None if that cannot be known: the store is not local, the file cannot be read, or the system is not Linux.
    """
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
