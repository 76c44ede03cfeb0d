"""The lock of a job's output folder: one job writes into a folder at a time.

The folder itself is locked (`flock`), so no file is left in it, and the lock ends with the process. A folder that is a
store has the store's own lock besides, which brokers know (`store.store_lock`).
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from spark_mq.errors import OutputInUseError, StorageError
from spark_mq.io.location import Location
from spark_mq.job.storage_errors import is_full, reason_of

_NOT_SUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of filesystems that cannot lock a folder, such as NFS."""


@contextmanager
def output_lock(output: Location) -> Iterator[None]:
    """A context in which no other job on this machine can write into the folder. The folder is created if needed.

    There is no lock on a filesystem that is not local, or that cannot lock folders.
    """
    if not output.locks:
        yield
        return
    descriptor = _open(output)
    try:
        _lock(descriptor, output)
        yield
    finally:
        os.close(descriptor)  # which ends the lock


def _open(output: Location) -> int:
    step = "created"
    try:
        os.makedirs(output.path, exist_ok=True)
        step = "opened"
        return os.open(output.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if is_full(error):
            raise
        raise StorageError(
            f"--output {output}: the folder cannot be {step}: {reason_of(error)}; give a folder that can be written"
        ) from error


def _lock(descriptor: int, output: Location) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputInUseError(
            f"--output {output}: another job writes into this folder: wait until it has ended, or give another --output"
        ) from error
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise StorageError(f"--output {output}: the folder cannot be locked: {reason_of(error)}") from error
