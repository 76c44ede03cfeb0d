"""The local filesystem, and the one place in which a local file of a store is opened: only regular files are.

Opening a named pipe waits until somebody writes into it, and a device has no end. No broker makes either of them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from pyarrow import fs

from spark_mq.errors import StorageError
from spark_mq.io.storage import Storage

_FILES: Final = fs.LocalFileSystem()
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_START_WRITING: Final = 2
"""`SYNC_FILE_RANGE_WRITE`."""


@dataclass(frozen=True)
class LocalStorage(Storage):
    """The local filesystem. A file is read by its descriptor (`open_regular`), and written whole by `publish`."""

    is_local: ClassVar[bool] = True
    renames: ClassVar[bool] = True
    locks: ClassVar[bool] = True

    def uri(self, path: str) -> str:
        return path

    def info(self, path: str) -> fs.FileInfo:
        return _FILES.get_file_info(path)

    def entries(self, path: str, recursive: bool = False) -> list[fs.FileInfo]:
        """The entries of a folder. Raises `StorageError` if a name is not UTF-8."""
        try:
            found = _FILES.get_file_info(fs.FileSelector(path, recursive=recursive, allow_not_found=True))
            return sorted(found, key=lambda info: info.base_name)
        except NotADirectoryError:
            return []
        except UnicodeDecodeError:
            _check_names(path, os.listdir(path))
            raise

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, sorted. Raises `StorageError` if a name is not UTF-8."""
        try:
            with os.scandir(path) as entries:
                folders = (one for one in entries if one.is_dir(follow_symlinks=False) or os.path.isdir(one.path))
                names = sorted(folder.name for folder in folders)
        except (FileNotFoundError, NotADirectoryError):
            return []
        _check_names(path, names)
        return names

    def make_folder(self, path: str) -> None:
        make_folders(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def delete(self, path: str) -> None:
        _FILES.delete_file(path)

    def delete_folder(self, path: str) -> None:
        """Remove a folder and everything in it; if it is a symbolic link, only the link."""
        if os.path.islink(path):
            os.unlink(path)
        else:
            shutil.rmtree(path, onerror=partial(_raise_unless_gone, path))


def _raise_unless_gone(folder: str, _function: object, path: str, error: tuple[type, BaseException, object]) -> None:
    """Raise the error of a removal, except if another process has removed this file of the folder."""
    if path == folder or not isinstance(error[1], FileNotFoundError):
        raise error[1]


def _check_names(folder: str, names: Iterable[str]) -> None:
    """Raise `StorageError` for a name that is not UTF-8: Python puts surrogates in the place of its other bytes."""
    for name in names:
        if not name.isascii() and os.fsencode(name).decode(errors="replace") != name:
            raise StorageError(
                f"{folder}: the name {os.fsencode(name)!r} in it is not UTF-8; rename it, or move it out of the folder"
            )


def start_flush(descriptor: int, position: int, size: int) -> None:
    """Let the operating system begin to write a range of a file to the disk; nobody waits, and errors come later.

    A flush at the end then finds little left. Nothing is done on a system without `sync_file_range`, which is Linux's.
    """
    flush = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if flush is not None:
        flush(descriptor, ctypes.c_int64(position), ctypes.c_int64(size), _START_WRITING)


def flush_to_disk(path: str) -> None:
    """Flush the bytes of a local file to the disk, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str) -> None:
    """Create a local folder and the missing ones above it; the names of new folders are flushed to the disk."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        make_folders(parent)
        os.makedirs(path, exist_ok=True)
        flush_to_disk(parent)


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a regular file, or of one to which links lead."""
    try:
        _check(path, os.stat(path))
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    # Without O_NONBLOCK a named pipe that took the file's place since then would be waited for.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        _check(path, os.fstat(descriptor))
    except StorageError:
        os.close(descriptor)
        raise
    return descriptor


def kind_of(path: str) -> str | None:
    """What the path leads to, such as `a named pipe`; None if it is a regular file, or if nothing has the name."""
    try:
        return _kind(os.stat(path))
    except OSError:
        return "a link that leads to no file" if os.path.islink(path) else None


def _kind(found: os.stat_result) -> str | None:
    return None if stat.S_ISREG(found.st_mode) else _KINDS.get(stat.S_IFMT(found.st_mode), "something else")


def _check(path: str, found: os.stat_result) -> None:
    kind = _kind(found)
    if kind is not None:
        raise StorageError(f"{path} is {kind}, not a file: move it away")


def free_bytes(path: str) -> int | None:
    """The free bytes on the disk of `path`, or of its nearest parent folder that exists; None if unknown."""
    for folder in (Path(path), *Path(path).parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None
