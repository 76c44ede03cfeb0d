"""The commit of an append: all files of an append are put in place, or none of them.

The new files are in `STORE/.spark_mq/append/`, under their paths in the store. The commit is:

1. All of them are flushed to the disk.
2. `commit.json` in that folder names all changes.
3. The file `commitlog/append-unfinished` is created, in one step. From here on the append is decided. While this file
   exists, no broker starts on the store, and this package does not read it: some files are old, others are new.
4. Each new file takes the place of the old one by a rename. Files that have become needless are removed.
5. `append-unfinished` is removed, then `commit.json`, then the rest of the folder.

So a run that is killed, or a machine that fails, leaves one of these states, which `finish_append` tells apart:

| `append-unfinished` | `commit.json` | new files in the folder | state |
| --- | --- | --- | --- |
| no | no | any | before step 2: the folder is removed, the store is as it was |
| no | yes | all | before step 3: the same |
| yes | yes | some | steps 3 and 4: the other files are put in place |
| no | yes | none | step 5: everything is in place, only the folder is removed |

`append-unfinished` is not empty: a broker from 5.1.3 on deletes an empty file that is the last one by its name
(`MappedFileQueue.doLoad`@5.3.3). All functions need the store's lock (`store.store_lock`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from spark_mq.errors import NoRoomError, StorageError, UnfinishedAppendError
from spark_mq.io.local import sync_folder
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.output_committer import WORK_FOLDER
from spark_mq.job.task_errors import is_full
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.config.store_paths import APPEND_UNFINISHED, APPENDS, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX

APPEND = "append"
"""The name of an append's folder in `.spark_mq/`."""
COMMIT = "commit.json"
_SYNCED_AT_ONCE = 8
_TREES = (CONSUME_QUEUE, INDEX, CONFIG, COMMIT_LOG)
"""The folders whose files are put in place, in this order; the checkpoint and the list of appends follow."""
_TEXT = (
    "spark-mq is putting the files of an append into this store, or was interrupted while it did. No broker must start "
    "on the store until then. Run the same `spark-mq restore --append` again: it finishes the append, and removes this "
    "file. Do not remove it yourself.\n"
)


@dataclass(frozen=True)
class NewFile:
    """A new file: its path in the store, its bytes, and the time of its last change in nanoseconds.

    A rename keeps all of these, so they tell a new file from an old one.
    """

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, folder: Path, path: str) -> Self:
        """The file at a path in a folder."""
        stat = (folder / path).stat()
        return cls(path, stat.st_size, stat.st_mtime_ns)

    def is_in_place(self, store: Path) -> bool:
        """Whether the file is at its place in the store.

        A broker that does not start can have written files of `config/`: it writes them when it stops.
        """
        is_of_config = self.path.startswith(f"{CONFIG}/")
        return (store / self.path).is_file() and (is_of_config or self.of(store, self.path) == self)


@dataclass(frozen=True)
class Commit:
    """The changes of an append; paths are relative to the store.

    Attributes:
        files: The new files, in the order in which they are put in place.
        about: What the caller says of the append: values that JSON can express.
    """

    files: tuple[NewFile, ...]
    removed: tuple[str, ...]
    about: Mapping[str, Any]

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The commit that `commit.json` in an append's folder describes; None without the file."""
        try:
            values = json.loads((folder / COMMIT).read_bytes())
        except FileNotFoundError:
            return None
        return cls(tuple(NewFile(**file) for file in values["files"]), tuple(values["removed"]), values["about"])

    def staged(self, folder: Path) -> list[NewFile]:
        """The new files that are still in the append's folder."""
        return [file for file in self.files if (folder / file.path).is_file()]


@dataclass(frozen=True)
class FinishedAppend:
    """An append that was interrupted, and is now over.

    Attributes:
        is_in_place: Whether its messages are in the store; else the store is as it was before.
        about: What the caller of `commit_append` said of it; empty if the append did not come so far.
    """

    is_in_place: bool
    about: Mapping[str, Any]


def append_folder(store: Location) -> Location:
    """The folder in which an append makes its files, under their paths in the store."""
    return store / WORK_FOLDER / APPEND


def begin_append(store: Location) -> Location:
    """Create the folder of an append, empty; returns it. What an interrupted append left must be finished before."""
    folder = append_folder(store)
    try:
        os.makedirs(folder.path)
    except OSError as error:
        raise _storage_error(folder.path, "cannot be created", error) from error
    return folder


def discard_append(store: Location) -> None:
    """Remove the folder of an append that is not decided; the store is as it was."""
    folder = Path(append_folder(store).path)
    if not _marker(store).exists():
        _remove(folder)


