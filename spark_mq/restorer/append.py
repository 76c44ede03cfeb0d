"""An append to a stopped store: its lock, its folder, its queue files and index files, and its end.

The caller writes the new records into the append's folder, as segments. The first one is the last segment of the store
up to its live end, and then new records; zeros follow the last record of all. Everything else is made here, and only
the new records are read for it.

The new files are in `STORE/.spark_mq/append/`, under their paths in the store. The commit is:

1. All of them were written by `publish`, so they are on the disk.
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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from spark_mq.errors import CorruptLogError, NoRoomError, SparkMqError, StorageError, UnfinishedAppendError
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.indexer.rebuild_plan import DispatchSettings, RebuildPlan, Selection
from spark_mq.indexer.report import Written
from spark_mq.indexer.trees import WrittenTrees, extend_trees, rebuilt_checkpoint
from spark_mq.io.local import flush_to_disk, make_folders
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.output_committer import WORK_FOLDER, OutputCommitter
from spark_mq.job.progress import Progress
from spark_mq.job.task_errors import is_full, job_errors
from spark_mq.job.tasks import JobContext, SharedStorageCheck, Tasks
from spark_mq.restorer.append_target import AppendTarget, not_local
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.store_kind import configured_batch_topics
from spark_mq.store.config.store_paths import (
    APPEND_UNFINISHED,
    APPENDS,
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    INDEX,
)
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog, list_offset_range
from spark_mq.store.queue.folders import QueueFolder
from spark_mq.store.queue.queue_database import has_light_queues
from spark_mq.store.store_lock import store_lock

APPEND = "append"
"""The name of an append's folder in `.spark_mq/`."""
COMMIT = "commit.json"
_SYNCED_AT_ONCE = 8
_TREES = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX, CONFIG, COMMIT_LOG)
"""The folders whose files are put in place, in this order; the checkpoint and the list of appends follow."""
_TEXT = (
    "spark-mq is putting the files of an append into this store, or was interrupted while it did. No broker must start "
    "on the store until then. Run the same `spark-mq restore --append` again: it finishes the append, and removes this "
    "file. Do not remove it yourself.\n"
)


@dataclass(frozen=True)
class NewFile:
    """A new file: its path in the store, its bytes, and the time of its last change (ns). A rename keeps all three."""

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
    """The changes of an append; paths are relative to the store."""

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


def append_folder(store: Location) -> Location:
    """The folder in which an append makes its files, under their paths in the store."""
    return store / WORK_FOLDER / APPEND


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
    """Put the files in the folder of an append in place, all or none of them, and remove the folder."""
    folder = Path(append_folder(store).path)
    try:
        commit = Commit(tuple(_new_files(folder)), tuple(removed), dict(about or {}))
        publish(Location.resolve(str(folder / COMMIT)), json.dumps(asdict(commit)).encode())
        staged_marker = folder / APPEND_UNFINISHED
        publish(Location.resolve(str(staged_marker)), _TEXT.encode())
        os.rename(staged_marker, _marker(store))
    except OSError as error:
        if is_full(error):
            raise NoRoomError(f"{folder}: the disk is full; nothing was appended, the store is as it was") from error
        raise _storage_error(str(error.filename or folder), "cannot be written; nothing was appended", error) from error
    _put_in_place(store, folder, commit)
    then()
    _remove(folder)


