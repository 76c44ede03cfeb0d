"""The queue files that a store has, `consumequeue/TOPIC/QUEUE ID/<20 digits>`, and what a broker's start does to them.

`ConsumeQueue.recover` and `truncateDirtyLogicFiles`@5.3.3 are the same in 4.9. The first one looks for the end of the
queue from its third-last file on. The second one cuts off the units of messages after the end of the log. It counts the
first unit of a file, whatever it contains; so the end of a queue whose last file is empty moves by one. Those of
`BatchConsumeQueue`, 5.0.0 to 5.5.1, do the same with units of 46 bytes, but know the commit log offset of the last
record where those of `ConsumeQueue` know the one after it.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from spark_mq.errors import SparkMqError
from spark_mq.format.array_types import leading
from spark_mq.format.consume_queue import (
    BATCH_FILE_SIZE,
    BATCH_UNIT_DTYPE,
    BATCH_UNIT_SIZE,
    DEFAULT_FILE_SIZE,
    UNIT_DTYPE,
    UNIT_SIZE,
    Units,
    is_written,
)
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf, Sourced
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, MAPPED_FILE_NAME

_Entry = TypeVar("_Entry")
_FILES_BACK = 3
_FIRST_BLOCK = 16 << 10
_BLOCK = 1 << 20
NO_FILE = -1
_QUEUE_ID = re.compile(r"-?[0-9]{1,10}")


@dataclass(frozen=True)
class RecoveredQueue:
    """A queue after a step of a start.

    Attributes:
        end: The byte of the queue after its last unit; -1 if it has no file.
        next_offset: The queue offset after its last unit.
    """

    folder: QueueFolder
    file_size: int
    end: int
    next_offset: int
    max_physic_offset: int
    files: tuple[QueueFileInfo, ...]
    deleted: tuple[QueueFileInfo, ...] = ()


def recover_queue(folder: QueueFolder, file_size: int, readers: FileReaders) -> RecoveredQueue:
    """The queue after `ConsumeQueue.recover`; each of its files has `file_size` bytes."""
    files = folder.files
    if not files:
        return RecoveredQueue(folder, file_size, NO_FILE, 0, -1, ())
    max_physic_offset = -1
    end = 0
    for info in files[max(len(files) - _FILES_BACK, 0) :]:
        count, max_physic_offset = _kept_units(folder, info, file_size, readers, max_physic_offset)
        end = int(info.base_name) + count * folder.unit_size
        if count * folder.unit_size < file_size:
            break
    deleted = tuple(info for info in files if int(info.base_name) > end)
    kept, next_offset = tuple(info for info in files if info not in deleted), _next_offset(folder, end, readers)
    return RecoveredQueue(folder, file_size, end, next_offset, max_physic_offset, kept, deleted)


def truncate_queue(queue: RecoveredQueue, log_end: int, readers: FileReaders) -> RecoveredQueue:
    """The queue after `truncateDirtyLogicFiles`: without its units of messages from commit log offset `log_end` on."""
    folder = queue.folder
    for kept in range(len(queue.files), 0, -1):
        info = queue.files[kept - 1]
        count, max_physic_offset = _kept_units(folder, info, queue.file_size, readers, log_end, log_end)
        if count:
            end = int(info.base_name) + count * folder.unit_size
            ends = end, _next_offset(folder, end, readers), max_physic_offset
            return RecoveredQueue(folder, queue.file_size, *ends, queue.files[:kept], queue.files[kept:])
    return RecoveredQueue(folder, queue.file_size, NO_FILE, 0, log_end - folder.is_batch, (), queue.files)


def units_after(queue: RecoveredQueue, start: int, log_end: int, readers: FileReaders) -> tuple[int, int]:
    """The number of valid units of messages before `log_end` from byte `start` on, which is in its last file.

    Also returns `max_physic_offset` after them.
    """
    location = queue.folder.location / queue.files[-1].base_name
    data = readers.read(location, start % queue.file_size, queue.file_size - start % queue.file_size)
    units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
    count = leading(_is_valid(queue.folder, units) & (units["commit_log_offset"] < log_end))
    return count, _max_physic_offset(queue.folder, units[count - 1]) if count else -1


def _kept_units(
    folder: QueueFolder,
    info: QueueFileInfo,
    file_size: int,
    readers: FileReaders,
    max_physic_offset: int,
    log_end: int | None = None,
) -> tuple[int, int]:
    """The number of units of a file that a step keeps, and `max_physic_offset` after them.

    With `log_end`, units of messages from there on are cut off, and the first unit is not asked whether it is valid.
    """
    count = 0
    for units in unit_blocks(folder, info, file_size, readers):
        is_kept = _is_valid(folder, units)
        if log_end is not None:
            is_before = units["commit_log_offset"] < log_end
            is_kept &= is_before
            is_kept[0] = is_before[0] if count == 0 else is_kept[0]
        valid = leading(is_kept)
        if valid:
            max_physic_offset = _max_physic_offset(folder, units[valid - 1])
        count += valid
        if valid < units.size:
            break
    return count, max_physic_offset


def unit_blocks(folder: QueueFolder, info: QueueFileInfo, file_size: int, readers: FileReaders) -> Iterator[Units]:
    """The units of a file from its start, in blocks."""
    size, dtype = folder.unit_size, BATCH_UNIT_DTYPE if folder.is_batch else UNIT_DTYPE
    position, length = 0, _FIRST_BLOCK // size * size
    while position < file_size:
        data = readers.read(folder.location / info.base_name, position, min(length, file_size - position))
        units = np.frombuffer(data, dtype, len(data) // size)
        if not units.size:
            return
        yield units
        position += units.size * size
        length = min(4 * length, _BLOCK // size * size)


def _is_valid(folder: QueueFolder, units: Units) -> npt.NDArray[np.bool_]:
    """Which units a boot keeps."""
    if folder.is_batch:
        return is_written(units)
    valid: npt.NDArray[np.bool_] = (units["commit_log_offset"] >= 0) & (units["store_size"] > 0)
    return valid


def _max_physic_offset(folder: QueueFolder, unit: Any) -> int:
    """The commit log offset after the message of a unit, as Java adds it; that of the record in a batch queue."""
    after = int(unit["commit_log_offset"]) + (0 if folder.is_batch else int(unit["store_size"]))
    return after if after < 1 << 63 else after - (1 << 64)


def _next_offset(folder: QueueFolder, end: int, readers: FileReaders) -> int:
    """The queue offset after the last unit before byte `end` of the queue; 0 without a unit in a batch queue."""
    if not folder.is_batch:
        return end // UNIT_SIZE
    for info in folder.files:
        position = end - BATCH_UNIT_SIZE - int(info.base_name)
        if 0 <= position < info.size:
            data = readers.read(folder.location / info.base_name, position, BATCH_UNIT_SIZE)
            (unit,) = np.frombuffer(data, BATCH_UNIT_DTYPE)
            return int(unit["queue_offset"]) + int(unit["message_count"])
    return 0


@dataclass(frozen=True)
class QueueFileInfo:
    """Name, size in bytes, and time of the last change (nanoseconds since the epoch) of one file."""

    base_name: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class QueueFolder:
    """One queue's folder and its files, by name."""

    topic: str
    queue_id: int
    location: Location
    files: tuple[QueueFileInfo, ...]

    @property
    def tree(self) -> str:
        """The folder of all queues of this kind, in the store."""
        return self.location.parent.parent.name

    @property
    def is_batch(self) -> bool:
        """Whether it is a batch consume queue."""
        return self.tree == BATCH_CONSUME_QUEUE

    @property
    def first_offset(self) -> int:
        """The queue offset of the first byte of its first file; 0 without files, and of a batch consume queue."""
        return int(self.files[0].base_name) // UNIT_SIZE if self.files and not self.is_batch else 0

    @property
    def unit_size(self) -> int:
        """Bytes of a unit in its files."""
        return BATCH_UNIT_SIZE if self.is_batch else UNIT_SIZE


