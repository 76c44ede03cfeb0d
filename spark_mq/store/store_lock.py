"""The lock of a store directory: one broker, or one job that writes into the directory, has it at a time.

A broker locks byte 0 of the file `lock` for itself and writes the four bytes `lock` into it
(`DefaultMessageStore.start`@4.9.7 and 5.3.3: `FileChannel.tryLock(0, 1, false)`). On POSIX systems that is a record
lock of `fcntl`, which every other process sees, and which ends with the process. While a job has the lock, a broker
does not start: "Lock failed,MQ already started". A broker leaves the file behind when it stops, and so does a job: a
broker that is starting may already have opened it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spark_mq.errors import StorageError, StoreLockedError
from spark_mq.io.location import Location

LOCK = "lock"
_CONTENT = b"lock"

_ELSEWHERE = "give --output with another folder, which needs no lock"

_held: set[tuple[int, int]] = set()
"""Device and inode of each lock file that this process has locked: `fcntl` does not keep a process from itself, and a
second descriptor of the same file would end the lock when it is closed."""
_held_guard = threading.Lock()


@contextmanager
def store_lock(store: Location) -> Iterator[None]:
    """A context in which no broker and no other job can take the store.

    The file `lock` is made if it does not exist. On a filesystem that is not local there is no lock, and no broker.

    Args:
        store: The store directory (`storePathRootDir`), which exists.

    Raises:
        StoreLockedError: A broker, or another job, has the lock.
        StorageError: The file cannot be opened or locked.

    """
    if not store.is_local:
        yield
        return
    path = (store / LOCK).path
    with _held_guard:
        held = _lock(path)
    try:
        yield
    finally:
        with _held_guard:
            _held.discard(_identity(held))
            os.close(held)


def _lock(path: str) -> int:
    """The descriptor of the file, whose byte 0 is now locked."""
    if os.path.exists(path) and _identity(path) in _held:
        raise StoreLockedError(f"{path}: another job of this process writes into this store: wait until it is done")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"{path}: the store's lock file cannot be opened: {error.strerror}; {_ELSEWHERE}") from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        if os.fstat(descriptor).st_size == 0:
            os.pwrite(descriptor, _CONTENT, 0)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise StoreLockedError(
                f"{path} is locked: a broker runs on this store, or another job writes into it. Stop the broker, or "
                f"{_ELSEWHERE}"
            ) from error
        raise StorageError(f"{path}: the store's lock file cannot be locked: {error.strerror}; {_ELSEWHERE}") from error
    _held.add(_identity(descriptor))
    return descriptor


def _identity(file: str | int) -> tuple[int, int]:
    status = os.stat(file)
    return status.st_dev, status.st_ino
