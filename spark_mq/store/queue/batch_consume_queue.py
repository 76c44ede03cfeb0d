"""One batch consume queue of a store: its units, and look-ups by queue offset and time (`BatchConsumeQueue`@5.3.3)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from spark_mq.format.batch_consume_queue import BATCH_UNIT, BATCH_UNIT_SIZE
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.queue.folders import QueueFolder
from spark_mq.store.queue.offset_by_time import BoundaryType


class BatchUnit(NamedTuple):
    """One unit; `queue_offset` is that of its record's first message. The time is in milliseconds."""

    commit_log_offset: int
    store_size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    message_count: int
    compacted_offset: int
    reserved: int

    @property
    def next_offset(self) -> int:
        """The queue offset after the record's last message."""
        return self.queue_offset + self.message_count

    @property
    def is_written(self) -> bool:
        """Whether a boot keeps the unit (`BatchConsumeQueue.recover`@5.3.3)."""
        return self.commit_log_offset >= 0 and self.store_size > 0 and self.queue_offset >= 0 and self.message_count > 0


class BatchConsumeQueue:
    """The units of one queue, read when they are needed; `log_start` and `log_end` are the ends of the live log."""

    def __init__(self, folder: QueueFolder, files: FileReaders, log_start: int, log_end: int) -> None:
        self._folder, self._readers, self._log_start = folder, files, log_start
        counts = [info.size // BATCH_UNIT_SIZE for info in folder.files]
        self._starts = [0, *accumulate(counts)]
        """The number of the first unit of each file, and that of all units."""
        # Units are written from the start on, and those of records after the log's end are cut off.
        written = bisect_left(range(self._starts[-1]), x=True, key=lambda number: not self.unit(number).is_written)
        self.count = bisect_left(range(written), log_end, key=lambda number: self.unit(number).commit_log_offset)
        """The number of live units."""

    def unit(self, number: int) -> BatchUnit:
        """The unit with a number, from 0."""
        file = bisect_right(self._starts, number) - 1
        location = self._folder.location / self._folder.files[file].base_name
        position = (number - self._starts[file]) * BATCH_UNIT_SIZE
        return BatchUnit(*BATCH_UNIT.unpack(self._readers.read(location, position, BATCH_UNIT_SIZE)))

    @property
    def min_offset(self) -> int:
        """The first queue offset that a broker offers (`correctMinOffset`); 0 without a unit."""
        live = range(self.count)
        expired = bisect_left(live, self._log_start, key=lambda number: self.unit(number).commit_log_offset)
        if expired:
            return self.unit(expired - 1).next_offset
        return self.unit(0).queue_offset if self.count else 0

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message will get."""
        return self.unit(self.count - 1).next_offset if self.count else 0

    def units_from(self, queue_offset: int) -> Iterator[BatchUnit]:
        """The live units from the one on that has the message at the queue offset (`getBatchMsgIndexBuffer`)."""
        first = bisect_right(range(self.count), queue_offset, key=lambda number: self.unit(number).queue_offset) - 1
        return map(self.unit, range(max(first, 0), self.count))

    def offset_by_time(self, timestamp: int, boundary_type: BoundaryType) -> int:
        """The queue offset of a time, that of the first message of a unit (`getOffsetInQueueByTime`).

        A time at or after that of the last unit of its file gives that unit, also for LOWER.
        """
        if not self.count:
            return 0
        starts = [start for start in self._starts[:-1] if start < self.count]
        file = max(bisect_right(starts, timestamp, key=lambda start: self.unit(start).store_timestamp) - 1, 0)
        left, right = starts[file], ([*starts, self.count])[file + 1] - 1
        found = right if timestamp >= self._time(right) else self._search(left, right, timestamp, boundary_type)
        offset = -1 if found is None else self.unit(found).queue_offset
        return min(max(offset, self.min_offset), self.max_offset)

    def _search(self, left: int, right: int, timestamp: int, boundary_type: BoundaryType) -> int | None:
        """`BatchConsumeQueue.binarySearchRight`@5.3.3; None if it finds no unit."""
        while left <= right:
            middle = (left + right) // 2
            time = self._time(middle)
            if middle == right:
                return middle if time >= timestamp else None
            if middle == left:
                if time >= timestamp:
                    return middle
                left = middle + 1
            elif boundary_type == BoundaryType.LOWER:
                left, right = (middle + 1, right) if time < timestamp else (left, middle)
            else:
                left, right = (middle, right) if time <= timestamp else (left, middle - 1)
        return None

    def _time(self, number: int) -> int:
        return self.unit(number).store_timestamp
