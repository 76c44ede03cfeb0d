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
from spark_mq.io.folder import files_below
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.io.retry import repeated
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

    Raises:
        StorageError: A file cannot be copied, or is not complete. Then no file has the final name.

    """
    note = f"a restore copies {made.name}/ to here\n".encode()
    publish(store / _MARK, note, len(note))
    with _removed_on_error(store):
        _remove_files(store)
        sizes = files_below(made)
        _each(sizes, lambda name: _copy(made / name, store / name))
        copied = files_below(store)
        del copied[_MARK]
        if copied != sizes:
            differing = min(name for name in {*copied, *sizes} if copied.get(name) != sizes.get(name))
            raise StorageError(f"{store / differing}: the server did not copy the whole file: run the restore again")
        repeated(str(store / _MARK), lambda: store.filesystem.delete_file((store / _MARK).path), "removed")


def _copy(source: Location, target: Location) -> None:
    repeated(str(target), lambda: source.filesystem.copy_file(source.path, target.path), "written")


def _remove_files(store: Location) -> None:
    """Remove all files of an unfinished store, except the one that says that it is unfinished."""
    filesystem = store.filesystem
    others = [(store / name) for name in files_below(store) if name != _MARK]
    _each(others, lambda file: repeated(str(file), lambda: filesystem.delete_file(file.path), "removed"))


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
            store.filesystem.delete_file((store / _MARK).path)
        raise
