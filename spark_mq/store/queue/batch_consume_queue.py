"""One batch consume queue of a store: its units, and look-ups by queue offset and time (`BatchConsumeQueue`@5.3.3)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from spark_mq.format.consume_queue import BATCH_UNIT, BATCH_UNIT_DTYPE, BATCH_UNIT_SIZE, UNIT_DTYPE, BatchUnits, Units
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue, QueueFile
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


class BatchConsumeQueue(ConsumeQueue):
    """The units of one queue; `log_start` and `log_end` are the ends of the live log.

    By queue offset, a unit is that of the record that has the message: several queue offsets can have the same one.
    """

    def __init__(self, folder: QueueFolder, files: FileReaders, log_start: int, log_end: int) -> None:
        self.folder, self.readers, self._log_start = folder, files, log_start
        self.topic, self.queue_id = folder.topic, folder.queue_id
        counts = [info.size // BATCH_UNIT_SIZE for info in folder.files]
        self._starts = [0, *accumulate(counts)]
        """The number of the first unit of each file, and that of all units."""
        # Units are written from the start on, and those of records after the log's end are cut off.
        written = bisect_left(
            range(self._starts[-1]), x=True, key=lambda number: not self.record_unit(number).is_written
        )
        self.written_count = written
        self.count = bisect_left(range(written), log_end, key=lambda number: self.record_unit(number).commit_log_offset)
        """The number of live units."""
        bounds = [(start, min(stop, written)) for start, stop in pairwise(self._starts)]
        self.files = [
            QueueFile(folder.location / info.base_name, first, self._stop_of(stop) - first, info.mtime_ns)
            for info, (start, stop) in zip(folder.files, bounds, strict=True)
            for first in ([self.record_unit(start).queue_offset] if start < stop else [self._stop_of(written)])
        ]

    @property
    def end_position(self) -> int:
        """The byte of the queue after its last live unit."""
        first = int(self.folder.files[0].base_name) if self.folder.files else 0
        return first + self.count * BATCH_UNIT_SIZE

    def _stop_of(self, number: int) -> int:
        """The queue offset after the units before a number."""
        return self.record_unit(number - 1).next_offset if number else 0

    def record_unit(self, number: int) -> BatchUnit:
        """The unit with a number, from 0."""
        file = bisect_right(self._starts, number) - 1
        location = self.folder.location / self.folder.files[file].base_name
        position = (number - self._starts[file]) * BATCH_UNIT_SIZE
        return BatchUnit(*BATCH_UNIT.unpack(self.readers.read(location, position, BATCH_UNIT_SIZE)))

    @property
    def written_end(self) -> int:
        """The queue offset after the last unit that was ever written, even if that unit is stale."""
        return self._stop_of(self.written_count)

    def _number_at(self, queue_offset: int) -> int:
        """The number of the last unit that does not begin after a queue offset; -1 if each one does."""
        units = range(self.written_count)
        return bisect_right(units, queue_offset, key=lambda number: self.record_unit(number).queue_offset) - 1

    def units(self, start: int, stop: int) -> Units:
        """The units from queue offset `start` to `stop` (not included); a queue offset that no unit has is zeros."""
        first = max(self._number_at(start), 0)
        last = min(self.written_count, first + stop - start + 1)  # each has at least one queue offset
        found = np.concatenate([np.empty(0, BATCH_UNIT_DTYPE), *self._read_units(first, last)])
        wanted, units = np.arange(start, stop), np.zeros(stop - start, UNIT_DTYPE)
        if found.size:
            at = np.searchsorted(found["queue_offset"].astype(np.int64), wanted, "right") - 1
            own, after = found[at], wanted - found["queue_offset"][at]
            is_own = (at >= 0) & (after >= 0) & (after < own["message_count"])
            for name in UNIT_DTYPE.names or ():
                units[name] = np.where(is_own, own[name], 0)
        return units

    def _read_units(self, first: int, stop: int) -> Iterator[BatchUnits]:
        for info, (start, end) in zip(self.folder.files, pairwise(self._starts), strict=True):
            low, high = max(first, start), min(stop, end)
            if low < high:
                place = self.folder.location / info.base_name, (low - start) * BATCH_UNIT_SIZE
                yield np.frombuffer(self.readers.read(*place, (high - low) * BATCH_UNIT_SIZE), BATCH_UNIT_DTYPE)

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        """Commit log offset, size and tags code of the unit of a message; zeros if there is none."""
        found = self._unit_with(queue_offset)
        return (0, 0, 0) if found is None else found[:3]

    def _unit_with(self, queue_offset: int) -> BatchUnit | None:
        number = self._number_at(queue_offset)
        found = self.record_unit(number) if number >= 0 else None
        return found if found is not None and queue_offset < found.next_offset else None

    def record_offset(self, queue_offset: int) -> int:
        """The queue offset of the first message of the record that has a message."""
        found = self._unit_with(queue_offset)
        return queue_offset if found is None else found.queue_offset

    def min_offset(self, max_offset: int, log_start: int, *, by_halving: bool) -> int:
        """The first queue offset that a broker offers (`correctMinOffset`); 0 without a unit."""
        expired = bisect_left(
            range(self.count), log_start, key=lambda number: self.record_unit(number).commit_log_offset
        )
        if expired:
            return self._stop_of(expired)
        return self.record_unit(0).queue_offset if self.count else 0

    def max_offset(self, records: RecordLookup, log_end: int) -> int:
        """The queue offset that the next message will get."""
        return self._stop_of(self.count)

    @property
    def _bounds(self) -> tuple[int, int]:
        stop = self._stop_of(self.count)
        return self.min_offset(stop, self._log_start, by_halving=False), stop

    def units_from(self, queue_offset: int) -> Iterator[BatchUnit]:
        """The live units from the one on that has the message at the queue offset (`getBatchMsgIndexBuffer`)."""
        return map(self.record_unit, range(max(self._number_at(queue_offset), 0), self.count))

    def offset_by_time(self, timestamp: int, boundary_type: BoundaryType) -> int:
        """The queue offset of a time, that of the first message of a unit (`getOffsetInQueueByTime`).

        A time at or after that of the last unit of its file gives that unit, also for LOWER.
        """
        if not self.count:
            return 0
        starts = [start for start in self._starts[:-1] if start < self.count]
        file = max(bisect_right(starts, timestamp, key=lambda start: self.record_unit(start).store_timestamp) - 1, 0)
        left, right = starts[file], ([*starts, self.count])[file + 1] - 1
        found = right if timestamp >= self._time(right) else self._search(left, right, timestamp, boundary_type)
        offset = -1 if found is None else self.record_unit(found).queue_offset
        low, high = self._bounds
        return min(max(offset, low), high)

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
        return self.record_unit(number).store_timestamp
