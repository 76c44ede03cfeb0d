"""The units of one queue in the order of the queue, from one part of the log to the next."""

from __future__ import annotations

import numpy as np

from spark_mq.format.consume_queue import UNIT_DTYPE, Units
from spark_mq.format.java_text import decode_utf8
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import QueueCover

_LEAST, _MOST = 128, 1 << 16
"""Units of one read, at least and at most."""
_NO_UNITS: Units = np.empty(0, UNIT_DTYPE)


class UnitCursor:
    """Reads the units of a queue once, in blocks.

    `position` is the queue offset of the first unit that was not taken. `stop` is the queue offset at which the cursor
    ends. A unit that is out of order can be left out; a reader of its part of the log must not rely on it.
    """

    def __init__(self, queue: ConsumeQueue, stop: int, log_start: int, parts: int) -> None:
        """Begin at the first unit of a message at commit log offset `log_start` or later.

        The units are expected to be taken in `parts` parts of about the same size, each of which is read at once.
        """
        self.queue = queue
        self.stop = stop
        self.position = first_unit_from(queue, log_start, stop)
        self._block = _NO_UNITS
        self._count = min(max((stop - self.position) // max(parts, 1) + _LEAST, _LEAST), _MOST)

    def take(self, log_stop: int) -> tuple[int, Units]:
        """The next units of messages before the commit log offset `log_stop`, and the queue offset of the first one."""
        first, parts = self.position, []
        while True:
            if not self._block.size:
                if self.position >= self.stop:
                    break
                self._block = self.queue.units(self.position, min(self.position + self._count, self.stop))
            taken = _units_before(self._block, log_stop)
            parts.append(self._block[:taken])
            self.position += taken
            self._block = self._block[taken:] if taken < self._block.size else _NO_UNITS  # the memory can be used again
            if self._block.size:
                break
        if len(parts) == 1:
            return first, parts[0]
        return first, np.concatenate(parts) if parts else _NO_UNITS

    def following(self) -> tuple[int, int]:
        """The queue offsets from the first to the last (not included) of the next block to be read."""
        start = self.position + self._block.size
        return start, min(start + self._count, self.stop)


def _units_before(block: Units, log_stop: int) -> int:
    """The number of units up to the last one of a message before the commit log offset `log_stop`."""
    if block["commit_log_offset"][-1] < log_stop:
        return block.size
    before = np.flatnonzero(block["commit_log_offset"] < log_stop)
    return int(before[-1]) + 1 if before.size else 0


def first_unit_from(queue: ConsumeQueue, commit_log_offset: int, stop: int) -> int:
    """The queue offset of the first unit of a message at a commit log offset or later, if units are in order."""
    low, high = (queue.files[0].first if queue.files else 0), stop
    if low < high and queue.unit(low)[0] >= commit_log_offset:
        return low
    while low < high:
        middle = (low + high) // 2
        if queue.unit(middle)[0] < commit_log_offset:
            low = middle + 1
        else:
            high = middle
    return low


def own_stop(cover: QueueCover) -> int | None:
    """The queue offset after the last unit that leads to a message of the queue's own topic; None without one.

    Units after it are stale, or of messages that follow the live end. The messages of a light message queue belong to
    other topics. If a recovery truncated the log, stale units remain only at the end of a queue: so the units before
    that of a dispatched message are not stale.
    """
    proven = cover.dispatched.last_proven()
    if proven is None:
        return None
    record = proven.record
    is_own = record.queue_id == cover.queue_id and decode_utf8(record.topic) == cover.topic
    return proven.queue_offset + 1 if is_own else None
