"""Whole queue files out of staged runs of units.

The position of a unit is its queue offset. If two messages have the same queue offset, the first in the log gets it
(`ConsumeQueue.putMessagePositionInfo`@5.3.3 ignores a unit before the queue's end). If a queue offset has no message,
a broker would close the gap and shift every later message. Here the position stays pre-blank and is reported, so that
consumers' offsets keep their meaning. `missing_offset` says how a broker can serve such a queue.

In a file that is continued, units of messages before the log's start stay. All other units must agree with the log; the
tags code of a unit can be in `consumequeue_ext`, and then the unit stays as it is. If units do not agree, that is
reported, and the log's units are written. A file that is already correct is not written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import (
    PRE_BLANK_SIZE,
    UNIT_DTYPE,
    UNIT_SIZE,
    Units,
    is_live,
    pre_blank,
    queue_file_name,
)
from spark_mq.format.consume_queue_ext import ExtLayout
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.indexer.queue_extensions import ExtSettings
from spark_mq.indexer.queue_runs import Run, by_file
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.queue.consume_queue import ConsumeQueueExt

MAX_MISSING_RANGES = 32
"""The limit of ranges without a message that are named for a file; a hostile log can have any number of them."""

_FILES_AT_ONCE = 4
"""The number of files that a task flushes to the disk at the same time."""

NEW, UNTOUCHED, COMPLETED = "NEW", "UNTOUCHED", "COMPLETED"
"""States of files; a continued file is untouched if it was correct."""
STAGED = "STAGED"
"""A killed job wrote the file."""


@dataclass
class WrittenQueueFile:
    """A queue file that a task has finished: NEW, or what else the constants say; or such a part of a RocksDB database.

    The first ranges of queue offsets without a message are between the queue's first and last one; `first_contradicted`
    is the commit log offset in a unit of a continued file that the log contradicts.

    Of a part of a database, `table` is the file that has it; `first` and `last` are commit log offset and queue offset
    of the first and the last message, and `stop` is the commit log offset after the last one.
    """

    topic: str
    queue_id: int
    file_number: int
    bytes: int = 0
    units: int = 0
    missing_starts: list[int] = field(default_factory=list)
    missing_stops: list[int] = field(default_factory=list)
    doubled: int = 0
    first_doubled: int = -1
    contradicted: int = 0
    first_contradicted: int = -1
    state: str = NEW
    table: str = ""
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (0, 0)
    stop: int = 0


@dataclass(frozen=True)
class QueueWriter:
    """Writes the files of runs; those in the `consumequeue` folder `continued` are continued.

    `missing_offset` is the commit log offset in units between the messages of a queue that have no message. With `ext`,
    addresses of extension units take the place of tags codes.
    """

    growing: Location
    continued: Location | None
    file_size: int
    log_start: int
    is_resumed: bool
    missing_offset: int = 0
    ext: ExtSettings | None = None

    def write(self, runs: Iterable[Run]) -> Iterator[WrittenQueueFile]:
        """Each file, as soon as it is finished; the runs are sorted by file and then by commit log offset."""
        # A disk flushes several files at once in little more time than one.
        with ThreadPoolExecutor(_FILES_AT_ONCE) as publishers:
            finishing: deque[Future[WrittenQueueFile]] = deque()
            for file in files_of(runs, self.file_size // UNIT_SIZE):
                finishing.append(publishers.submit(self._finish, file))
                if len(finishing) == _FILES_AT_ONCE:
                    yield finishing.popleft().result()
            for finished in finishing:
                yield finished.result()

    def _finish(self, file: QueueFile) -> WrittenQueueFile:
        path = f"{file.topic}/{file.queue_id}/{queue_file_name(file.number, self.file_size)}"
        file.mark_missing(self.missing_offset)
        if self.ext is not None and not file.topic.startswith(LIGHT_PREFIX):
            file.set_addresses(self.ext.layout(file.topic))
        existing = None if self.continued is None else self._read(self.continued / path)
        if self.continued is not None and existing is not None:
            units = np.frombuffer(existing, UNIT_DTYPE)
            with closing(FileReaders()) as readers:
                resolved = ConsumeQueueExt((self.continued / path).parent, readers).resolved(units)
            file.keep(units, resolved, self.log_start)
            if file.is_in(existing):
                return file.row(UNTOUCHED, 0)
        written = self._read(self.growing / path) if self.is_resumed else None
        is_staged = written is not None and file.is_in(written)
        if not is_staged:
            publish(self.growing / path, file.content(), self.file_size, file.last_store_timestamp)
        return file.row(COMPLETED if existing is not None else STAGED if is_staged else NEW, self.file_size)

    def _read(self, file: Location) -> bytes | None:
        """The bytes of an existing file; None if it is missing or has another size."""
        return file.read_bytes() if file.info().size == self.file_size else None


def files_of(runs: Iterable[Run], capacity: int, kind: np.dtype[Any] = UNIT_DTYPE) -> Iterator[QueueFile]:
    """The files of runs with units of this kind; they are sorted by file and then by commit log offset."""
    for first, of_file in by_file(runs):
        file = QueueFile(first, capacity, kind)
        for run in of_file:
            file.put(run)
        yield file


class QueueFile:
    """One file in memory.

    A file has room for `capacity` units. Only those up to the queue's last unit are in memory, unless the file may
    exist: a queue of few messages has a file of the same size as any other.
    """

    def __init__(self, run: Run, capacity: int, kind: np.dtype[Any] = UNIT_DTYPE) -> None:
        self.topic, self.queue_id, self.number = run.topic, run.queue_id, run.file_number
        self._written = WrittenQueueFile(self.topic, self.queue_id, self.number)
        self.last_store_timestamp = 0
        self.start = self.number * capacity
        self._queue_min, self._queue_max = run.queue_min, run.queue_max
        self._existing_end = run.existing_end
        size = capacity if self._existing_end else min(self._queue_max - self.start, capacity)
        self._units = pre_blank(size) if kind == UNIT_DTYPE else np.zeros(size, kind)
        self._taken = np.zeros(size, np.bool_)
        self._last_stop = -1

    def put(self, run: Run) -> None:
        """Put a staged run at its position; runs come in the order of the log."""
        units = np.frombuffer(run.units, self._units.dtype)
        first = run.first_queue_offset - self.start
        stop = first + units.size
        free = ~self._taken[first:stop]
        if not free.all():
            if not self._written.doubled:
                self._written.first_doubled = run.first_queue_offset + int(np.flatnonzero(~free)[0])
            self._written.doubled += int(units.size - free.sum())
            self._units[first:stop][free] = units[free]
        else:
            self._units[first:stop] = units
        self._taken[first:stop] = True
        if stop > self._last_stop:
            self._last_stop, self.last_store_timestamp = stop, run.last_store_timestamp

    def mark_missing(self, offset: int) -> None:
        """Set the commit log offset of the units between the queue's messages that have no message."""
        first = max(self._queue_min - self.start, 0)
        units = self._units[first : self._queue_max - self.start]
        units["commit_log_offset"][~self._taken[first : self._queue_max - self.start]] = offset

    def set_addresses(self, layout: ExtLayout) -> None:
        """Replace the tags codes by the addresses of extension units, which begin with that of the first message."""
        at = np.flatnonzero(self._taken)
        self._units["tags_code"][at] = layout.addresses(self.start + at - self._queue_min)

    def keep(self, existing: Units, resolved: Units, log_start: int) -> None:
        """Keep the units of a continued file whose messages are before the log, up to the end of its queue.

        Units with addresses of right tags codes are kept, too; `resolved` has the tags codes of all units.
        """
        if not self._existing_end:
            return
        counts = is_live(existing)
        counts[max(self._existing_end - self.start, 0) :] = False
        expired = counts & (existing["commit_log_offset"] < log_start)
        kept = expired & ~self._taken
        # A queue of a restored store has units of messages that were left out.
        is_blank = (existing["store_size"] == PRE_BLANK_SIZE) & ~self._taken
        self._units[kept | is_blank] = existing[kept | is_blank]
        units = self._units.view((np.void, UNIT_SIZE))
        is_same = counts & self._taken & (resolved.view((np.void, UNIT_SIZE)) == units)
        self._units[is_same] = existing[is_same]
        wrong = counts & ~kept & (existing.view((np.void, UNIT_SIZE)) != units)
        self._written.contradicted = int(wrong.sum())
        if self._written.contradicted:
            self._written.first_contradicted = int(existing["commit_log_offset"][wrong][0])

    def messages(self) -> tuple[Int64s, Units]:
        """The queue offsets that have a message, ascending, and their units."""
        at = np.flatnonzero(self._taken)
        return self.start + at, self._units[at]

    def row(self, state: str, size: int) -> WrittenQueueFile:
        """What is known of the file, of which `size` bytes were written."""
        first, written = max(self._queue_min - self.start, 0), self._written
        taken = self._taken[first : self._queue_max - self.start]
        edges = np.flatnonzero(np.diff(np.concatenate(([True], taken, [True]))))
        edges = edges[: 2 * MAX_MISSING_RANGES] + self.start + first
        written.missing_starts, written.missing_stops = edges[::2].tolist(), edges[1::2].tolist()
        written.state, written.bytes, written.units = state, size, int(self._taken.sum())
        return written

    def content(self) -> memoryview:
        """The file up to the queue's last unit; zeros follow. Positions without a message are pre-blank."""
        return self._units[: self._queue_max - self.start].view(np.uint8).data

    def is_in(self, data: bytes) -> bool:
        """Whether the whole file `data` has this content."""
        content = self.content()
        rest = np.frombuffer(data, np.uint8)[content.nbytes :]
        return data[: content.nbytes] == content and not rest.any()
