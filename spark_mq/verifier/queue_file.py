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
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_DTYPE, UNIT_SIZE, Units, is_live, queue_file_name
from spark_mq.format.consume_queue_ext import MAX_ADDRESS
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.verifier.finding import findings, text
from spark_mq.verifier.log_bounds import LogBounds

Which = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass
class ExpectedFile:
    """The units that the log has for one queue file.

    Attributes:
        capacity: The number of units in a file.
        queue_min: The first queue offset of the queue that has a message; None if the log has none.
        queue_max: The queue offset after the last one that has a message; None if the log has none.
        stop: The queue offset after the last existing file of the queue that is not empty.
    """

    topic: str
    queue_id: int
    number: int
    capacity: int
    queue_min: int | None
    queue_max: int | None
    stop: int
    newest_unit: int = -1
    """The commit log offset in the last unit of the queue's last file; -1 if no message of the queue is there."""
    is_configured: bool = True
    """Whether the topic is configured, or no file says which topics are."""
    last_store_timestamp: int | None = None
    """The store time of the last message of the file, in milliseconds; None without a message."""
    has_file: bool = False
    """Whether the file exists, if it has no unit."""
    is_lost: bool = False
    """Whether earlier and later files of the queue have messages in the log, and this one has none."""
    doubled: list[tuple[Numbers, Units]] = field(default_factory=list)

    @property
    def start(self) -> int:
        """The queue offset of the file's first unit."""
        return self.number * self.capacity

    @property
    def path(self) -> str:
        """The file's path in the store."""
        name = queue_file_name(self.number, self.capacity * UNIT_SIZE)
        return f"consumequeue/{self.topic}/{self.queue_id}/{name}"

    @cached_property
    def units(self) -> Units:
        """The units, up to the queue's last one; zeros at a queue offset without a message."""
        return np.zeros(max(min((self.queue_max or 0) - self.start, self.capacity), 0), UNIT_DTYPE)

    def put(self, first_queue_offset: int, units: Units) -> None:
        """Put units that come next in the log. The first message with a queue offset gets it."""
        first = first_queue_offset - self.start
        place = self.units[first : first + units.size]
        free = place["store_size"] == 0
        place[free] = units[free]
        if not free.all():
            self.doubled.append((first_queue_offset + np.flatnonzero(~free), units[~free]))


def queue_file_findings(
    expected: ExpectedFile, existing: Units, bounds: LogBounds, has_extensions: bool = False
) -> Iterator[pa.RecordBatch]:
    """What is wrong with the units of a queue file.

    Args:
        existing: The units of the file, at least those up to its last one that is not zeros; none if the file does not
            exist. Addresses are replaced by the tags codes to which they lead (`ConsumeQueueExt.resolved`).
        bounds: Start and end of the log.
        has_extensions: Whether a tags code can be an address in `consumequeue_ext`, which then leads to nothing.

    Yields:
        Findings.
    """
    for queue_offsets, units in expected.doubled:
        yield findings(
            "QUEUE_OFFSET_TWICE",
            units.size,
            file=expected.path,
            position=(queue_offsets - expected.start) * UNIT_SIZE,
            topic=expected.topic,
            queue_id=expected.queue_id,
            commit_log_offset=units["commit_log_offset"],
            expected="a queue offset that no earlier message has",
            found=text("queue offset ", queue_offsets),
        )
    checked = _Comparison(expected, existing, bounds, has_extensions)
    if expected.is_lost:
        yield from checked.lost_findings()
    elif not checked.is_sound:
        yield from checked.findings()