def without_empty_file(folder: QueueFolder) -> QueueFolder:
    """The folder without an empty last file."""
    return replace(folder, files=folder.files[:-1]) if folder.files and folder.files[-1].size == 0 else folder


def queue_path(topic: str, queue_id: int, name: str, tree: str = CONSUME_QUEUE) -> str:
    """The path of a queue file in its store; `tree` is the folder of all queues of a kind."""
    return f"{tree}/{topic}/{queue_id}/{name}"


def queue_folders(
    consume_queue: Location, with_empty: bool = False, skips_unreadable: bool = False
) -> Iterator[QueueFolder]:
    """The queues in a `consumequeue` folder that have files; none if there is no such folder.

    As in the broker (`ConsumeQueueStore.load`@5.3.3), a queue folder whose name is not a number is skipped. A file
    without a byte, and a queue without files, are left out, unless `with_empty` is True.

    A folder that cannot be listed is an error. With `skips_unreadable` only it is left out, with a warning: that is for
    answers that read in the log what no queue proves.
    """
    for topic in consume_queue.folders():
        yield from _folders_of_topic(consume_queue / topic, None, with_empty, skips_unreadable)


def queues_in_files(store: Location) -> Iterator[QueueFolder]:
    """All folders of consume queues and batch consume queues of a store."""
    for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        yield from queue_folders(store / tree, with_empty=True)


