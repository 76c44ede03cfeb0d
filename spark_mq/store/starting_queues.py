"""The queues of a broker that starts: what they have, what is dispatched to them, and where they are cut.

Those in RocksDB (`RocksDBConsumeQueueStore` and `…OffsetTable`@5.3.2 to 5.5.1): a message that is dispatched gets its
unit at its queue offset, whatever the queue has. The table of ends says where each queue ends, and up to where the log
was dispatched; a broker asks no unit for that. RocksDB has what the broker flushed: up to 128 MiB of units are lost in
a crash, and dispatched again.

If the log ends before the dispatched part, the broker corrects the table (`truncateDirty`), and deletes no unit. It
does not do so if it dispatched a message before: the table then says that the log is dispatched up to its end. So
queues without such a message keep their ends. Where the table is corrected, `binarySearchInCQ` looks for the last unit
before the end of the log. It stops at a unit that leads exactly to that end, and then returns one that is too early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from spark_mq.format.array_types import Flags, Int32s
from spark_mq.format.consume_queue import UNIT_SIZE, Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.kernels.recovery import PutResult, put_units
from spark_mq.store.dispatch_requests import DispatchRequests, QueueNumbers
from spark_mq.store.queue.folders import queue_path
from spark_mq.store.queue.queue_database import End, QueueDatabase
from spark_mq.store.queue.recovered_queue import NO_FILE, RecoveredQueue, units_after


class StartingQueues:
    """The queues of a broker that starts: those that have folders, and those that it creates.

    Attributes:
        on_disk: The queues with folders as they are before anything is dispatched, by number.
        end: The byte of each queue after its last unit; -1 if it has no file.
        max_physic_offset: The commit log offset after the last message of each queue; that of the last record of a
            batch consume queue. -1 if that is not known.
        counted_again: By number: the queue offsets of the first unit, and after the last one, that `truncate` added.
    """

    def __init__(self, recovered: Iterable[RecoveredQueue], numbers: QueueNumbers, file_size: int) -> None:
        self.on_disk = list(recovered)
        self.end = np.array([queue.end for queue in self.on_disk], np.int64)
        self.max_physic_offset = np.array([queue.max_physic_offset for queue in self.on_disk], np.int64)
        self.names = numbers.names
        self._numbers = numbers
        self._next_offset = np.array([queue.next_offset for queue in self.on_disk], np.int64)
        self._exists = np.ones(len(self.on_disk), np.bool_)
        self._file_size = file_size
        self.counted_again: dict[int, tuple[int, int]] = {}

    @property
    def highest(self) -> int:
        """The largest commit log offset after a message that a queue has; -1 without queues."""
        return int(self.max_physic_offset.max(initial=-1))

    def put(self, requests: DispatchRequests, is_dispatched: Flags) -> Int32s:
        """Dispatch messages to their queues; returns what happened to each, as `PutResult` numbers."""
        added = len(self.names) - self.end.size
        self.end = np.concatenate((self.end, np.full(added, NO_FILE, np.int64)))
        self.max_physic_offset = np.concatenate((self.max_physic_offset, np.full(added, -1, np.int64)))
        self._next_offset = np.concatenate((self._next_offset, np.zeros(added, np.int64)))
        self._exists = np.concatenate((self._exists, np.zeros(added, np.bool_)))
        results = np.empty(requests.queue.size, np.int32)
        put_units(
            requests.queue,
            requests.queue_offset,
            requests.message_count,
            requests.commit_log_offset,
            requests.store_size,
            is_dispatched & requests.has_unit,
            self._file_size,
            self._numbers.are_batch,
            self._exists,
            self.end,
            self._next_offset,
            self.max_physic_offset,
            results,
        )
        return results

    def truncate(
        self, log_end: int, truncated: Callable[[RecoveredQueue, int], RecoveredQueue]
    ) -> dict[int, RecoveredQueue]:
        """Cut off the units of messages from commit log offset `log_end` on; returns the queues that change, by number.

        Units that were put before are after the ones that are cut off, and go with them. If they fill a gap, the valid
        units after it count again: `truncateDirtyLogicFiles` reads the last file from its start.
        """
        changed = {}
        for number, queue in enumerate(self.on_disk):
            if queue.end == NO_FILE:
                continue
            after = truncated(queue, log_end)
            has_new_units = self.end[number] > queue.end
            if after.end < queue.end or (not has_new_units and (after.end > queue.end or after.deleted)):
                changed[number] = self.on_disk[number] = after
            if after.end < queue.end or not has_new_units:
                self.end[number], self.max_physic_offset[number] = after.end, after.max_physic_offset
                self._next_offset[number] = after.next_offset
            elif not queue.folder.is_batch and int(queue.files[-1].base_name) <= (end := int(self.end[number])) < (
                int(queue.files[-1].base_name) + self._file_size
            ):
                count, max_physic_offset = units_after(queue, end, log_end, self._numbers.readers)
                if count:
                    self.end[number], self.max_physic_offset[number] = end + count * UNIT_SIZE, max_physic_offset
                    self._next_offset[number] += count
                    self.counted_again[number] = end // UNIT_SIZE, end // UNIT_SIZE + count
        without_file = self._exists & (self.end == NO_FILE)
        are_batch = self._numbers.are_batch[: without_file.size]
        self.max_physic_offset[without_file] = log_end - are_batch[without_file]
        return changed

    def empty_last_files(self) -> Iterator[str]:
        """The last file of each queue that ends at its first byte, unless that is the first byte of the queue."""
        for queue, end in zip(self.on_disk, self.end.tolist(), strict=False):
            folder, name = queue.folder, queue.files[-1].base_name if queue.files else ""
            if end > 0 and name and int(name) == end and not folder.is_batch:
                yield queue_path(folder.topic, folder.queue_id, name, folder.tree)

    def max_offsets(self) -> dict[Queue, int]:
        """The queue offset after the last unit of each queue that has files."""
        ends = zip(self.names, self.end.tolist(), self._next_offset.tolist(), strict=False)
        return {name: next_offset for name, end, next_offset in ends if end != NO_FILE}

    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The queue offsets of the first unit, and after the last one, of each queue before anything is added."""
        return tuple((queue.folder.first_offset, queue.next_offset) for queue in self.on_disk)

    def are_there(self, requests: DispatchRequests) -> Flags:
        """Which messages have a unit at their queue offset that is not one of those that were put."""
        chosen, are_there = requests.is_led_to & requests.has_unit, np.zeros(requests.queue.size, np.bool_)
        for bounds in (dict(enumerate(self.bounds())), self.counted_again):
            first, stop = np.zeros((2, len(self.names)), np.int64)
            for number, part in bounds.items():
                first[number], stop[number] = part
            offset, queue = requests.queue_offset, requests.queue
            are_there |= chosen & (first[queue] <= offset) & (offset < stop[queue])
        return are_there


