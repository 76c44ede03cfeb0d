"""What a broker's start does to the files of one queue, before anything is dispatched.

`ConsumeQueue.recover` and `truncateDirtyLogicFiles`@5.3.3 are the same in 4.9. The first one looks for the end of the
queue from its third-last file on. The second one cuts off the units of messages after the end of the log. It counts the
first unit of a file, whatever it contains; so the end of a queue whose last file is empty moves by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Units
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
    """

    folder: QueueFolder
    end: int
    max_physic_offset: int
    files: tuple[QueueFileInfo, ...]
    deleted: tuple[QueueFileInfo, ...] = ()


def recover_queue(folder: QueueFolder, file_size: int, readers: FileReaders) -> RecoveredQueue:
    """The queue after `ConsumeQueue.recover`; each of its files has `file_size` bytes."""
    files = folder.files
    if not files:
        return RecoveredQueue(folder, NO_FILE, -1, ())
    max_physic_offset = -1
    end = 0
    for info in files[max(len(files) - _FILES_BACK, 0) :]:
        count = 0
        for units in _blocks(folder, info, file_size, readers):
            valid = _leading((units["commit_log_offset"] >= 0) & (units["store_size"] > 0))
            if valid:
                max_physic_offset = _after(units, valid - 1)
            count += valid
            if valid < units.size:
                break
        end = int(info.base_name) + count * UNIT_SIZE
        if count * UNIT_SIZE < file_size:
            break
    deleted = tuple(info for info in files if int(info.base_name) > end)
    return RecoveredQueue(folder, end, max_physic_offset, tuple(info for info in files if info not in deleted), deleted)


def truncate_queue(queue: RecoveredQueue, log_end: int, file_size: int, readers: FileReaders) -> RecoveredQueue:
    """The queue after `truncateDirtyLogicFiles`: without its units of messages from commit log offset `log_end` on."""
    for kept in range(len(queue.files), 0, -1):
        info = queue.files[kept - 1]
        count, max_physic_offset = 0, log_end
        for units in _blocks(queue.folder, info, file_size, readers):
            offsets = units["commit_log_offset"]
            is_kept = (offsets >= 0) & (units["store_size"] > 0) & (offsets < log_end)
            if count == 0:
                is_kept[0] = offsets[0] < log_end
            valid = _leading(is_kept)
            if valid:
                max_physic_offset = _after(units, valid - 1)
            count += valid
            if valid < units.size:
                break
        if count:
            end = int(info.base_name) + count * UNIT_SIZE
            return RecoveredQueue(queue.folder, end, max_physic_offset, queue.files[:kept], queue.files[kept:])
    return RecoveredQueue(queue.folder, NO_FILE, log_end, (), queue.files)


def _blocks(folder: QueueFolder, info: QueueFileInfo, file_size: int, readers: FileReaders) -> Iterator[Units]:
    """The units of a file from its start, in blocks."""
    position, length = 0, _FIRST_BLOCK // UNIT_SIZE * UNIT_SIZE
    while position < file_size:
        data = readers.read(folder.location / info.base_name, position, min(length, file_size - position))
        units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
        if not units.size:
            return
        yield units
        position += units.size * UNIT_SIZE
        length = min(4 * length, _BLOCK // UNIT_SIZE * UNIT_SIZE)


def _leading(values: npt.NDArray[np.bool_]) -> int:
    """The number of true values before the first false one."""
    return int(values.size if values.all() else np.argmin(values))


def _after(units: Units, index: int) -> int:
    """The commit log offset after the message of a unit, as Java adds it."""
    after = int(units["commit_log_offset"][index]) + int(units["store_size"][index])
    return after if after < 1 << 63 else after - (1 << 64)
