"""One queue of a store: its units by queue offset, and which of them are live (`ConsumeQueue`@5.3.3 and @4.9.7).

A queue's files contain more than its live units: units of messages that expired, and pre-blank units before the queue's
first unit. Zeros follow the last live unit, or units of records that a recovery truncated: it does not clear the units.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT, UNIT_DTYPE, UNIT_SIZE, Units
from spark_mq.format.consume_queue_ext import (
    HEADER_SIZE,
    MAX_ADDRESS,
    MAX_UNIT_SIZE,
    ExtUnit,
    ExtUnits,
    is_address,
    offset_of,
    offsets_of,
    parse_unit,
    parse_units,
)
from spark_mq.io.file_reader import FileReaders, sample
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import CONSUME_QUEUE_EXT, MAPPED_FILE_NAME
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.folders import QueueFolder
from spark_mq.store.queue.queue_database import QueueDatabase

_INT32 = np.iinfo(np.int32)
_UNITS_OF_A_READ = 1 << 12
_BLOCK = 128
"""Units of which the last one is looked at first, to find the end of a file."""
_BACK = 1024
"""Units of one read, on the way back from the end of a queue."""


class ConsumeQueueExt:
    """The extension units of one queue. The folder is listed once, when the first unit is asked for."""

    def __init__(self, queue_folder: Location, files: FileReaders) -> None:
        """The extension of the queue whose files are in `queue_folder`, `consumequeue/TOPIC/QUEUE ID`."""
        topic = queue_folder.parent
        self.folder = topic.parent.parent / CONSUME_QUEUE_EXT / topic.name / queue_folder.name
        self._readers = files

    @cached_property
    def _files(self) -> list[tuple[int, int, Location]]:
        """The first offset, the size and the place of each file, by offset."""
        named = (info for info in self.folder.entries() if MAPPED_FILE_NAME.fullmatch(info.base_name))
        return [(int(info.base_name), int(info.size or 0), self.folder / info.base_name) for info in named]

    def unit(self, address: int) -> ExtUnit | None:
        """The unit at an address; None if it is not an address, or no whole unit is there."""
        if not is_address(address):
            return None
        offset = offset_of(address)
        index = bisect_right(self._files, offset, key=lambda file: file[0]) - 1
        if index < 0 or offset >= self._files[index][0] + self._files[index][1]:
            return None
        first, size, location = self._files[index]
        return parse_unit(self._readers.read(location, offset - first, min(MAX_UNIT_SIZE, size - (offset - first))))

    def resolved(self, units: Units) -> Units:
        """Consume queue units whose addresses are replaced by the tags codes to which they lead."""
        codes = units["tags_code"].astype(np.int64)
        if not (codes <= MAX_ADDRESS).any():
            return units
        found = self.units(codes)
        result = units.copy()
        result["tags_code"][found.is_found] = found.tags_code[found.is_found]
        return result

    def units(self, tags_codes: Int64s) -> ExtUnits:
        """The units to which tags codes lead; a tags code that is not an address leads to none."""
        count = tags_codes.size
        found = ExtUnits(
            np.zeros(count, np.bool_), np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, b"", object)
        )
        asked = np.flatnonzero(tags_codes <= MAX_ADDRESS)
        if not asked.size:
            return found
        offsets = offsets_of(tags_codes[asked])
        for first, size, location in self._files:
            is_here = (offsets >= first) & (offsets - first < size)
            if not is_here.any():
                continue
            # Only the part of the file to which the addresses lead.
            places = offsets[is_here] - first
            start = int(places.min())
            length = min(int(places.max()) + HEADER_SIZE + MAX_UNIT_SIZE, size) - start
            data = np.frombuffer(self._readers.read(location, start, length), np.uint8)
            units, which = parse_units(data, places - start), asked[is_here]
            found.is_found[which] = units.is_found
            found.tags_code[which] = units.tags_code
            found.store_timestamp[which] = units.store_timestamp
            found.bit_map[which] = units.bit_map
        return found


def can_have_tags(tags_codes: Int64s, requested: Iterable[int]) -> Flags:
    """Which units can be of messages whose tags have one of the requested codes.

    A code outside the integers of 32 bits is not a hash: it is the delivery time of a message of SCHEDULE_TOPIC_XXXX,
    or an address in `consumequeue_ext` (`ConsumeQueueExt.isExtAddr`@5.3.3). So such a unit can be of any message.
    Different tags can have one hash: a reader compares the tags of each message.
    """
    is_other = (tags_codes < _INT32.min) | (tags_codes > _INT32.max)
    result: Flags = is_other | np.isin(tags_codes, np.array(sorted(requested), np.int64))
    return result


@dataclass(frozen=True)
class QueueFile:
    """One file of a queue: `first` is the queue offset of its first unit, `count` the number of its units."""

    location: Location
    first: int
    count: int
    modification_time: int
    """Nanoseconds since the epoch."""


class ConsumeQueue:
    """The units of one queue, read when they are needed."""

    def __init__(self, folder: QueueFolder, files: FileReaders) -> None:
        self.folder = folder
        self.topic = folder.topic
        self.queue_id = folder.queue_id
        self.files: list[QueueFile] = []
        starts = [-(-int(info.base_name) // UNIT_SIZE) for info in folder.files]
        for index, info in enumerate(folder.files):
            count = info.size // UNIT_SIZE
            if index + 1 < len(starts):
                count = min(count, starts[index + 1] - starts[index])
            location = folder.location / info.base_name
            self.files.append(QueueFile(location, starts[index], count, info.mtime_ns))
        self._starts = starts
        self.readers = files
        self._written_end: int | None = None
        self._last_written: tuple[int, int, int] | None = None

    @property
    def written_end(self) -> int:
        """The queue offset after the last unit that was ever written, even if that unit is stale.

        The end in the last file is found by a binary search, which assumes that a file is written from its start on.
        """
        if self._written_end is None:
            self._written_end = self.files[0].first if self.files else 0
            for file in reversed(self.files):
                if isinstance(file.location.storage, QueueDatabase):
                    self._written_end, self._last_written = file.location.storage.end_of(self.topic, self.queue_id)
                    break
                count, unit = self._last_unit_of(file)
                if count:
                    self._written_end, self._last_written = file.first + count, unit
                    break
        return self._written_end

    def units(self, start: int, stop: int) -> Units:
        """The units from queue offset `start` to `stop` (not included); a unit that no file contains is zeros."""
        index = max(bisect_right(self._starts, start) - 1, 0)
        if index < len(self.files):
            file = self.files[index]
            if file.first <= start < stop <= file.first + file.count:
                return self._read(file, start - file.first, stop - start)
        units = np.zeros(max(stop - start, 0), UNIT_DTYPE)
        for file in self.files[index:]:
            file_start, file_stop = max(start, file.first), min(stop, file.first + file.count)
            if file.first >= stop:
                break
            if file_start < file_stop:
                data = self._read(file, file_start - file.first, file_stop - file_start)
                units[file_start - start : file_stop - start] = data
        return units

    def units_at(self, queue_offsets: Int64s) -> Units:
        """The units at these queue offsets, which can be any; a unit that was never written is zeros."""
        found = np.zeros(queue_offsets.size, UNIT_DTYPE)
        first = self.files[0].first if self.files else 0
        is_written = (queue_offsets >= first) & (queue_offsets < self.written_end)
        blocks = queue_offsets // _UNITS_OF_A_READ
        for block in np.unique(blocks[is_written]).tolist():
            here, start = is_written & (blocks == block), block * _UNITS_OF_A_READ
            units = self.units(start, min(start + _UNITS_OF_A_READ, self.written_end))
            found[here] = units[queue_offsets[here] - start]
        return found

    def ranges(self, start: int, stop: int) -> Iterator[tuple[Location, int, int]]:
        """The bytes of these units: a file, the position of the first byte, and the position after the last one."""
        for file in self.files:
            first, last = max(start, file.first) - file.first, min(stop, file.first + file.count) - file.first
            if first < last:
                yield file.location, first * UNIT_SIZE, last * UNIT_SIZE

    def end_range(self) -> tuple[Location, int, int]:
        """The bytes that `written_end` probably reads, as in `ranges`."""
        block = self._likely_end(self.files[-1]) // _BLOCK * _BLOCK * UNIT_SIZE
        return self.files[-1].location, max(block - _BLOCK * UNIT_SIZE, 0), block + _BLOCK * UNIT_SIZE

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        """Commit log offset, size and tags code of one unit; zeros if no file contains the unit."""
        if self._last_written is not None and queue_offset + 1 == self._written_end:
            return self._last_written  # of most queues, only this unit is needed, several times
        index = bisect_right(self._starts, queue_offset) - 1
        if index < 0 or queue_offset >= self.files[index].first + self.files[index].count:
            return 0, 0, 0
        file = self.files[index]  # which can be shorter by now; without numpy, a unit takes half the time
        data = self.readers.read(file.location, (queue_offset - file.first) * UNIT_SIZE, UNIT_SIZE)
        commit_log_offset, store_size, tags_code = UNIT.unpack(data.ljust(UNIT_SIZE, b"\0"))
        return commit_log_offset, store_size, tags_code

    def record_offset(self, queue_offset: int) -> int:
        """The queue offset that the record of a message has to state."""
        return queue_offset

    @cached_property
    def ext(self) -> ConsumeQueueExt:
        """The extension units of the queue, which few brokers have."""
        return ConsumeQueueExt(self.folder.location, self.readers)

    def tags_code(self, queue_offset: int) -> int | None:
        """The tags code of one unit, or that of its extension unit if it is an address; None if there is none there."""
        code = self.unit(queue_offset)[2]
        if not is_address(code):
            return code
        found = self.ext.unit(code)
        return None if found is None else found.tags_code

    def tags_codes(self, units: Units) -> tuple[Int64s, Flags]:
        """The tags codes of units, as in `tags_code`; and which of them are known."""
        codes = self.ext.resolved(units)["tags_code"].astype(np.int64)
        return codes, codes > MAX_ADDRESS

    def max_offset(self, records: RecordLookup, log_end: int) -> int:
        """The queue offset after the last live unit (`getMaxOffsetInQueue`); `log_end` is the log's live end.

        Units of records after the live end are stale (`truncateDirtyLogicFiles`). Later units that point before the
        live end, but not to a record, are stale too; a broker would count them.
        """
        for file in reversed(self.files):
            end = self._live_end(file, records, log_end)
            if end > file.first:
                return end
        return self.files[0].first if self.files else 0

    def _live_end(self, file: QueueFile, records: RecordLookup, log_end: int) -> int:
        """The queue offset after the file's last live unit; the file's first queue offset if it has none."""
        end = self._end_before(file, log_end)
        while end > file.first and self._is_astray(end - 1, records):
            end -= 1
        return end

    def end_before(self, log_end: int) -> int:
        """The queue offset after the last unit that a boot keeps if the log ends at `log_end`; the others are stale."""
        ends = ((file.first, self._end_before(file, log_end)) for file in reversed(self.files))
        return next((end for first, end in ends if end > first), self.files[0].first if self.files else 0)

    def _end_before(self, file: QueueFile, log_end: int) -> int:
        end = min(file.first + file.count, self.written_end)
        while end > file.first and self._is_stale(end - 1, log_end):
            start = max(file.first, end - _BACK)
            units = self.units(start, end)
            is_stale = units["commit_log_offset"] > log_end - units["store_size"].astype(np.int64)
            is_stale &= units["store_size"] != PRE_BLANK_SIZE
            kept = np.flatnonzero(~is_stale)
            end = start + (int(kept[-1]) + 1 if kept.size else 0)
        return end

    def min_offset(self, max_offset: int, log_start: int, *, by_halving: bool) -> int:
        """The first queue offset that a broker offers (`correctMinOffset` as at a start of the broker).

        `log_start` is the log's first offset. Pre-blank units point to offset 0. They count as long as the log starts
        there. 4.9 and 5 find different ones of them first: `by_halving` is the rule `MIN_OFFSET_BY_HALVING`.
        """
        if not self.files or max_offset == 0:
            return 0
        first = self.files[0]
        if isinstance(first.location.storage, QueueDatabase):
            # `RocksDBConsumeQueueOffsetTable.correctMinCqOffset`@5.3.3, which skips what is not there
            def at(offset: int) -> int:
                commit_log_offset, store_size, _ = self.unit(offset)
                return commit_log_offset if store_size not in (0, PRE_BLANK_SIZE) else -1

            return bisect_left(range(max_offset), log_start, key=at)
        if not by_halving:
            stop = min(first.first + first.count, max_offset)
            offsets = self.units(first.first, stop)["commit_log_offset"]
            offered = np.flatnonzero(offsets >= log_start)
            return first.first + int(offered[0]) if offered.size else 0
        if self.unit(max_offset - 1)[0] < log_start:
            return max_offset
        return self._search_min_offset(first, min(first.first + first.count, max_offset), log_start)

    def _search_min_offset(self, file: QueueFile, stop: int, log_start: int) -> int:
        """The search of `ConsumeQueue.correctMinOffset`@5.3.3 in the first file."""
        if file.first == 0 and self.unit(0)[0] >= log_start:
            return 0
        low, high = file.first, stop - 1
        while high - low > 1:
            # Java halves bytes from the file's start; queue offsets from there give the same unit.
            middle = file.first + (low - file.first + high - file.first) // 2
            offset = self.unit(middle)[0]
            if offset == log_start:
                return middle
            low, high = (low, middle) if offset > log_start else (middle, high)
        return next((at for at in range(low, high + 1) if self.unit(at)[0] >= log_start), 0)

    def _read(self, file: QueueFile, first: int, count: int) -> Units:
        data = self.readers.read(file.location, first * UNIT_SIZE, count * UNIT_SIZE)
        return np.frombuffer(data.ljust(count * UNIT_SIZE, b"\0"), UNIT_DTYPE)

    def _last_unit_of(self, file: QueueFile) -> tuple[int, tuple[int, int, int] | None]:
        """The number of units of the file that were written, and the last one; 0 and None if there is none.

        A unit was written if `offset >= 0 and size > 0` (`ConsumeQueue.recover`). The end is in the first block whose
        last unit was not written; many queues are so short that it is the first.
        """
        low, high = 0, -(-file.count // _BLOCK)
        block, back = self._likely_end(file) // _BLOCK, 1
        full: tuple[int, tuple[int, int, int] | None] = 0, None
        partial = full
        while low < high:
            first = block * _BLOCK
            length = min(_BLOCK, file.count - first)
            count, unit = _last_written(self.readers.read(file.location, first * UNIT_SIZE, length * UNIT_SIZE))
            if count == length:
                low, full, back = block + 1, (first + count, unit), high
            else:
                high, partial = block, (first + count, unit)
            block, back = max(high - back, (low + high) // 2), 2 * back
        return full if partial[1] is None else partial

    def _likely_end(self, file: QueueFile) -> int:
        """Where the last written unit of a file is, in units, as far as the operating system knows; else 0."""
        size = file.count * UNIT_SIZE
        allocated = self.readers.reader(file.location).allocated if file.location.is_local else None
        return allocated // UNIT_SIZE if allocated is not None and 0 < allocated < size else 0

    def _is_stale(self, queue_offset: int, log_end: int) -> bool:
        """Whether the unit points to a record after the log's live end."""
        commit_log_offset, store_size, _ = self.unit(queue_offset)
        return store_size != PRE_BLANK_SIZE and commit_log_offset > log_end - store_size

    def _is_astray(self, queue_offset: int, records: RecordLookup) -> bool:
        """Whether the unit points into the last written segment, but not to a record of its size."""
        commit_log_offset, store_size, _ = self.unit(queue_offset)
        if store_size == PRE_BLANK_SIZE or not records.segments:
            return False
        if records.is_before_last_written(commit_log_offset):
            return False
        return not records.is_at(commit_log_offset, store_size)


def announce_units(parts: Sequence[tuple[ConsumeQueue, int, int]]) -> None:
    """Let a disk read units of several queues at a time: a queue, and its queue offsets from the first to the last."""
    if parts:
        parts[0][0].readers.announce([found for queue, start, stop in parts for found in queue.ranges(start, stop)])


def announce_ends(queues: Sequence[ConsumeQueue]) -> None:
    """Let a disk read the ends of several queues at a time."""
    queues = [queue for queue in queues if queue.folder.location.is_local]
    if queues:
        readers = queues[0].readers
        if not readers.are_cached(queue.end_range() for queue in sample(queues)):
            readers.announce([queue.end_range() for queue in queues])


def _last_written(data: bytes) -> tuple[int, tuple[int, int, int] | None]:
    """The number of units up to the last one that was written, and that unit; 0 and None if there is none."""
    count = -(-len(data.rstrip(b"\0")) // UNIT_SIZE)  # without numpy: it takes longer for a few units
    data = data.ljust(count * UNIT_SIZE, b"\0")
    while count:
        unit = UNIT.unpack_from(data, (count - 1) * UNIT_SIZE)
        if unit[0] >= 0 and unit[1] > 0:
            return count, unit
        count -= 1
    return 0, None