class _Comparison:
    """Expected and found units side by side."""

    def __init__(self, expected: ExpectedFile, existing: Units, bounds: LogBounds, has_extensions: bool) -> None:
        self.expected, self.bounds, self.has_extensions = expected, bounds, has_extensions
        size = max(expected.units.size, existing.size)
        self.want, self.have = _padded(expected.units, size).copy(), _padded(existing, size)
        for queue_offsets, units in expected.doubled:
            # A queue that was deleted and created again has the later one of two messages.
            at = queue_offsets - expected.start
            is_later = units.view((np.void, UNIT_SIZE)) == self.have[at].view((np.void, UNIT_SIZE))
            self.want[at[is_later]] = units[is_later]
        self.has_message = self.want["store_size"] != 0
        self.is_equal: Which = self.want.view((np.void, UNIT_SIZE)) == self.have.view((np.void, UNIT_SIZE))

    @property
    def is_sound(self) -> bool:
        """Whether every unit is equal: nothing is before the first message, or after the last one."""
        return bool(self.is_equal.all()) and (self.expected.queue_min or 0) <= self.expected.start

    def findings(self) -> Iterator[pa.RecordBatch]:
        expected, have = self.expected, self.have
        is_zero: Which = have.view((np.void, UNIT_SIZE)) == np.zeros(1, UNIT_DTYPE).view((np.void, UNIT_SIZE))
        is_blank = (have["commit_log_offset"] == 0) & (have["store_size"] == PRE_BLANK_SIZE) & (have["tags_code"] == 0)
        yield from self._wrong_units(self.has_message & ~self.is_equal, is_zero, is_blank)
        numbers = expected.start + np.arange(have.size)
        live = is_live(have)
        is_expired = live & (have["commit_log_offset"] < self.bounds.start)
        rest = ~self.has_message & ~is_zero
        is_after = have["commit_log_offset"] > self.bounds.end - have["store_size"].astype(np.int64)
        if expected.queue_min is None or expected.queue_max is None:
            before: Which = np.zeros(have.size, np.bool_)
            after = rest & ~is_blank & ~is_expired
            inner = before
        else:
            before = ~self.has_message & (numbers < expected.queue_min) & ~is_blank & ~is_expired
            if not have.size or (is_zero.all() and expected.units.size == 0):
                before[:] = False
            after = rest & (numbers >= expected.queue_max)
            inner = ~self.has_message & (numbers >= expected.queue_min) & (numbers < expected.queue_max)
        lost = live & self.bounds.is_lost(have["commit_log_offset"].astype(np.int64))
        inner = inner | ((before | after) & lost)
        before, after = before & ~lost, after & ~lost
        left_out = inner & self._is_left_out(have)
        yield from self._batch("QUEUE_LEFT_OUT", left_out, "any unit", self._unit_text(have, left_out))
        inner = inner & ~left_out
        yield from self._batch("QUEUE_NO_MESSAGE", inner, "a message in the log", self._unit_text(have, inner))
        yield from self._batch("QUEUE_PRE_BLANK", before, "a pre-blank unit", self._unit_text(have, before))
        stale = after & live & is_after
        yield from self._batch("QUEUE_UNIT_STALE", stale, "zeros", self._unit_text(have, stale))
        extra = after & ~stale
        yield from self._batch("QUEUE_UNIT_EXTRA", extra, "zeros", self._unit_text(have, extra))
        yield from self._expired_order(is_expired & ~self.has_message)

    def _is_left_out(self, have: Units) -> Which:
        """Which units say that a message was left out of a restored log (`indexer.queue_files.missing_offset`)."""
        is_marked = (have["store_size"] == PRE_BLANK_SIZE) & (have["tags_code"] == 0)
        left_out: Which = is_marked & (have["commit_log_offset"] > self.bounds.start)
        return left_out

    def lost_findings(self) -> Iterator[pa.RecordBatch]:
        """What is wrong with a file whose messages are all lost: only its units can be held against each other."""
        have = self.have
        offsets, ends = have["commit_log_offset"].astype(np.int64), _ends(have)
        unit = is_live(have)
        leads_there = unit & self.bounds.is_lost(offsets) & self.bounds.is_lost(ends - 1)
        before = np.maximum.accumulate(np.concatenate(([0], np.where(leads_there, ends, 0)[:-1])))
        in_order = leads_there & (offsets >= before)
        for code, which, expected in (
            ("QUEUE_NO_MESSAGE", in_order, "a message in the log"),
            ("QUEUE_UNIT_MISPLACED", leads_there & ~in_order, "an offset after that of the unit before"),
            ("QUEUE_UNIT_WRONG", unit & ~leads_there, "a unit of a message in a lost part of the log"),
            ("QUEUE_UNIT_MISSING", ~unit, "a unit of a message in a lost part of the log"),
        ):
            yield from self._batch(code, which, expected, self._unit_text(have, which))

    def _wrong_units(self, wrong: Which, is_zero: Which, is_blank: Which) -> Iterator[pa.RecordBatch]:
        expected, want, have = self.expected, self.want, self.have
        written = np.flatnonzero(~is_zero)
        end = int(written[-1]) + 1 if written.size else 0
        lag = wrong & is_zero
        lag[:end] = False
        if expected.start + expected.capacity < expected.stop:
            lag[:] = False  # a later file has units
        if lag.any():
            yield self._lag(np.flatnonzero(lag))
        missing = wrong & (is_zero | is_blank) & ~lag
        yield from self._batch(
            "QUEUE_UNIT_MISSING", missing, self._unit_text(want, missing), self._unit_text(have, missing)
        )
        wrong = wrong & ~missing & ~lag
        other_tags = wrong & (want["commit_log_offset"] == have["commit_log_offset"])
        other_tags &= want["store_size"] == have["store_size"]
        if self.has_extensions:
            astray = wrong & other_tags & (have["tags_code"] <= MAX_ADDRESS)
            yield from self._batch(
                "QUEUE_EXT_MISSING", astray, self._unit_text(want, astray), self._unit_text(have, astray)
            )
            wrong = wrong & ~astray
        if expected.topic == SCHEDULE_TOPIC:
            due = wrong & other_tags
            yield from self._batch("QUEUE_DUE_TIME", due, self._unit_text(want, due), self._unit_text(have, due))
            wrong = wrong & ~due
        misplaced = wrong & self._is_of_another_offset(wrong)
        for code, which in (("QUEUE_UNIT_MISPLACED", misplaced), ("QUEUE_UNIT_WRONG", wrong & ~misplaced)):
            yield from self._batch(code, which, self._unit_text(want, which), self._unit_text(have, which))

    def _is_of_another_offset(self, wrong: Which) -> Which:
        """Which found units are, among `wrong`, the units of another queue offset of this file."""
        of_messages = self.want[self.has_message]
        offsets = of_messages["commit_log_offset"].astype(np.int64)
        order = np.argsort(offsets, kind="stable")
        if not order.size:
            return np.zeros(wrong.size, np.bool_)
        at = np.searchsorted(offsets[order], self.have["commit_log_offset"].astype(np.int64))
        at = order[np.minimum(at, order.size - 1)]
        same: Which = of_messages[at].view((np.void, UNIT_SIZE)) == self.have.view((np.void, UNIT_SIZE))
        return same

    def _lag(self, lacking: Numbers) -> pa.RecordBatch:
        expected, first = self.expected, int(lacking[0])
        is_whole = expected.stop == 0
        # Other units can be those of another queue, or damaged.
        is_there = self.has_message & (self.want["commit_log_offset"] == self.have["commit_log_offset"])
        is_there &= self.want["store_size"] == self.have["store_size"]
        newest = max(int(self.have["commit_log_offset"][is_there].max(initial=-1)), expected.newest_unit)
        if int(self.want["commit_log_offset"][first]) < newest or (
            is_whole and not expected.is_configured and not expected.has_file
        ):
            code = "QUEUE_DELETED"
        elif is_whole:
            code = "QUEUE_MISSING"
        else:
            code = "QUEUE_LAGS_CLEAN" if self.bounds.is_clean else "QUEUE_LAGS"
        return findings(
            code,
            file=expected.path,
            position=first * UNIT_SIZE,
            topic=expected.topic,
            queue_id=expected.queue_id,
            commit_log_offset=int(self.want["commit_log_offset"][first]),
            expected=f"units up to queue offset {expected.start + int(lacking[-1])}",
            found=self._end_text(expected.start + first),
        )

    def _end_text(self, end: int) -> str:
        """The end of a queue that lags."""
        if self.expected.stop:
            return f"units up to queue offset {end - 1}"
        return "a file without units" if self.expected.has_file else "no file"

    def _expired_order(self, is_expired: Which) -> Iterator[pa.RecordBatch]:
        at = np.flatnonzero(is_expired)
        offsets = self.have["commit_log_offset"][at].astype(np.int64)
        back = np.flatnonzero(np.diff(offsets) <= 0) + 1
        which = np.zeros(self.have.size, np.bool_)
        which[at[back]] = True
        yield from self._batch(
            "QUEUE_EXPIRED_ORDER", which, "an offset after that of the unit before", self._unit_text(self.have, which)
        )

    def _batch(self, code: str, which: Which, expected: Any, found: Any) -> Iterator[pa.RecordBatch]:
        count = int(which.sum())
        if not count:
            return
        at = np.flatnonzero(which)
        offsets = np.where(self.has_message, self.want["commit_log_offset"], self.have["commit_log_offset"])
        yield findings(
            code,
            count,
            file=self.expected.path,
            position=at * UNIT_SIZE,
            topic=self.expected.topic,
            queue_id=self.expected.queue_id,
            commit_log_offset=offsets[which].astype(np.int64),
            expected=expected,
            found=found,
        )

    def _unit_text(self, units: Units, which: Which) -> pa.Array | None:
        if not which.any():
            return None
        chosen = units[which]
        numbers = [chosen[name].astype(np.int64) for name in ("commit_log_offset", "store_size", "tags_code")]
        return text("offset ", numbers[0], ", size ", numbers[1], ", tags code ", numbers[2])


def _ends(units: Units) -> Numbers:
    """The commit log offset after the message of each unit; of a unit with an impossible offset, any number."""
    ends: Numbers = units["commit_log_offset"].astype(np.int64) + units["store_size"]
    return ends


def _padded(units: Units, size: int) -> Units:
    if units.size == size:
        return units
    padded = np.zeros(size, UNIT_DTYPE)
    padded[: units.size] = units
    return padded
