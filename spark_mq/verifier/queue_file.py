"""Soundness of one queue file: its units against those that the log says.

| queue offset | a sound file has |
| --- | --- |
| before the first message of the log | pre-blank units, or units of expired messages in the order of the log |
| of a message | the unit of the message |
| between two messages, without one | anything: the log is damaged there, or the message was left out of a restore |
| of a whole file whose messages are all lost | units in the order of the log, which lead into its lost parts |
| after the last message | zeros, or units of records that a recovery cut off the log |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.consume_queue import (
    PRE_BLANK_SIZE,
    UNIT_DTYPE,
    UNIT_SIZE,
    Queue,
    Units,
    is_live,
    pre_blank,
    queue_file_name,
)
from spark_mq.format.consume_queue_ext import MAX_ADDRESS
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.indexer.queue_runs import StagedQueue
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.queue.folders import queue_path
from spark_mq.verifier.finding import findings, text
from spark_mq.verifier.log_bounds import LogBounds


@dataclass
class ExpectedFile:
    """The units that the log has for one queue file.

    `stop` is the queue offset after the queue's last file that is not empty, and `newest_unit` the commit log offset in
    the last unit of that file; -1 if no message of the queue is there. The file `is_lost` if earlier and later ones
    have messages in the log. `doubled` are queue offsets that earlier messages have, and the units of the later ones.
    `tree` is what findings call the folder of all queues.
    """

    topic: str
    queue_id: int
    number: int
    capacity: int
    queue_min: int | None
    queue_max: int | None
    stop: int
    newest_unit: int = -1
    is_configured: bool = True
    last_store_timestamp: int | None = None
    has_file: bool = False
    is_lost: bool = False
    doubled: list[tuple[Int64s, Units]] = field(default_factory=list)
    tree: str = CONSUME_QUEUE

    @classmethod
    def without_message(
        cls, queue: Queue, number: int, capacity: int, staged: StagedQueue | None, stop: int = 0, is_lost: bool = False
    ) -> Self:
        """A file for which the log has no message; `staged` is the queue if the log has any message of it."""
        low, high = (None, None) if staged is None else (staged.queue_min, staged.queue_max)
        return cls(*queue, number, capacity, low, high, stop, is_lost=is_lost)

    @property
    def queue(self) -> Queue:
        """Topic and queue id."""
        return self.topic, self.queue_id

    @property
    def start(self) -> int:
        """The queue offset of the file's first unit."""
        return self.number * self.capacity

    @property
    def path(self) -> str:
        """The file's path in the store."""
        name = queue_file_name(self.number, self.capacity * UNIT_SIZE)
        return queue_path(self.topic, self.queue_id, name, self.tree)

    @cached_property
    def units(self) -> Units:
        """The units, up to the queue's last one; zeros at a queue offset without a message."""
        return np.zeros(max(min((self.queue_max or 0) - self.start, self.capacity), 0), UNIT_DTYPE)

    def put(self, first_queue_offset: int, units: Units) -> None:
        """Put units that come next in the log. The first message with a queue offset gets it."""
        first = first_queue_offset - self.start
        target = self.units[first : first + units.size]
        free = target["store_size"] == 0
        target[free] = units[free]
        if not free.all():
            self.doubled.append((first_queue_offset + np.flatnonzero(~free), units[~free]))


class UnitPairs:
    """Expected and existing units side by side, `size` of them, and the commit log offsets of the existing ones.

    Queue offsets without a message are `before` the queue's first message, `inner` between two messages, or `after` the
    last one; all are `after` if the log has no message of the queue.
    """

    def __init__(self, expected: ExpectedFile, existing: Units, size: int) -> None:
        self.want, self.have = _resized(expected.units, size).copy(), _resized(existing, size)
        for queue_offsets, units in expected.doubled:
            # A queue that was deleted and created again has the later one of two messages.
            at = queue_offsets - expected.start
            is_later = bytes_of(units) == bytes_of(self.have[at])
            self.want[at[is_later]] = units[is_later]
        self.has_message: Flags = self.want["store_size"] != 0
        self.offsets: Int64s = self.have["commit_log_offset"].astype(np.int64)
        self.is_live: Flags = is_live(self.have)
        numbers = expected.start + np.arange(size)
        low, high = expected.queue_min or 0, expected.queue_max or 0
        self.before: Flags = ~self.has_message & (numbers < low)
        self.inner: Flags = ~self.has_message & (numbers >= low) & (numbers < high)
        self.after: Flags = ~self.has_message & (numbers >= high)

    @property
    def is_same_record(self) -> Flags:
        """Which existing units lead to the record of their message, whatever their tags codes are."""
        same: Flags = self.has_message & (self.want["commit_log_offset"] == self.have["commit_log_offset"])
        same &= self.want["store_size"] == self.have["store_size"]
        return same

    @property
    def is_pre_blank(self) -> Flags:
        """Which existing units are pre-blank."""
        blank: Flags = bytes_of(self.have) == bytes_of(pre_blank(1))
        return blank


