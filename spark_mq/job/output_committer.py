"""The output committer and the lock of an output: unfinished trees are in the job's folder until the end.

The job's folder is `<output>/.spark_mq/`. On a local filesystem and on HDFS a finished tree is renamed as a whole. The
tree that it replaces is set aside first. When the new tree is in place, the old one becomes a backup, or is removed. If
a job is killed between the two renames, the next job puts the old tree back. When a tree is continued, it stays in
place: new files are renamed into it in name order, so an interrupted commit always leaves a valid prefix of the result.
Object stores cannot rename a tree: there, files are written whole under their final names, and the job's folder says
which trees are unfinished (`UnfinishedTrees`). The end of that folder is the commit.

A job can name a file without which nothing in its folder counts, such as a manifest. This file is removed first when
the folder is cleared, so a job that is killed while it clears leaves nothing that looks complete.

A file in the job's folder names them before their first file is written. While it exists, the trees count as
unfinished: a job without `resume` removes them, and one with `resume` continues them.

The folder itself is locked (`flock`), so no file is left in it, and the lock ends with the process. A folder that is a
store has the store's own lock besides, which brokers know (`store.store_lock`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Final

from pyarrow import fs

from spark_mq.errors import OutputExistsError, OutputInUseError, StorageError
from spark_mq.io.local import flush_to_disk
from spark_mq.io.location import Location
from spark_mq.io.publish import publish, remove_folder, rename
from spark_mq.job.task_errors import is_full, reason_of

_NAMES: Final = "unfinished.json"
"""The file in the job's folder."""
_REMOVERS: Final = 8
"""Threads that remove files: each removal is a request or two."""
_NOT_SUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of filesystems that cannot lock a folder, such as NFS."""
WORK_FOLDER = ".spark_mq"
_REMOVED, _KEPT = "replaced-", "kept-"
"""Folders of trees that are set aside, to be removed or to be kept as a backup. The rest of the name is the number of
parts of a tree's path: 1 for `consumequeue`, 2 for `consumequeue/TOPIC`."""
BACKUP = "backup-"


@dataclass(frozen=True)
class UnfinishedTrees:
    """The unfinished trees of an output."""

    output: Location
    folder: Location

    def names(self) -> tuple[str, ...]:
        """The trees, as paths relative to the output; empty if the job's folder names none."""
        file = self.folder / _NAMES
        if not file.is_file:
            return ()
        try:
            names = json.loads(file.read_bytes())
        except ValueError:
            return ()
        texts = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        return tuple(name for name in texts if not {"", ".", ".."} & set(name.split("/")))  # none leaves the output

    def add(self, names: Iterable[str]) -> None:
        """Name these trees as unfinished, besides those that are named already."""
        content = json.dumps([*dict.fromkeys((*self.names(), *names))]).encode()
        publish(self.folder / _NAMES, content)

    def remove(self) -> None:
        """Remove all files of the trees."""
        for name in self.names():
            if (self.output / name).is_directory:
                remove_folder(self.output / name)


def _remove_file(file: Location) -> None:
    with suppress(FileNotFoundError):  # a task of a killed job can still run, and remove its own temporary file
        file.delete()