class StartingDatabase(StartingQueues):
    """The queues of a broker that starts, in RocksDB; of all those that begin with a prefix the ends are told."""

    def __init__(self, database: QueueDatabase, numbers: QueueNumbers, log_start: int, prefix: str = "") -> None:
        table = database.offset_table()
        self.names = numbers.names
        self.counted_again = {}
        self._database = database
        self._prefix = prefix
        self._known = len(numbers.names)
        self._log_start = log_start
        self._minimum = table.minimum
        self._maximum = dict(table.maximum)
        self._before = dict(self._maximum)
        self._dispatched_to = table.checkpoint or 0

    @property
    def highest(self) -> int:
        """The commit log offset after the last message that was dispatched; 0 if there is none."""
        return self._dispatched_to

    def put(self, requests: DispatchRequests, is_dispatched: Flags) -> Int32s:
        """Dispatch messages to their queues; returns what happened to each, as `PutResult` numbers."""
        is_put = is_dispatched & requests.has_unit
        results = np.full(is_put.size, PutResult.NOT_DISPATCHED, np.int32)
        results[is_put] = PutResult.APPENDED
        results[is_put & self.are_there(requests)] = PutResult.IGNORED
        put = requests.take(is_put)
        _, before_last = np.unique(put.queue[::-1], return_index=True)
        for index in (put.queue.size - 1 - before_last).tolist():
            end = int(put.commit_log_offset[index]), int(put.queue_offset[index])
            self._maximum[self.names[int(put.queue[index])]] = end
        if put.queue.size:
            self._dispatched_to = int(put.commit_log_offset[-1] + put.store_size[-1])
        return results

    def correct_ends(self, log_end: int) -> Iterator[tuple[Queue, End, End]]:
        """Correct the ends of the queues that are after the end of the log; each queue, its old end and its new one."""
        if self._dispatched_to > log_end:
            self._dispatched_to = log_end
            for queue, end in self.ends_from(log_end):
                corrected = self._corrected(queue, end, log_end)
                self._before[queue] = self._maximum[queue] = corrected
                if corrected != end:
                    yield queue, end, corrected

    def ends_from(self, log_end: int) -> list[tuple[Queue, End]]:
        """The queues that end with a message from commit log offset `log_end` on."""
        maximum = sorted(self._maximum.items())
        return [(queue, end) for queue, end in maximum if end[0] >= log_end and queue[0].startswith(self._prefix)]

    def leads_before(self, queue: Queue, queue_offset: int, log_end: int) -> bool:
        """Whether a queue has a unit at a queue offset, of a message before commit log offset `log_end`."""
        found = self._database.commit_log_offset(queue, queue_offset)
        return found is not None and found < log_end

    def max_offsets(self) -> dict[Queue, int]:
        """The queue offset after the last message of each queue."""
        ends = self._maximum.items()
        return {queue: last + 1 for queue, (_, last) in ends if queue[0].startswith(self._prefix)}

    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The queue offsets of the first unit, and after the last one, of each queue before anything is dispatched."""
        return tuple((0, self._before.get(name, (0, -1))[1] + 1) for name in self.names[: self._known])

    def _corrected(self, queue: Queue, end: End, log_end: int) -> End:
        """`RocksDBConsumeQueueOffsetTable.correctMaxCqOffset`: the new end, or the old one if that is an error."""
        first, minimum = self._corrected_minimum(queue, end)
        if minimum is None or minimum[1] != first or minimum[0] > log_end:
            return end
        unchanged = end if end[1] == first else minimum
        return self._search(queue, first, end[1], log_end, is_minimum=False) or unchanged

    def _corrected_minimum(self, queue: Queue, end: End) -> tuple[int, End | None]:
        """`getMinCqOffset`: the first queue offset, and the entry that the broker then has in memory."""
        known = self._minimum.get(queue)
        if known is not None and known[0] >= self._log_start:
            return known[1], known
        first = 0 if known is None else known[1]
        found = self._search(queue, first, end[1], self._log_start, is_minimum=True)
        if found is None:
            return first, None if end[1] == first else end
        return found[1], found

    def _search(self, queue: Queue, low: int, high: int, target: int, *, is_minimum: bool) -> End | None:
        """`RocksDBConsumeQueueTable.binarySearchInCQ`."""
        found = None
        while high >= low:
            middle = low + (high - low) // 2
            offset = self._database.commit_log_offset(queue, middle)
            if offset is None or offset < target:
                low = middle + 1
                found = found if offset is None or is_minimum else (offset, middle)
                continue
            found = (offset, middle) if is_minimum else found
            if offset == target:
                break
            high = middle - 1
        return found


class StartingLightDatabase(StartingQueues):
    """Queues in files, and light message queues in a database beside them (`CombineConsumeQueueStore`@5.5.0).

    The database has the units of all queues; a broker reads those of light message queues in it
    (`combineCQUseRocksdbForLmq`).
    """

    def __init__(
        self, recovered: Iterable[RecoveredQueue], numbers: QueueNumbers, file_size: int, light: StartingDatabase
    ) -> None:
        super().__init__(recovered, numbers, file_size)
        self.light = light

    def put(self, requests: DispatchRequests, is_dispatched: Flags) -> Int32s:
        """Dispatch messages to their queues; returns what happened to each, as `PutResult` numbers."""
        queues, queue_of = np.unique(requests.queue, return_inverse=True)
        are_light = np.array([self.names[queue][0].startswith(LIGHT_PREFIX) for queue in queues], np.bool_)[queue_of]
        in_files = super().put(requests, is_dispatched & ~are_light)
        results: Int32s = np.where(are_light, self.light.put(requests, is_dispatched), in_files)
        return results

    def max_offsets(self) -> dict[Queue, int]:
        """The queue offset after the last unit of each queue."""
        return super().max_offsets() | self.light.max_offsets()

    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The queue offsets of the first unit, and after the last one, of each queue before anything is added."""
        in_files = super().bounds()
        return (*in_files, *self.light.bounds()[len(in_files) :])
