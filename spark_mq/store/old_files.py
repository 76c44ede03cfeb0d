"""The files of a store that a broker can delete when their messages are old: all except the newest of each kind.

Few bytes are read: the last unit of each queue file except the newest, and the headers of index files. A queue with one
file, as most queues have, is not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spark_mq.errors import StoreChangedError, UnsupportedStoreError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT, UNIT_DTYPE, UNIT_SIZE, is_live
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import has_rocksdb_queues
from spark_mq.store.config.store_paths import COMMIT_LOG, CONSUME_QUEUE, INDEX
from spark_mq.store.expiry import release_offsets
from spark_mq.store.index.folder import index_files
from spark_mq.store.log.record_lookup import SegmentFile
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFileInfo

_READ = 4 << 20


@dataclass(frozen=True)
class LiveSegment:
    """A segment with a live record.

    Attributes:
        modification_timestamp: The time of the last change of the file, milliseconds since the epoch.
    """

    file: SegmentFile
    size: int
    modification_timestamp: int

    @property
    def end_offset(self) -> int:
        """The commit log offset after the segment."""
        return self.file.base + self.file.size


@dataclass(frozen=True)
class OldFile:
    """A queue file or an index file that is not the newest of its queue or of the index.

    Attributes:
        tree: `consumequeue` or `index`.
        size: Its bytes.
        release_offset: The largest commit log offset that its last unit or entry, and those of the files before it,
            point to. A broker deletes the file when the log begins after this offset.
    """

    tree: str
    path: str
    location: Location
    size: int
    release_offset: int


@dataclass(frozen=True)
class OldFiles:
    """The files that can be deleted, and why others are kept, as text for a person."""

    files: tuple[OldFile, ...]
    problems: tuple[str, ...]


def live_segments(store: MessageStore) -> list[LiveSegment]:
    """The segments with a live record, by offset. The last one is the newest segment, which is never deleted.

    A broker creates segments in advance, but its newest one is the one with the last record: it opens the next file
    when it appends to it.
    """
    infos = {info.base_name: info for info in (store.location / COMMIT_LOG).entries()}
    return [
        LiveSegment(file, info.size, (info.mtime_ns or 0) // NANOS_PER_MILLI)
        for file in store.records.segments
        if file.base < store.get_max_phy_offset()
        and (info := infos.get(file.location.name)) is not None  # else it was deleted in the meantime
    ]


def old_files(store: MessageStore) -> OldFiles:
    """The queue files, by queue, and after them the index files, each from the oldest on.

    A file is left out, with all files after it, if its last unit or its header is damaged: it cannot be known which
    messages it has.
    """
    if has_rocksdb_queues(store.location):
        raise UnsupportedStoreError(
            f"{store.location / CONSUME_QUEUE} is a RocksDB database (storeType=defaultRocksDB): only its broker "
            "removes old units from it"
        )
    problems: list[str] = []
    files = [file for queue in store.queues.values() for file in _of_queue(store, queue, problems)]
    return OldFiles((*files, *_of_index(store, problems)), tuple(problems))


def _of_queue(store: MessageStore, queue: ConsumeQueue, problems: list[str]) -> list[OldFile]:
    try:
        return _old_files_of(queue, store.get_max_phy_offset(), problems)
    except StoreChangedError:  # a broker is deleting files of this queue
        return []


def _old_files_of(queue: ConsumeQueue, log_end: int, problems: list[str]) -> list[OldFile]:
    files = _without_stale(queue, log_end) if len(queue.folder.files) > 1 else ()
    name = f"{CONSUME_QUEUE}/{queue.topic}/{queue.queue_id}"
    found: list[tuple[QueueFileInfo, int]] = []
    for info, following in pairwise(files):
        if info.size % UNIT_SIZE or int(info.base_name) + info.size != int(following.base_name):
            problems.append(
                f"{name}/{info.base_name} does not end at {following.base_name}, where the next file begins"
            )
            break
        last = _last_offset(queue.folder.location / info.base_name, info.size)
        if last is None:
            problems.append(
                f"{name}/{info.base_name} does not end with a unit of a message, although a file follows it"
            )
            break
        found.append((info, last))
    offsets = release_offsets([last for _, last in found])
    return [
        OldFile(
            CONSUME_QUEUE, f"{name}/{info.base_name}", queue.folder.location / info.base_name, info.size, release_offset
        )
        for (info, _), release_offset in zip(found, offsets, strict=True)
    ]


def _without_stale(queue: ConsumeQueue, log_end: int) -> Sequence[QueueFileInfo]:
    """The files without those at the end whose first unit is stale: the next boot deletes these.

    (`ConsumeQueue.truncateDirtyLogicFiles`@5.3.3.)
    """
    files = queue.folder.files
    while len(files) > 1:
        offset, size, _ = _unit(queue.folder.location / files[-1].base_name, 0)
        if size <= 0 or size == PRE_BLANK_SIZE or offset < log_end:
            break
        files = files[:-1]
    return files


def _last_offset(file: Location, size: int) -> int | None:
    """The commit log offset of a file's last unit; None if that is not a unit of a message.

    `spark-mq rebuild --mode permissive` leaves pre-blank units for messages that are lost, so the last unit can be one.
    """
    offset, store_size, _ = _unit(file, size - UNIT_SIZE)
    if store_size == PRE_BLANK_SIZE and offset == 0:
        return max_offset(file)
    return offset if offset >= 0 and store_size > 0 else None


def _unit(file: Location, position: int) -> tuple[int, int, int]:
    with FileReader(file) as reader:
        data = reader.read(position, UNIT_SIZE)
    offset, size, tags_code = UNIT.unpack(data.ljust(UNIT_SIZE, b"\0"))
    return offset, size, tags_code


def max_offset(file: Location) -> int:
    """The largest commit log offset that a unit of a queue file points to; -1 if it has no unit of a message.

    The file is read whole.
    """
    largest, position = -1, 0
    with FileReader(file) as reader:
        while data := reader.read(position, _READ // UNIT_SIZE * UNIT_SIZE):
            units = np.frombuffer(data[: len(data) // UNIT_SIZE * UNIT_SIZE], UNIT_DTYPE)
            offsets = units["commit_log_offset"][is_live(units)]
            largest = max(largest, int(offsets.max()) if offsets.size else -1)
            position += len(data)
    return largest


def _of_index(store: MessageStore, problems: list[str]) -> Iterator[OldFile]:
    infos = index_files(store.location)
    release_offset = -1
    for info in infos[:-1]:
        header = info.stored_header()
        is_in_order = 0 <= header.begin_commit_log_offset <= header.end_commit_log_offset
        if not is_in_order or header.end_commit_log_offset < release_offset or header.next_entry == 1:
            problems.append(f"{INDEX}/{info.name} has a damaged header, although a file follows it")
            return
        release_offset = header.end_commit_log_offset
        yield OldFile(INDEX, f"{INDEX}/{info.name}", info.location, info.size, release_offset)