@contextmanager
def output_lock(output: Location) -> Iterator[None]:
    """A context in which no other job on this machine can write into the folder. The folder is created if needed.

    There is no lock on a filesystem that is not local, or that cannot lock folders.
    """
    if not output.locks:
        yield
        return
    step, descriptor = "created", -1
    try:
        os.makedirs(output.path, exist_ok=True)
        step = "opened"
        descriptor = os.open(output.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        step = "locked"
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if step != "locked" or error.errno not in _NOT_SUPPORTED:
            if descriptor >= 0:
                os.close(descriptor)
            if is_full(error):
                raise
            raise _lock_error(output, step, error) from error
    try:
        yield
    finally:
        os.close(descriptor)  # which ends the lock


def _lock_error(output: Location, step: str, error: OSError) -> OutputInUseError | StorageError:
    if isinstance(error, BlockingIOError):
        return OutputInUseError(
            f"{output}: another job writes into this folder: wait until it has ended, or give another folder"
        )
    remedy = "" if step == "locked" else "; give a folder that can be written"
    return StorageError(f"{output}: the folder cannot be {step}: {reason_of(error)}{remedy}")


@dataclass(frozen=True)
class OutputCommitter:
    """The output of a job; without the file `removed_first`, nothing in the job's folder counts."""

    output: Location
    names: tuple[str, ...]
    removed_first: str | None = None
    keeps_replaced: bool = True
    work_folder: str = WORK_FOLDER

    @property
    def folder(self) -> Location:
        """The job's folder, for everything that is not finished."""
        return self.output / self.work_folder

    @property
    def _unfinished(self) -> UnfinishedTrees:
        return UnfinishedTrees(self.output, self.folder)

    def target(self, name: str) -> Location:
        """The location of a finished tree."""
        return self.output / name

    def staging_path(self, name: str) -> Location:
        """The location at which a tree is written: in the job's folder if a tree can be renamed, else its target."""
        return self.folder / name if self.output.renames else self.target(name)

    def setup(self, replace: bool) -> None:
        """Remove what a killed job left, and create the job's folder."""
        self._put_back()
        self.check_targets(replace)
        self._retire()
        self.clear()

    def check_targets(self, replace: bool) -> None:
        """Raise `OutputExistsError` if a target exists and `replace` is false, or if it cannot be replaced."""
        for target in map(self.target, self.existing()):
            if not self.output.renames:
                raise OutputExistsError(f"{target} exists, and no tree can be renamed there: give another --output")
            if not replace:
                raise OutputExistsError(
                    f"{target} exists: give another --output, or --replace to put the rebuilt tree in its place, or "
                    "--only the other one"
                )

    def resume(self) -> tuple[str, ...]:
        """The names of the existing trees, which are to be continued. The job's folder keeps what a killed job left."""
        self._put_back()
        existing = self.existing()
        if existing and not self.output.renames:
            raise OutputExistsError(
                f"{self.target(existing[0])} exists, and no file can be replaced whole there: give another --output"
            )
        self._retire()
        self._make()
        return existing

    def clear(self) -> None:
        """Empty the job's folder; trees that a killed job left unfinished under their final names are removed, too."""
        self._remove_all()
        self._make()

    def _remove_all(self) -> None:
        if not self.output.renames:
            self._unfinished.remove()
        self._remove()

    def _make(self) -> None:
        try:
            self.folder.make_folder()
            if not self.output.renames:
                self._unfinished.add(self.names)
        except OSError as error:
            if is_full(error):
                raise
            raise StorageError(
                f"--output {self.output}: the job's folder {self.folder} cannot be created: {reason_of(error)}; give a "
                "folder that can be written"
            ) from error

    def _remove(self) -> None:
        """Remove the folder if it exists: first the file `removed_first`, then all others. Backups of repairs stay."""
        if not self.folder.is_directory:
            return
        if self.removed_first is not None and (self.folder / self.removed_first).is_file:
            if self.output.is_local:
                os.unlink((self.folder / self.removed_first).path)
                flush_to_disk(self.folder.path)
            else:
                (self.folder / self.removed_first).delete()
        others = [info for info in self.folder.entries() if not info.base_name.startswith(BACKUP)]
        is_link = self.output.is_local and os.path.islink(self.folder.path)
        if is_link or len(others) == len(self.folder.entries()):
            remove_folder(self.folder)
            return
        for info in others:
            if info.type == fs.FileType.Directory:
                remove_folder(self.folder / info.base_name)
            else:
                (self.folder / info.base_name).delete()

    def existing(self) -> tuple[str, ...]:
        """The names of the existing trees; unfinished trees of a killed job do not count."""
        unfinished = () if self.output.renames else self._unfinished.names()
        return tuple(name for name in self.names if name not in unfinished and self.target(name).entries())

    def _set_aside(self) -> Iterator[tuple[Location, str, bool]]:
        """Each tree that is set aside, by this job or a killed one."""
        for entry in self.folder.entries() if self.output.renames else ():
            kind, _, depth = entry.base_name.rpartition("-")
            if f"{kind}-" in (_REMOVED, _KEPT) and depth.isdecimal():
                folder = self.folder / entry.base_name
                for name in _names(folder, int(depth)):
                    yield folder / name, name, f"{kind}-" == _KEPT

    def _put_back(self) -> None:
        """Put trees back that were set aside and whose successor is missing."""
        for tree, name, _ in self._set_aside():
            if not self.target(name).is_directory:
                rename(tree, self.target(name))

    def _retire(self) -> str | None:
        """Make trees that were replaced a backup, or remove them; returns the folder of the backup."""
        backup: Location | None = None
        for tree, name, is_kept in list(self._set_aside()):
            if not is_kept:
                remove_folder(tree)
                continue
            backup = backup or unused(self.output, f"{BACKUP}{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
            rename(tree, backup / name)
            if self.output.is_local:
                flush_to_disk(self.output.path)
        return None if backup is None else str(backup)

    def keep_only(self, name: str, is_planned: Callable[[str], bool]) -> None:
        """Remove the files that a killed job left in an unfinished tree, except planned files."""
        tree = self.staging_path(name)
        with ThreadPoolExecutor(_REMOVERS) as removers:
            list(removers.map(_remove_file, (tree / path for path in tree.files_below() if not is_planned(path))))

    def commit(self, continued: Collection[str] = (), stale: Iterable[Location] = ()) -> str | None:
        """Put the trees in place of the old ones, and remove the job's folder; those in `continued` get new files only.

        Returns the folder with the trees that were replaced; None if no tree was replaced and kept.
        """
        for name in self.names if self.output.renames else ():
            self.staging_path(name).make_folder()
            if name in continued:
                growing = self.staging_path(name)
                for path in sorted(growing.files_below(), key=lambda path: path.split("/")):
                    rename(growing / path, self.target(name) / path)
                continue
            if self.target(name).is_directory:
                kind = _KEPT if self.keeps_replaced else _REMOVED
                rename(self.target(name), self.folder / f"{kind}{name.count('/') + 1}" / name)
            rename(self.staging_path(name), self.target(name))
        for file in stale:
            file.delete()
        if not self.output.renames:
            with suppress(FileNotFoundError):
                (self.folder / _NAMES).delete()
        backup = self._retire()
        self._remove()
        return backup

    def abort(self) -> None:
        """Remove the job's folder and unfinished trees; a tree that was set aside and has no successor is put back."""
        self._put_back()
        self._retire()
        self._remove_all()


def unused(folder: Location, name: str) -> Location:
    """What does not exist yet in a folder: the name, or the name with a number."""
    choices = (folder / (name if number == 1 else f"{name}-{number}") for number in count(1))
    return next(choice for choice in choices if choice.info().type == fs.FileType.NotFound)


def _names(folder: Location, depth: int) -> list[str]:
    """The paths of what is `depth` levels below a folder, relative to it."""
    names = [info.base_name for info in folder.entries()]
    if depth == 1:
        return names
    return [f"{name}/{rest}" for name in names for rest in _names(folder / name, depth - 1)]
