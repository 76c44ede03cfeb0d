"""The queue files that a store has: `consumequeue/TOPIC/QUEUE ID/<20 digits>`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spark_mq.format.consume_queue import DEFAULT_FILE_SIZE, UNIT_SIZE
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf, Sourced
from spark_mq.store.config.store_paths import MAPPED_FILE_NAME

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


def queue_folders(consume_queue: Location, with_empty: bool = False) -> Iterator[QueueFolder]:
    """The queues in a `consumequeue` folder that have files; none if there is no such folder.

    As in the broker (`ConsumeQueueStore.load`@5.3.3), a queue folder whose name is not a number is skipped. A file
    without a byte, and a queue without files, are left out, unless `with_empty` is True.
    """
    for topic in consume_queue.folders():
        yield from _folders_of_topic(consume_queue / topic, None, with_empty)


def queue_folder(consume_queue: Location, topic: str, queue_id: int) -> QueueFolder | None:
    """One of the queues that `queue_folders` returns; None if there is no such queue. No other folder is listed."""
    if topic in ("", ".", "..") or "/" in topic:
        return None
    found = list(_folders_of_topic(consume_queue / topic, queue_id, with_empty=False))
    return found[-1] if found else None  # there can be folders 1 and 01; in a dict of all, the last one remains


def _folders_of_topic(topic_folder: Location, queue_id: int | None, with_empty: bool) -> Iterator[QueueFolder]:
    for name in topic_folder.folders():
        if not _is_queue_id(name) or queue_id not in (None, int(name)):
            continue
        folder = topic_folder / name
        files = tuple(
            QueueFileInfo(info.base_name, info.size, info.mtime_ns or 0)
            for info in folder.entries()
            if MAPPED_FILE_NAME.fullmatch(info.base_name) and (info.size or (with_empty and info.size == 0))
        )
        if files or with_empty:
            yield QueueFolder(topic_folder.name, int(name), folder, files)


def _is_queue_id(name: str) -> bool:
    return _QUEUE_ID.fullmatch(name) is not None and -(1 << 31) <= int(name) < 1 << 31


def existing_file_size(folders: list[QueueFolder]) -> int | None:
    """The most frequent size of the existing queue files, in bytes; None if there are no files.

    A broker creates all queue files with one size (`mappedFileSizeConsumeQueue`).
    """
    sizes = Counter(info.size for folder in folders for info in folder.files if info.size % UNIT_SIZE == 0)
    return sizes.most_common(1)[0][0] if sizes else None


def listed(trees: Iterable[Location]) -> Iterator[tuple[Location, list[QueueFolder]]]:
    """Each tree with its queues; a tree is read when it is asked for."""
    for tree in trees:
        yield tree, list(queue_folders(tree))


def find_queue_file_size(conf: BrokerConf, trees: Iterable[tuple[Location, list[QueueFolder]]]) -> Sourced[int]:
    """Bytes of a queue file, from the broker's settings, or else from the first tree that has queue files."""
    if conf.consume_queue_file_size is not None:
        return Sourced(conf.consume_queue_file_size, conf.source)
    for tree, folders in trees:
        size = existing_file_size(folders)
        if size is not None:
            return Sourced(size, f"the files in {tree}")
    return Sourced(DEFAULT_FILE_SIZE, conf.source_of_defaults)
