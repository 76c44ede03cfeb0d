"""Putting a complete store in its place, in one step; a store that it replaces gets another name."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count

from spark_mq.errors import StorageError
from spark_mq.io.local import sync_folder
from spark_mq.io.location import Location
from spark_mq.job.storage_errors import reason_of
from spark_mq.store.store_lock import store_lock

BACKUP = ".backup-"
"""In the name of a store that was replaced, before the time of that."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
"""Errors of a system, or of a filesystem such as NFS, that cannot exchange two names."""


def put_in_place(made: Location, store: Location, replaces: bool = False) -> str | None:
    """Rename a complete store to its final name; returns the new name of the store that it replaces, if there is one.

    Nothing is deleted. On Linux, the final name is that of a whole store at every moment, also if the process is
    killed. A filesystem that cannot exchange two names has no store of that name for a moment.

    Args:
        made: The new store, on the same filesystem.
        store: The final name; an empty folder may have it.
        replaces: Whether a store that has the name is set aside.
    """
    with _named(store):
        _sync_folders(made.path)
        if not (replaces and store.entries()):
            os.rename(made.path, store.path)
            sync_folder(store.parent.path)
            return None
        with store_lock(store, or_else=None):
            backup = _new_name(store)
            os.rename(made.path, backup)
            try:
                is_exchanged = _exchange(backup, store.path)
            except OSError:
                os.rename(backup, made.path)
                raise
            if not is_exchanged:
                os.rename(backup, made.path)
                os.rename(store.path, backup)
                os.rename(made.path, store.path)
            sync_folder(store.parent.path)
            return backup


@contextmanager
def _named(store: Location) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{store}: the new store cannot be put there: {reason_of(error)}") from error


def _sync_folders(path: str) -> None:
    for folder, _, _ in os.walk(path):
        sync_folder(folder)


def _new_name(store: Location) -> str:
    name = f"{store.path}{BACKUP}{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    return next(path for path in (name if n == 1 else f"{name}-{n}" for n in count(1)) if not os.path.lexists(path))


def _exchange(one: str, other: str) -> bool:
    """Exchange the names of two folders in one step (`renameat2` of Linux); returns whether the system can do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if not rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), other)
