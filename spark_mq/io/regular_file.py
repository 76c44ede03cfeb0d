"""The one place in which a local file of a store is opened: only regular files are.

Opening a named pipe waits until somebody writes into it, and a device has no end. No broker makes either of them.
"""

from __future__ import annotations

import os
import stat

from spark_mq.errors import StorageError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a regular file, or of one to which links lead.

    Args:
        path: The file's path.
        flags: As for `os.open`; a file that `os.O_CREAT` makes can be read by everybody.

    Raises:
        StorageError: There is something else of this name.
        OSError: The file does not exist, or cannot be opened.

    """
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