def folders_of_topic(consume_queue: Location, topic: str, queue_id: int | None = None) -> list[QueueFolder]:
    """The queues of one topic that `queue_folders` returns, or one of them. No other topic's folder is listed."""
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return []
    return list(_folders_of_topic(consume_queue / topic, queue_id, with_empty=False, skips_unreadable=True))


def queue_folder(consume_queue: Location, topic: str, queue_id: int) -> QueueFolder | None:
    """One of the queues that `queue_folders` returns; None if there is no such queue."""
    found = folders_of_topic(consume_queue, topic, queue_id)
    return found[-1] if found else None  # there can be folders 1 and 01; in a dict of all, the last one remains


def _folders_of_topic(
    topic_folder: Location, queue_id: int | None, with_empty: bool, skips_unreadable: bool
) -> Iterator[QueueFolder]:
    for name in _listed(topic_folder, topic_folder.folders, skips_unreadable):
        if not _is_queue_id(name) or queue_id not in (None, int(name)):
            continue
        folder = topic_folder / name
        files = tuple(
            QueueFileInfo(info.base_name, info.size, info.mtime_ns or 0)
            for info in _listed(folder, folder.entries, skips_unreadable)
            if MAPPED_FILE_NAME.fullmatch(info.base_name) and (info.size or (with_empty and info.size == 0))
        )
        if files or with_empty:
            yield QueueFolder(topic_folder.name, int(name), folder, files)


def _listed(folder: Location, entries: Callable[[], list[_Entry]], skips_unreadable: bool) -> list[_Entry]:
    try:
        return entries()
    except OSError as error:
        if not skips_unreadable or isinstance(error, SparkMqError):
            raise
        warnings.warn(
            f"{folder} cannot be read ({os.strerror(error.errno or 0)}): the log is read for its messages, and no "
            "answer knows its units",
            stacklevel=2,
        )
        return []


def _is_queue_id(name: str) -> bool:
    return _QUEUE_ID.fullmatch(name) is not None and -(1 << 31) <= int(name) < 1 << 31


def existing_file_size(folders: list[QueueFolder], is_batch: bool = False) -> int | None:
    """The most frequent size of the existing files of (batch) consume queues, in bytes; None if there are no files."""
    chosen = (folder for folder in folders if folder.is_batch == is_batch)
    sizes = Counter(
        info.size for folder in chosen for info in folder.files if info.size and info.size % folder.unit_size == 0
    )
    return sizes.most_common(1)[0][0] if sizes else None


def listed(trees: Iterable[Location]) -> Iterator[tuple[Location, list[QueueFolder]]]:
    """Each tree with its queues; a tree is read when it is asked for."""
    for tree in trees:
        yield tree, list(queue_folders(tree))


def find_batch_file_size(conf: BrokerConf, store: Location) -> Sourced[int]:
    """Bytes of a file of batch consume queues, from the broker's settings, or else from the existing files."""
    if conf.batch_consume_queue_file_size is not None:
        return Sourced(conf.batch_consume_queue_file_size, conf.source)
    size = existing_file_size(list(queue_folders(store / BATCH_CONSUME_QUEUE)), is_batch=True)
    if size is not None:
        return Sourced(size, f"the files in {store / BATCH_CONSUME_QUEUE}")
    return Sourced(BATCH_FILE_SIZE, conf.source_of_defaults)


def find_queue_file_size(conf: BrokerConf, trees: Iterable[tuple[Location, list[QueueFolder]]]) -> Sourced[int]:
    """Bytes of a queue file, from the broker's settings, or else from the first tree that has queue files."""
    if conf.consume_queue_file_size is not None:
        return Sourced(conf.consume_queue_file_size, conf.source)
    for tree, folders in trees:
        size = existing_file_size(folders)
        if size is not None:
            return Sourced(size, f"the files in {tree}")
    return Sourced(DEFAULT_FILE_SIZE, conf.source_of_defaults)
