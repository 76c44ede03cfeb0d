"""The files of one consume queue after a broker's start: where the queue ends, and which files are deleted.

`ConsumeQueue.recover` and `truncateDirtyLogicFiles`@5.3.3 are the same in 4.9. The first one looks for the end of the
queue from its third-last file on. The second one cuts off the units of messages after the end of the log. It counts the
first unit of a file, whatever it contains; so the end of a queue whose last file is empty moves by one. Those of
`BatchConsumeQueue`, 5.0.0 to 5.5.1, do the same with units of 46 bytes, but know the commit log offset of the last
record where those of `ConsumeQueue` know the one after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from spark_mq.format.array_types import Flags, leading
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, BATCH_UNIT_SIZE, UNIT_DTYPE, UNIT_SIZE, Units, is_written
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.queue.folders import QueueFileInfo, QueueFolder

_FILES_BACK = 3
_FIRST_BLOCK = 16 << 10
_BLOCK = 1 << 20
NO_FILE = -1


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


def _is_valid(folder: QueueFolder, units: Units) -> Flags:
    """Which units a boot keeps."""
    if folder.is_batch:
        return is_written(units)
    valid: Flags = (units["commit_log_offset"] >= 0) & (units["store_size"] > 0)
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
