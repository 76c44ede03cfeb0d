"""The queue files that a store has: `consumequeue/TOPIC/QUEUE ID/<20 digits>`."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from spark_mq.errors import SparkMqError
from spark_mq.format.consume_queue import BATCH_FILE_SIZE, BATCH_UNIT_SIZE, DEFAULT_FILE_SIZE, UNIT_SIZE
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf, Sourced
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, MAPPED_FILE_NAME

_Entry = TypeVar("_Entry")
_QUEUE_ID = re.compile(r"-?[0-9]{1,10}")


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