def queue_file_findings(
    expected: ExpectedFile, existing: Units, bounds: LogBounds, has_extensions: bool = False
) -> Iterator[pa.RecordBatch]:
    """What is wrong with the units of a queue file.

    `existing` are at least those up to the last one that is not zeros; addresses are replaced by the tags codes to
    which they lead. With extensions, a tags code can be an address that leads to nothing.
    """
    for queue_offsets, units in expected.doubled:
        yield findings(
            "QUEUE_OFFSET_TWICE",
            expected.path,
            "a queue offset that no earlier message has",
            text("queue offset ", queue_offsets),
            queue=expected.queue,
            position=(queue_offsets - expected.start) * UNIT_SIZE,
            commit_log_offset=units["commit_log_offset"],
        )
    check = _Check(expected, existing, bounds, has_extensions)
    if expected.is_lost:
        yield from check.lost_file()
    elif not check.is_equal.all() or (expected.queue_min or 0) > expected.start:
        yield from check.file()


class _Check(UnitPairs):
    def __init__(self, expected: ExpectedFile, existing: Units, bounds: LogBounds, has_extensions: bool) -> None:
        super().__init__(expected, existing, max(expected.units.size, existing.size))
        self.expected, self.bounds, self.has_extensions = expected, bounds, has_extensions
        self.is_equal: Flags = bytes_of(self.want) == bytes_of(self.have)
        self.is_zero: Flags = bytes_of(self.have) == bytes_of(np.zeros(1, UNIT_DTYPE))

    def file(self) -> Iterator[pa.RecordBatch]:
        bounds, have = self.bounds, self.have
        yield from self._wrong_units()
        is_expired = self.is_live & (self.offsets < bounds.start)
        lost = self.is_live & bounds.is_lost(self.offsets)
        before, after = self.before & ~self.is_pre_blank & ~is_expired, self.after & ~self.is_zero
        if self.is_zero.all() and not self.expected.units.size:
            before[:] = False
        if self.expected.queue_min is None:
            after &= ~self.is_pre_blank & ~is_expired
        inner = self.inner | ((before | after) & lost)
        before, after = before & ~lost, after & ~lost
        # A restore marks messages that it leaves out (`indexer.queue_files.missing_offset`).
        left_out = inner & (have["store_size"] == PRE_BLANK_SIZE) & (have["tags_code"] == 0)
        left_out &= self.offsets > bounds.start
        stale = after & self.is_live & (self.offsets > bounds.end - have["store_size"].astype(np.int64))
        expired = np.flatnonzero(is_expired & ~self.has_message)
        steps_back = np.zeros(have.size, np.bool_)
        steps_back[expired[1:][np.diff(self.offsets[expired]) <= 0]] = True
        yield from self._batch("QUEUE_LEFT_OUT", left_out, "any unit")
        yield from self._batch("QUEUE_NO_MESSAGE", inner & ~left_out, "a message in the log")
        yield from self._batch("QUEUE_PRE_BLANK", before, "a pre-blank unit")
        yield from self._batch("QUEUE_UNIT_STALE", stale, "zeros")
        yield from self._batch("QUEUE_UNIT_EXTRA", after & ~stale, "zeros")
        yield from self._batch("QUEUE_EXPIRED_ORDER", steps_back, "an offset after that of the unit before")

    def lost_file(self) -> Iterator[pa.RecordBatch]:
        """What is wrong with a file whose messages are all lost: only its units can be held against each other."""
        unit, offsets = self.is_live, self.offsets
        ends = offsets + self.have["store_size"]
        leads_there = unit & self.bounds.is_lost(offsets) & self.bounds.is_lost(ends - 1)
        before = np.maximum.accumulate(np.concatenate(([0], np.where(leads_there, ends, 0)[:-1])))
        in_order = leads_there & (offsets >= before)
        of_lost = "a unit of a message in a lost part of the log"
        yield from self._batch("QUEUE_NO_MESSAGE", in_order, "a message in the log")
        out_of_order = leads_there & ~in_order
        yield from self._batch("QUEUE_UNIT_MISPLACED", out_of_order, "an offset after that of the unit before")
        yield from self._batch("QUEUE_UNIT_WRONG", unit & ~leads_there, of_lost)
        yield from self._batch("QUEUE_UNIT_MISSING", ~unit, of_lost)

    def _wrong_units(self) -> Iterator[pa.RecordBatch]:
        expected = self.expected
        wrong = self.has_message & ~self.is_equal
        if expected.start + expected.capacity >= expected.stop:  # else a later file has units
            written = np.flatnonzero(~self.is_zero)
            lag = wrong & self.is_zero
            lag[: int(written[-1]) + 1 if written.size else 0] = False
            if lag.any():
                yield self._lag(np.flatnonzero(lag))
            wrong &= ~lag
        for code, which in (
            ("QUEUE_UNIT_MISSING", self.is_zero | self.is_pre_blank),
            ("QUEUE_EXT_MISSING", self.has_extensions & self.is_same_record & (self.have["tags_code"] <= MAX_ADDRESS)),
            ("QUEUE_DUE_TIME", (expected.topic == SCHEDULE_TOPIC) & self.is_same_record),
            ("QUEUE_UNIT_MISPLACED", self._is_of_another_offset()),
            ("QUEUE_UNIT_WRONG", np.ones(wrong.size, np.bool_)),
        ):
            yield from self._batch(code, wrong & which)
            wrong = wrong & ~which

    def _is_of_another_offset(self) -> Flags:
        """Which existing units are those of a message of this file; those that are wrong have another queue offset."""
        of_messages = self.want[self.has_message]
        offsets = of_messages["commit_log_offset"].astype(np.int64)
        order = np.argsort(offsets, kind="stable")
        if not order.size:
            return np.zeros(self.is_zero.size, np.bool_)
        at = order[np.minimum(np.searchsorted(offsets[order], self.offsets), order.size - 1)]
        same: Flags = bytes_of(of_messages[at]) == bytes_of(self.have)
        return same

    def _lag(self, lacking: Int64s) -> pa.RecordBatch:
        expected, first = self.expected, int(lacking[0])
        has_no_unit = expected.stop == 0
        # Other units can be those of another queue, or damaged.
        newest = max(int(self.offsets[self.is_same_record].max(initial=-1)), expected.newest_unit)
        offset = int(self.want["commit_log_offset"][first])
        if offset < newest or (has_no_unit and not expected.is_configured and not expected.has_file):
            code = "QUEUE_DELETED"
        elif has_no_unit:
            code = "QUEUE_MISSING"
        else:
            code = "QUEUE_LAGS_CLEAN" if self.bounds.is_clean else "QUEUE_LAGS"
        if has_no_unit:
            found = "a file without units" if expected.has_file else "no file"
        else:
            found = f"units up to queue offset {expected.start + first - 1}"
        return findings(
            code,
            expected.path,
            f"units up to queue offset {expected.start + int(lacking[-1])}",
            found,
            queue=expected.queue,
            position=first * UNIT_SIZE,
            commit_log_offset=offset,
        )

    def _batch(self, code: str, which: Flags, expected: str | None = None) -> Iterator[pa.RecordBatch]:
        """Findings about units; what is expected are the units of the log, unless a text says something else."""
        if not which.any():
            return
        want, have = self.want[which], self.have[which]
        offsets = np.where(want["store_size"] != 0, want["commit_log_offset"], have["commit_log_offset"])
        yield findings(
            code,
            self.expected.path,
            _text(want) if expected is None else expected,
            _text(have),
            queue=self.expected.queue,
            position=np.flatnonzero(which) * UNIT_SIZE,
            commit_log_offset=offsets.astype(np.int64),
        )


def _text(units: Units) -> pa.Array:
    offsets, sizes, codes = (units[name].astype(np.int64) for name in ("commit_log_offset", "store_size", "tags_code"))
    return text("offset ", offsets, ", size ", sizes, ", tags code ", codes)


def bytes_of(units: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    """Each unit as its bytes, which can be compared."""
    return np.ascontiguousarray(units).view((np.void, units.itemsize))


def _resized(units: Units, size: int) -> Units:
    if units.size >= size:
        return units[:size]
    padded = np.zeros(size, UNIT_DTYPE)
    padded[: units.size] = units
    return padded
