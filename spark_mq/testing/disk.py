"""What a power loss can leave of a folder: changes are recorded, and the possible states of the disk are made of them.

A program writes into the page cache. What of it is on the disk when the power fails is up to the filesystem, except for
what `fsync` said:

- `fsync` of a file: all bytes of the file are on the disk. Without it the file has all new bytes, none of them (a new
  file is empty then), only the new size (zeros follow the old bytes), or every second block of 512 or 4,096 bytes.
- `fsync` of a folder: the names in it are on the disk. Without it, `FileSystem` says which changes of names are.

A rename is one change: it is on the disk, or it is not. Changes of the same name keep their order.

Examples:
    >>> with recorded(store) as recording:
    ...     spark_mq.expire(str(store), min_offset=300_000, apply=True)
    >>> for state in recording.states(FileSystem.JOURNALED):
    ...     state.write(store)
    ...     spark_mq.expire(str(store), min_offset=300_000, apply=True)
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import RLock
from typing import Any

_CALLS = ("rename", "replace", "link", "symlink", "unlink", "remove", "mkdir", "rmdir", "fsync", "fdatasync")
"""The functions of `os` before and after which the folder is read. What other libraries change is found by the next."""

_ROOT = 0
Name = tuple[int, str]
"""The number of a folder, and a name in it."""


class FileSystem(StrEnum):
    """Which changes of names that no `fsync` has confirmed are on the disk after a power loss.

    Attributes:
        JOURNALED: The first ones, up to some change: ext4 (data=ordered) and XFS write changes of names into one
            journal, in their order, and `fsync` of anything writes all that came before.
        UNORDERED: Any of them, and `fsync` of a folder confirms only the names in this folder: what POSIX permits.
    """

    JOURNALED = "journaled"
    UNORDERED = "unordered"


class Unsynced(StrEnum):
    """What a file has, after a power loss, of bytes that no `fsync` has confirmed: all, none, or every second block."""

    NEW = "all written"
    OLD = "none written"
    ZEROS = "the size written"
    EVEN_512 = "even blocks of 512 bytes written"
    ODD_512 = "odd blocks of 512 bytes written"
    EVEN_4096 = "even blocks of 4,096 bytes written"
    ODD_4096 = "odd blocks of 4,096 bytes written"


_BLOCKS = {
    Unsynced.ZEROS: (4096, ()),
    Unsynced.EVEN_512: (512, (0,)),
    Unsynced.ODD_512: (512, (1,)),
    Unsynced.EVEN_4096: (4096, (0,)),
    Unsynced.ODD_4096: (4096, (1,)),
}
"""The size of a block, and the numbers modulo 2 of the blocks that are written."""


@dataclass(frozen=True)
class FileContent:
    """The bytes of a file, and the time of its last change in nanoseconds since the epoch."""

    data: bytes
    modified: int

    def after(self, old: FileContent | None, unsynced: Unsynced) -> FileContent:
        """What a power loss leaves, if `old` was confirmed last; None for a file that was not."""
        if unsynced == Unsynced.NEW or old == self:
            return self
        old = old or FileContent(b"", self.modified)
        if unsynced == Unsynced.OLD:
            return old
        block, written = _BLOCKS[unsynced]
        left = bytearray(old.data[: len(self.data)].ljust(len(self.data), b"\0"))
        for number, start in enumerate(range(0, len(left), block)):
            if number % 2 in written:
                left[start : start + block] = self.data[start : start + block]
        return FileContent(bytes(left), self.modified)


@dataclass(frozen=True)
class DiskState:
    """A state of a folder after a power loss.

    Attributes:
        change: The number of the change after which the power failed, from 1; 0 without a power loss.
        about: When the power failed, and what was lost.
        files: The files, by their paths.
        folders: The paths of the folders.
    """

    change: int
    about: str
    files: Mapping[str, FileContent]
    folders: frozenset[str]

    def write(self, folder: Path) -> None:
        """Make `folder` have this state; what it had is removed."""
        shutil.rmtree(folder, ignore_errors=True)
        for path in sorted(self.folders):
            (folder / path).mkdir(parents=True, exist_ok=True)
        for path, content in self.files.items():
            (folder / path).write_bytes(content.data)
            os.utime(folder / path, ns=(content.modified, content.modified))


@dataclass
class _Tree:
    """Names and files of a folder by their numbers, which no other file gets later."""

    names: dict[Name, int] = field(default_factory=dict)
    files: dict[int, FileContent] = field(default_factory=dict)

    def copy(self) -> _Tree:
        """Another tree of the same names and files."""
        return _Tree(dict(self.names), dict(self.files))

    def rename(self, names: Mapping[Name, int | None]) -> None:
        """Change names; None removes one."""
        for name, number in names.items():
            if number is None:
                self.names.pop(name, None)
            else:
                self.names[name] = number

    def state(self, change: int, about: str) -> DiskState:
        """The files that the root leads to."""
        files: dict[str, FileContent] = {}
        folders = {""}
        children: dict[int, list[tuple[str, int]]] = {}
        for (parent, name), number in self.names.items():
            children.setdefault(parent, []).append((name, number))
        rest = [("", _ROOT)]
        while rest:
            path, folder = rest.pop()
            for name, number in children.get(folder, ()):
                below = f"{path}{name}"
                if number in self.files:
                    files[below] = self.files[number]
                else:
                    folders.add(below)
                    rest.append((f"{below}/", number))
        return DiskState(change, about, files, frozenset(folders))


@dataclass(frozen=True)
class _Change:
    """Names that change in one step (None: a name is removed), files that are written, or what `fsync` confirms."""

    names: Mapping[Name, int | None] = field(default_factory=dict)
    files: Mapping[int, FileContent] = field(default_factory=dict)
    synced: int | None = None


class Recording:
    """The changes of a folder, in their order.

    Attributes:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = RLock()
        self._numbers: dict[int, int] = {}
        self._next = _ROOT
        self._now = _Tree()
        self._now = self._read()
        self._before = self._now.copy()
        self._changes: list[_Change] = []

    def states(self, file_system: FileSystem) -> Iterator[DiskState]:
        """Each state that a power loss can leave, once: after each change, with what is not confirmed kept or lost.

        Of changes of names that are not confirmed, all are kept, all except one, only one, or none: not each set of
        them. Files that are not confirmed have the same fate (`Unsynced`); all are as written, or as confirmed, unless
        the change was one of such a file.
        """
        disk, now = self._before.copy(), dict(self._before.files)
        waiting: list[_Change] = []
        found: set[int] = set()
        for number, change in enumerate(self._changes, 1):
            if change.synced is not None:
                waiting = _confirm(disk, waiting, change.synced, file_system)
                if change.synced in now:
                    disk.files[change.synced] = now[change.synced]
                continue
            now |= change.files
            waiting += [change] if change.names else []
            of_change = {*change.files, *change.names.values()}
            is_unsynced = any(now.get(file) != disk.files.get(file) for file in of_change if file is not None)
            for unsynced in Unsynced if is_unsynced else (Unsynced.NEW, Unsynced.OLD):
                files = {file: content.after(disk.files.get(file), unsynced) for file, content in now.items()}
                for said, kept in _kept(waiting, file_system):
                    left = _Tree(dict(disk.names), files)
                    for one in kept:
                        left.rename(one.names)
                    about = f"after change {number} of {len(self._changes)}: of unsynced bytes {unsynced}, {said}"
                    state = left.state(number, about)
                    identity = hash((frozenset(state.files.items()), state.folders))
                    if identity not in found:
                        found.add(identity)
                        yield state

    def last(self) -> DiskState:
        """The state without a power loss, as the recorded changes give it."""
        tree = self._before.copy()
        for change in self._changes:
            tree.files |= change.files
            tree.rename(change.names)
        return tree.state(0, "no power loss")

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What a function of `os` returns; what it changes, or what `fsync` confirms, is recorded."""
        with self._lock:
            self.note()
            result = function(*arguments, **options)
            if function.__name__ in ("fsync", "fdatasync"):
                number = self._numbers.get(os.fstat(arguments[0]).st_ino)
                self._changes += [] if number is None else [_Change(synced=number)]
            else:
                self.note()
        return result

    def note(self) -> None:
        """Record what has changed since the last time."""
        with self._lock:
            old, self._now = self._now, self._read()
            for number, content in self._now.files.items():
                if old.files.get(number) != content:
                    self._changes.append(_Change(files={number: content}))
            self._changes += [_Change(names) for names in _steps(old.names, self._now.names)]

    def _read(self) -> _Tree:
        """The folder as it is. A file whose inode had no name the last time is another file."""
        tree, numbers = _Tree(), {os.stat(self.folder).st_ino: _ROOT}
        rest = [(str(self.folder), _ROOT)]
        while rest:
            path, parent = rest.pop()
            with os.scandir(path) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    number = numbers.get(found.st_ino) or self._numbers.get(found.st_ino)
                    if number is None:
                        self._next += 1
                        number = self._next
                    numbers[found.st_ino] = number
                    tree.names[parent, entry.name] = number
                    if stat.S_ISDIR(found.st_mode):
                        rest.append((entry.path, number))
                    elif number not in tree.files:
                        tree.files[number] = FileContent(Path(entry.path).read_bytes(), found.st_mtime_ns)
        self._numbers = numbers
        return tree


@contextmanager
def recorded(folder: Path) -> Iterator[Recording]:
    """A context in which the changes of a folder by this process are recorded; only one at a time.

    Args:
        folder: A local folder of small files: all of them are read at each change.
    """
    recording = Recording(folder)
    functions = {name: getattr(os, name) for name in _CALLS}

    def recording_call(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: recording.call(function, *arguments, **options)

    try:
        for name, function in functions.items():
            setattr(os, name, recording_call(function))
        yield recording
        recording.note()
    finally:
        for name, function in functions.items():
            setattr(os, name, function)


def _steps(old: Mapping[Name, int], new: Mapping[Name, int]) -> list[dict[Name, int | None]]:
    """The changes of names: those that have a file in common are one step, such as a rename."""
    steps: list[tuple[dict[Name, int | None], set[int]]] = []
    for name in sorted({**old, **new}):
        if old.get(name) == new.get(name):
            continue
        files = {tree[name] for tree in (old, new) if name in tree}
        joined = [step for step in steps if step[1] & files]
        steps = [step for step in steps if not step[1] & files]
        names: dict[Name, int | None] = {name: new.get(name)}
        for step in joined:
            names |= step[0]
            files |= step[1]
        steps.append((names, files))
    return [names for names, _ in steps]


def _confirm(disk: _Tree, waiting: Sequence[_Change], synced: int, file_system: FileSystem) -> list[_Change]:
    """Put on the disk the changes of names that `fsync` of a file or folder confirms; returns the others."""
    is_journaled = file_system == FileSystem.JOURNALED
    confirmed = _with_earlier(waiting, lambda one: is_journaled or any(folder == synced for folder, _ in one.names))
    for change in confirmed:
        disk.rename(change.names)
    return [change for change in waiting if change not in confirmed]


def _kept(waiting: Sequence[_Change], file_system: FileSystem) -> Iterator[tuple[str, list[_Change]]]:
    """Sets of unconfirmed changes of names that are on the disk, and how to say it."""
    count = len(waiting)
    yield f"all {count} changes of names kept", list(waiting)
    for number, change in enumerate(waiting, 1):
        if file_system == FileSystem.JOURNALED:
            yield f"the last {number} of {count} changes of names lost", list(waiting[:-number])
        else:
            only, rest = _with_earlier(waiting, change.__eq__), _without_later(waiting, change)
            yield f"of {count} changes of names only number {number} kept", only
            yield f"of {count} changes of names number {number} lost", rest
    yield "all changes of names lost", []


def _with_earlier(waiting: Sequence[_Change], is_chosen: Callable[[_Change], bool]) -> list[_Change]:
    """The chosen changes, and the earlier ones of the same names."""
    names: set[Name] = set()
    found = []
    for change in reversed(waiting):
        if is_chosen(change) or names & set(change.names):
            names.update(change.names)
            found.append(change)
    return found[::-1]


def _without_later(waiting: Sequence[_Change], lost: _Change) -> list[_Change]:
    """All changes except one, and the later ones of the same names."""
    names: set[Name] = set()
    found = []
    for change in waiting:
        if change is lost or names & set(change.names):
            names.update(change.names)
        else:
            found.append(change)
    return found
