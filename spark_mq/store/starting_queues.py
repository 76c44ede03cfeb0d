"""The queues of a broker that starts: what they have, what is dispatched to them, and where they are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from spark_mq.format.array_types import Flags, Int32s
from spark_mq.format.consume_queue import UNIT_SIZE, Queue
from spark_mq.format.kernels.recovery import put_units
from spark_mq.store.dispatch_requests import DispatchRequests, QueueNumbers
from spark_mq.store.queue.folders import queue_path
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