def finish_append(store: Location) -> Mapping[str, Any] | None:
    """What the caller of `commit_append` said of an append that was interrupted, and is in place now; else None.

    Such an append is finished, or what it left is removed, and the store is as it was before.
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
        return commit.about
    if not folder.exists():
        return None
    staged = [file for file in commit.files if (folder / file.path).is_file()] if commit is not None else []
    if commit is not None and staged and len(staged) < len(commit.files):
        raise UnfinishedAppendError(
            f"{folder} has only {len(staged):,} of the {len(commit.files):,} files of an interrupted append, and "
            f"{marker} was removed: if no broker has used the store since then, create an empty file of that name, and "
            "run the append again; otherwise take the store from a backup"
        )
    _remove(folder)
    return None if commit is None or staged else commit.about


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


def _put_in_place(store: Location, folder: Path, commit: Commit) -> None:
    """The steps after the decision. Each of them can have been done before."""
    root, marker = Path(store.path), _marker(store)
    try:
        flush_to_disk(str(marker.parent))
        changed: set[Path] = set()
        for file in commit.files:
            target = root / file.path
            if (folder / file.path).is_file():
                make_folders(str(target.parent))
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
        with ThreadPoolExecutor(_SYNCED_AT_ONCE) as threads:  # a disk takes little more time for them than for one
            list(threads.map(flush_to_disk, map(str, changed)))
        marker.unlink()
        flush_to_disk(str(marker.parent))
    except OSError as error:
        what = "cannot be changed. The append is decided, and has to be finished: run it again"
        raise _storage_error(str(error.filename or root), what, error) from error


def _remove(folder: Path) -> None:
    """Remove the folder of an append: first the file without which nothing in it counts."""
    if (folder / COMMIT).exists():
        (folder / COMMIT).unlink()
        flush_to_disk(str(folder))
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # a repair keeps its backups there
        folder.parent.rmdir()


def _storage_error(path: str, what: str, error: OSError) -> StorageError:
    return StorageError(f"{path} {what}: {error.strerror or error}")


@dataclass(frozen=True)
class Append:
    """An append that has begun; `interrupted` is what one said that was interrupted before, and is in place now."""

    target: AppendTarget
    folder: Location
    interrupted: Mapping[str, Any] | None

    def write_trees(self, tasks: Tasks, log_end: int, split_size: int = DEFAULT_SPLIT_SIZE) -> WrittenTrees:
        """Write queue files, index files and the checkpoint for the new records, into the append's folder."""
        target = self.target
        batches = tuple(sorted(configured_batch_topics(target.store)))
        selection = Selection(has_index=target.has_index, has_batches=bool(batches))
        trees = selection.trees
        log_range = list_offset_range(self.folder, target.log_end, log_end)
        for missing in log_range.missing:
            raise CorruptLogError(f"{self.folder}: the new records are not all there: {missing.describe()}")
        committer = OutputCommitter(target.store, trees, work_folder=f"{WORK_FOLDER}/{APPEND}")
        log = CommitLog(self.folder / COMMIT_LOG, log_range.segments)
        context = JobContext(
            tasks.checked(SharedStorageCheck.record(log, self.folder)),
            Progress(self.folder, tasks.on_progress),
            committer=committer,
        )
        has_light = has_light_queues(target.store, target.conf)
        delay_levels = target.conf.message_delay_level
        plan = RebuildPlan(
            store=target.store,
            broker_conf=target.conf,
            broker_versions=target.broker_versions,
            selection=selection,
            settings=DispatchSettings(target.queue_file_size, delay_levels, target.index_tags, has_light, batches),
            split_size=split_size,
            continued=trees,
        )
        extension = extend_trees(context, plan, log_range)
        existing = replace(Checkpoint.load(target.store), written_end=log_end)
        last = extension.staged.last_store_timestamp or target.last_store_timestamp
        index_end = max(existing.index_msg_timestamp, extension.written.end_timestamp)
        last_unit = extension.staged.last_unit_offset or existing.logics_physical_offset
        checkpoint = rebuilt_checkpoint(existing, trees, last, index_end, last_unit, target.broker_versions)
        publish(self.folder / CHECKPOINT, checkpoint.encode(), CHECKPOINT_SIZE)
        return self._without_stale_units(extension)

    def _without_stale_units(self, extension: WrittenTrees) -> WrittenTrees:
        """Make the queues without new messages end where they end, with zeros after it; the time of a file stays.

        A recovery that cuts the log leaves the units of the records that it cut off, and new records take their place.
        Then a start of a broker takes the units for live ones (`ConsumeQueue.recover`@5.3.3 and @4.9.7 stop only at
        zeros).
        """
        removed: list[Location] = []
        for folder, end in self.target.stale_queues:
            output = self.folder / folder.tree / folder.topic / str(folder.queue_id)
            if not output.is_directory:
                removed += _write_end(folder, end, output)
        return replace(extension, written=extension.written + Written(stale_files=tuple(removed)))

    def commit(
        self,
        extension: WrittenTrees,
        config: Mapping[str, bytes],
        about: Mapping[str, Any],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Put everything in place, with new files (`config`), all or nothing. Then the append's folder is gone.

        The previous content of a file of `config/` stays as `.bak`, as with a broker (`MixAll.string2File`@5.3.3).
        """
        root = self.target.store
        for path, content in config.items():
            file = root / path
            previous = file.read_bytes() if file.is_file else None
            if previous == content:
                continue
            if previous is not None and path.startswith(f"{CONFIG}/"):
                publish(self.folder / f"{path}.bak", previous)
            publish(self.folder / path, content)
        removed = [file.path.removeprefix(f"{root.path}/") for file in extension.written.stale_files]
        commit_append(root, removed, about, then)


@contextmanager
def appending(store: Location, conf: BrokerConf) -> Iterator[Append]:
    """A context for an append; the store's lock is held in it. Without `commit`, the store stays as it is.

    An append that was interrupted is finished first.
    """
    with locked_store(store) as interrupted:
        target, folder = AppendTarget(store, conf), append_folder(store)
        try:
            make_folders(folder.path)
        except OSError as error:
            raise _storage_error(folder.path, "cannot be created", error) from error
        try:
            yield Append(target, folder, interrupted)
        except job_errors() as error:
            if isinstance(error, SparkMqError) or not is_full(error):
                raise
            raise NoRoomError(f"{folder}: the disk is full; nothing was appended, the store is as it was") from error
        finally:
            discard_append(store)


@contextmanager
def locked_store(store: Location) -> Iterator[Mapping[str, Any] | None]:
    """A context in which the store's lock is held, with the result of `finish_append`."""
    if not store.is_local:
        raise not_local(store)
    with suppress(UnfinishedAppendError):
        CommitLog.open(store)  # a path that is not a store gets no lock file
    with store_lock(store, or_else=None):
        yield finish_append(store)


def _write_end(folder: QueueFolder, end: int, output: Location) -> list[Location]:
    """Write the file that contains byte `end` of the queue; returns the files after that one."""
    removed = []
    for number, info in enumerate(folder.files):
        start = int(info.base_name)
        if end >= start + info.size:
            continue
        # Without any file, a queue that begins above 0 would begin at 0 again.
        if end > start or (number == 0 and start > 0):
            content = (folder.location / info.base_name).read_bytes()[: end - start]
            publish(output / info.base_name, content, info.size, info.mtime_ns // NANOS_PER_MILLI)
        else:
            removed.append(folder.location / info.base_name)
    return removed
