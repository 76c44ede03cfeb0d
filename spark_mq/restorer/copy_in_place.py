"""Putting a complete store in its place on S3, where nothing can be renamed: the server copies each file.

While that lasts, a file in `commitlog/` says so. No reader takes the folder for a store, no broker starts on a copy of
it, and the next restore begins again. The removal of this file is the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from spark_mq.errors import StorageError
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.config.store_paths import COMMIT_LOG, RESTORE_UNFINISHED

_Item = TypeVar("_Item")

_MARK: Final = f"{COMMIT_LOG}/{RESTORE_UNFINISHED}"
_COPIERS: Final = 8
"""Requests at the same time."""


def copy_in_place(made: Location, store: Location) -> None:
    """Copy a complete store to its final name, also over what a killed restore left there.

    Args:
        made: The new store, on the same filesystem.
        store: The final name, which has no file, or those of an unfinished restore.
    """
    note = f"a restore copies {made.name}/ to here\n".encode()
    publish(store / _MARK, note, len(note))
    with _removed_on_error(store):
        _remove_files(store)
        sizes = made.files_below()
        _each(sizes, lambda name: (made / name).copy_to(store / name))
        copied = store.files_below()
        del copied[_MARK]
        if copied != sizes:
            differing = min(name for name in {*copied, *sizes} if copied.get(name) != sizes.get(name))
            raise StorageError(f"{store / differing}: the server did not copy the whole file: run the restore again")
        (store / _MARK).delete()


def _remove_files(store: Location) -> None:
    """Remove all files of an unfinished store, except the one that says that it is unfinished."""
    _each((store / name for name in store.files_below() if name != _MARK), Location.delete)


def _each(items: Iterable[_Item], action: Callable[[_Item], None]) -> None:
    with ThreadPoolExecutor(_COPIERS) as threads:
        list(threads.map(action, items))


@contextmanager
def _removed_on_error(store: Location) -> Iterator[None]:
    try:
        yield
    except Exception:
        with suppress(OSError, StorageError):  # the mark stays then
            _remove_files(store)
            (store / _MARK).delete()
        raise
