"""The queue offset of a time, by the rule since 5.1.1 and by the one before (`ConsumeQueue.getOffsetInQueueByTime`).

Both rules choose one file of the queue, and run a binary search in it for the store time of the units' messages. They
choose the file in different ways (before 5.1.1: by the time of its last change), and give different answers for a time
between two messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from spark_mq.errors import CorruptQueueError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.dispatch import offset_in_queue
from spark_mq.format.record import Record
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.store.log.scan import FIRST, FOREVER
from spark_mq.store.queue.consume_queue import ConsumeQueue, QueueFile
from spark_mq.store.queue.lookup import QueueCover


class BoundaryType(StrEnum):
    """The neighbour that is the answer for a time between two messages (`common.BoundaryType`@5.3.3)."""

    LOWER = "LOWER"
    """The first message stored at the time or later."""
    UPPER = "UPPER"
    """The last message stored at the time or earlier."""


@dataclass
class _Neighbours:
    """The end of a search: a message of exactly the time, or two neighbours. A time of -1 is unknown."""

    exact: int | None = None
    left: int | None = None
    right: int | None = None
    left_time: int = -1
    right_time: int = -1


class QueueTimes:
    """Store times of the messages to which one queue's units lead, by queue offset.

    `cover` shows what the units prove. `ends` are the queue's minimum and maximum offset. The searches raise
    `CorruptQueueError` if they depend on a unit that does not lead to its message, unless the message has expired.
    """

    def __init__(self, queue: ConsumeQueue, cover: QueueCover, ends: tuple[int, int]) -> None:
        self._queue = queue
        self._cover = cover
        self._min_offset, self._max_offset = ends
        self._files = [file for file in queue.files if file.first < self._max_offset]

    def search(self, timestamp: int, boundary_type: BoundaryType) -> int:
        """Since 5.1.1: clamped to the queue's offsets (`ConsumeQueueStore.getOffsetInQueueByTime`@5.3.3)."""
        found = self._search_file(self._file_of(timestamp, boundary_type), timestamp, boundary_type)
        return min(max(found, self._min_offset), self._max_offset)

    def search_nearest(self, timestamp: int) -> int:
        """Before 5.1.1: the nearer neighbour, or the earlier of two equally near; it can be outside of the queue.

        `ConsumeQueue.getOffsetInQueueByTime`@5.1.0, the same as @4.9.7.
        """
        if not self._files:
            return 0
        files = self._files
        file = next((f for f in files if f.modification_time // NANOS_PER_MILLI >= timestamp), files[-1])
        found = self._halve(timestamp, file, max(self._min_offset, file.first), self._stop(file) - 1)
        if found is None:
            return 0
        if found.exact is not None:
            return found.exact
        to_left, to_right = timestamp - found.left_time, found.right_time - timestamp
        takes_right = found.left_time == -1 or (found.right_time != -1 and to_left > to_right)
        return _offset_or_before(file, found.right if takes_right else found.left)

    def _file_of(self, timestamp: int, boundary_type: BoundaryType) -> QueueFile | None:
        """`MappedFileQueue.getConsumeQueueMappedFileByTime`@5.3.3."""
        files = self._files
        if not files:
            return None
        if boundary_type == BoundaryType.LOWER:
            return next((file for file in files[:-1] if self._time(self._stop(file) - 1) >= timestamp), files[-1])
        return next((file for file in reversed(files) if self._time(file.first) <= timestamp), None)

    def _search_file(self, file: QueueFile | None, timestamp: int, boundary_type: BoundaryType) -> int:
        """`ConsumeQueue.binarySearchInQueueByTime`@5.3.3."""
        if file is None:
            return 0
        is_lower = boundary_type == BoundaryType.LOWER
        floor, ceiling = max(self._min_offset, file.first), self._stop(file) - 1
        if self._time(ceiling) < timestamp:
            return ceiling + 1 if is_lower else ceiling
        if self._time(floor) > timestamp:
            return file.first if is_lower else 0
        found = self._halve(timestamp, file, floor, ceiling)
        if found is None:
            return 0
        if found.exact is not None:
            offset, step = found.exact, -1 if is_lower else 1
            while floor <= offset + step <= ceiling and self._time(offset + step) == timestamp:
                offset += step
            return offset
        return _offset_or_before(file, found.right if is_lower else found.left)

    def _halve(self, timestamp: int, file: QueueFile, low: int, high: int) -> _Neighbours | None:
        """A binary search from `low` to `high`; None if a message's store time is unknown."""
        found = _Neighbours()
        while high >= low:
            middle = file.first + (low - file.first + high - file.first) // 2
            commit_log_offset, _, _ = self._queue.unit(middle)
            if commit_log_offset < self._cover.log.start:
                low, found.left = middle + 1, middle
                continue
            time = self._time(middle)
            if time < 0:
                return None
            if time == timestamp:
                found.exact = middle
                break
            if time > timestamp:
                high, found.right, found.right_time = middle - 1, middle, time
            else:
                low, found.left, found.left_time = middle + 1, middle, time
        return found

    def _stop(self, file: QueueFile) -> int:
        return min(file.first + file.count, self._max_offset)

    def _time(self, queue_offset: int) -> int:
        """The store time of the message at the queue offset; -1 if it expired, or the unit is pre-blank.

        As `CommitLog.pickupStoreTimestamp`@5.3.3. Raises `CorruptQueueError` for any other unit without a message.
        """
        commit_log_offset, store_size, _ = self._queue.unit(queue_offset)
        proven = self._cover.proven(queue_offset)
        if proven is not None:
            return proven.record.store_timestamp
        if store_size == PRE_BLANK_SIZE or (store_size > 0 and 0 <= commit_log_offset < self._cover.log.start):
            return -1
        raise CorruptQueueError(
            f"{self._queue.folder.location}: unit {queue_offset} does not lead to its message "
            f"({self._cover.why_not(queue_offset)}): read the log for it (read_log=True), or build the queues "
            "again with `spark-mq rebuild`"
        )


def offset_in_log(cover: QueueCover, timestamp: int, boundary_type: BoundaryType) -> int | None:
    """The queue offset of a time by the rule since 5.1.1, among all the queue's messages in the log; None if none fits.

    LOWER: the first message stored at `timestamp` (milliseconds) or later. UPPER: the last message stored at that time
    or earlier (`ConsumeQueueStore.getOffsetInQueueByTime`@5.3.3).
    """
    if boundary_type == BoundaryType.LOWER:
        _, found = _neighbours(cover, lambda record: record.store_timestamp >= timestamp)
    else:
        found, _ = _neighbours(cover, lambda record: record.store_timestamp > timestamp)
    return None if found is None else _queue_offset(cover, found)


def nearest_in_log(cover: QueueCover, timestamp: int) -> int | None:
    """The queue offset of the message stored nearest to `timestamp` (milliseconds), by the rule before 5.1.1.

    Of two equally near messages, the earlier one is chosen. None if the queue has no message in the log.
    """
    early, later = _neighbours(cover, lambda record: record.store_timestamp >= timestamp)
    if early is None or later is None:
        only = later if early is None else early
        return None if only is None else _queue_offset(cover, only)
    is_right = timestamp - early.store_timestamp > later.store_timestamp - timestamp
    return _queue_offset(cover, later if is_right else early)


def _neighbours(cover: QueueCover, is_later: Callable[[Record], bool]) -> tuple[Record | None, Record | None]:
    """The queue's last message in the log that is not later, and the first one that is; None for a missing one."""
    before, after = cover.around(is_later)
    early, later = (None if proven is None else proven.record for proven in (before, after))
    start = FIRST if before is None else before.queue_offset + 1
    stop = FOREVER if after is None else after.queue_offset
    if start < stop:
        for record in cover.messages_of(cover.uncovered(start, stop)):
            if is_later(record):
                return early, record
            early = record
    return early, later


def _queue_offset(cover: QueueCover, record: Record) -> int:
    return offset_in_queue(record, cover.topic, cover.queue_id) or 0


def _offset_or_before(file: QueueFile, offset: int | None) -> int:
    """The offset, or the one before the file, at least 0: for a missing neighbour Java computes with byte -1."""
    return max(file.first - 1, 0) if offset is None else offset
