"""The queue files that a store already has: `consumequeue/TOPIC/QUEUE/<20 digits>`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pyarrow import fs

from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import MAPPED_FILE_NAME

_QUEUE_ID = re.compile(r"-?[0-9]{1,10}")


@dataclass(frozen=True)
class QueueFileInfo:
    """Name, bytes, and time of the last change (nanoseconds since the epoch) of one file."""

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


def queue_folders(consume_queue: Location) -> Iterator[QueueFolder]:
    """The queues below a `consumequeue` folder that have files; none where there is no such folder.

    As the broker does (`ConsumeQueueStore.load`@5.3.3), a queue folder whose name is no number is passed over.
    """
    for topic in consume_queue.entries():
        if topic.type != fs.FileType.Directory:
            continue
        topic_folder = consume_queue / topic.base_name
        for queue in topic_folder.entries():
            if queue.type != fs.FileType.Directory or not _is_queue_id(queue.base_name):
                continue
            folder = topic_folder / queue.base_name
            files = tuple(
                QueueFileInfo(info.base_name, info.size, info.mtime_ns or 0)
                for info in folder.entries()
                if MAPPED_FILE_NAME.fullmatch(info.base_name) and info.size
            )
            if files:
                yield QueueFolder(topic.base_name, int(queue.base_name), folder, files)


def _is_queue_id(name: str) -> bool:
    return _QUEUE_ID.fullmatch(name) is not None and -(1 << 31) <= int(name) < 1 << 31


def existing_file_size(folders: list[QueueFolder]) -> int | None:
    """The size of the existing queue files in bytes: the commonest; None where there are none.

    A broker makes them all of one size (`mappedFileSizeConsumeQueue`).
    """
    sizes = Counter(info.size for folder in folders for info in folder.files if info.size % UNIT_SIZE == 0)
    return sizes.most_common(1)[0][0] if sizes else None