def commit_append(
    store: Location,
    removed: Iterable[str] = (),
    about: Mapping[str, Any] | None = None,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Put the files in the folder of an append in place, all or none of them, and remove the folder.

    Args:
        removed: Files that the store has, and that are removed, as paths in the store.
        about: What `finish_append` returns if this function is interrupted: values that JSON can express.
        then: Is called when everything is in place, before the folder is removed.
    """
    folder = Path(append_folder(store).path)
    try:
        commit = Commit(tuple(_new_files(folder)), tuple(removed), dict(about or {}))
        _flush(folder, [file.path for file in commit.files])
        content = json.dumps(asdict(commit)).encode()
        publish(Location.resolve(str(folder / COMMIT)), content, len(content))
        staged_marker = folder / APPEND_UNFINISHED
        publish(Location.resolve(str(staged_marker)), _TEXT.encode(), len(_TEXT))
        os.rename(staged_marker, _marker(store))
    except OSError as error:
        if is_full(error):
            raise NoRoomError(f"{folder}: the disk is full; nothing was appended, the store is as it was") from error
        raise _storage_error(str(error.filename or folder), "cannot be written; nothing was appended", error) from error
    _put_in_place(store, folder, commit)
    then()
    _remove(folder)


def finish_append(store: Location) -> FinishedAppend | None:
    """Finish an append that was interrupted, or remove what it left.

    Returns:
        What has become of the append; None if none was interrupted. If its messages are in place, the same append must
        not be run again.
    """
    folder, marker = Path(append_folder(store).path), _marker(store)
    commit = Commit.load(folder)
    if marker.exists():
        if commit is None:
            raise UnfinishedAppendError(
                f"{marker}: an append was interrupted while its files were put in place, and {folder} with the other "
                "files is gone: put that folder back. Without it, take the store from a backup"
            )
        _put_in_place(store, folder, commit)
        _remove(folder)
        return FinishedAppend(True, commit.about)
    if not folder.exists():
        return None
    staged = [] if commit is None else commit.staged(folder)
    if commit is not None and staged and len(staged) < len(commit.files):
        raise UnfinishedAppendError(
            f"{folder} has only {len(staged):,} of the {len(commit.files):,} files of an interrupted append, and "
            f"{marker} was removed: if no broker has used the store since then, create an empty file of that name, and "
            "run the append again; otherwise take the store from a backup"
        )
    is_in_place = commit is not None and not staged
    _remove(folder)
    return FinishedAppend(is_in_place, {} if commit is None else commit.about)


def _marker(store: Location) -> Path:
    return Path(store.path, COMMIT_LOG, APPEND_UNFINISHED)


def _new_files(folder: Path) -> Iterator[NewFile]:
    """The new files in the folder. A name that begins with a dot is that of an unfinished file."""
    for tree in _TREES:
        for file in sorted((folder / tree).rglob("*")):
            if file.is_file() and not file.name.startswith("."):
                yield NewFile.of(folder, file.relative_to(folder).as_posix())
    for name in (CHECKPOINT, APPENDS):
        if (folder / name).is_file():
            yield NewFile.of(folder, name)


def _flush(folder: Path, files: Iterable[str]) -> None:
    """Flush files, and the folders that lead to them, to the disk."""
    paths = [folder / path for path in files]
    _sync(paths)
    _sync({parent for path in paths for parent in path.parents if parent.is_relative_to(folder)})
    _sync([folder.parent, folder.parent.parent])


def _sync(paths: Iterable[Path]) -> None:
    """Flush files or folders to the disk, several at once: a disk takes little more time for them than for one."""
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as threads:
        for _ in threads.map(sync_folder, map(str, paths)):
            pass


def _put_in_place(store: Location, folder: Path, commit: Commit) -> None:
    """The steps after the decision. Each of them can have been done before."""
    root, marker = Path(store.path), _marker(store)
    try:
        sync_folder(str(marker.parent))
        changed = set()
        for file in commit.files:
            target = root / file.path
            if (folder / file.path).is_file():
                changed.update(_make_folders(target.parent))
                os.replace(folder / file.path, target)
            elif not file.is_in_place(root):
                raise UnfinishedAppendError(
                    f"{target} is not the file of the interrupted append, and {folder} does not have it either: take "
                    "the store from a backup"
                )
            changed.add(target.parent)
        for path in commit.removed:
            (root / path).unlink(missing_ok=True)
            changed.add((root / path).parent)
        _sync(changed)
        marker.unlink()
        sync_folder(str(marker.parent))
    except OSError as error:
        raise _storage_error(
            str(error.filename or root),
            "cannot be changed. The append is decided, and has to be finished: run it again",
            error,
        ) from error


def _make_folders(folder: Path) -> list[Path]:
    """Create a folder and its parents if needed; returns the folders that have got a new entry."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return [one.parent for one in missing]


def _remove(folder: Path) -> None:
    """Remove the folder of an append: first the file without which nothing in it counts."""
    if (folder / COMMIT).exists():
        (folder / COMMIT).unlink()
        sync_folder(str(folder))
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # a repair keeps its backups there
        folder.parent.rmdir()


def _storage_error(path: str, what: str, error: OSError) -> StorageError:
    return StorageError(f"{path} {what}: {error.strerror or error}")
