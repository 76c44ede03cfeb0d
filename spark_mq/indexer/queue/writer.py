"""Whole queue files out of staged runs of units.

The position of a unit is its queue offset. If two messages have the same queue offset, the first in the log gets it
(`ConsumeQueue.putMessagePositionInfo`@5.3.3 ignores a unit before the queue's end). If a queue offset has no message,
a broker would close the gap and shift every later message. Here the position stays pre-blank and is reported, so that
consumers' offsets keep their meaning.

In a file that is continued, units of messages before the log's start stay. All other units must agree with the log. If
they do not, that is reported, and the log's units are written. A file that is already correct is not written.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any

import numpy as np
import pandas as pd

from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Units, is_live, pre_blank, queue_file_name
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.progress import mark_done

WRITTEN_SCHEMA = (
    "topic STRING, queue_id INT, file_number BIGINT, bytes BIGINT, units BIGINT, missing_starts ARRAY<BIGINT>, "
    "missing_stops ARRAY<BIGINT>, doubled BIGINT, first_doubled BIGINT, contradicted BIGINT, "
    "first_contradicted BIGINT, state STRING"
)
"""One row for each file:

- `bytes`: bytes written
- `units`: units that the log has for the file
- `missing_starts`, `missing_stops`: the first ranges of queue offsets, between the queue's first and last message, that
  have no message
- `doubled`, `first_doubled`: units whose position was taken, and the queue offset of the first of them
- `contradicted`, `first_contradicted`: units of a continued file that the log contradicts, and the commit log offset of
  the first of them
- `state`: NEW; STAGED, a killed job wrote the file; UNTOUCHED, a continued file was correct; COMPLETED, it was not
"""

MAX_MISSING_RANGES = 32
"""The limit of ranges without a message that are named for a file; a hostile log can have any number of them."""

_FILES_AT_ONCE = 4
"""The number of files that a task flushes to the disk at the same time."""

_ROWS_PER_BATCH = 64

NEW = "NEW"
STAGED = "STAGED"
UNTOUCHED = "UNTOUCHED"
COMPLETED = "COMPLETED"


@dataclass(frozen=True)
class QueueWriter:
    """The task that writes the files of its runs.

    Attributes:
        growing: The `consumequeue` folder in which files are written.
        continued: The `consumequeue` folder whose files are continued; None if no file is continued.
        file_size: Bytes of a queue file.
        log_start: The commit log offset at which the log starts.
        is_resumed: Whether a killed job can have written some of the files.
        done: The folder in which the task marks itself as done.

    """

    growing: str
    continued: str | None
    file_size: int
    log_start: int
    is_resumed: bool
    done: Location

    def __call__(self, batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """For `mapInPandas`: runs sorted by file and then by commit log offset in, rows of `WRITTEN_SCHEMA` out."""
        rows = self._rows(batches)
        while batch := list(islice(rows, _ROWS_PER_BATCH)):
            yield pd.DataFrame(batch)

    def _rows(self, batches: Iterable[pd.DataFrame]) -> Iterator[dict[str, Any]]:
        """A row for each file, as soon as it is finished."""
        # A disk flushes several files at once in little more time than one.
        with ThreadPoolExecutor(_FILES_AT_ONCE) as publishers:
            finishing: deque[tuple[_QueueFile, Future[str]]] = deque()
            for file in self._files(batches):
                finishing.append((file, publishers.submit(self._finish, file)))
                if len(finishing) == _FILES_AT_ONCE:
                    yield self._row(*finishing.popleft())
            has_written = bool(finishing)
            for file, finished in finishing:
                yield self._row(file, finished)
        if has_written:
            mark_done(self.done, uuid.uuid4().hex)

    def _files(self, batches: Iterable[pd.DataFrame]) -> Iterator[_QueueFile]:
        """The files of the runs, with all their units."""
        runs = (run for batch in batches for run in batch.itertuples(index=False))
        for (topic, queue_id, number), group in groupby(runs, lambda r: (r.topic, r.queue_id, r.file_number)):
            first = next(group)
            file = _QueueFile(topic, int(queue_id), int(number), self.file_size // UNIT_SIZE, first)
            for run in chain([first], group):
                file.put(run)
            yield file

    def _row(self, file: _QueueFile, finished: Future[str]) -> dict[str, Any]:
        state = finished.result()
        return {
            "topic": file.topic,
            "queue_id": file.queue_id,
            "file_number": file.number,
            "bytes": 0 if state == UNTOUCHED else self.file_size,
            "units": file.units,
            "missing_starts": file.missing[0],
            "missing_stops": file.missing[1],
            "doubled": file.doubled,
            "first_doubled": file.first_doubled,
            "contradicted": file.contradicted,
            "first_contradicted": file.first_contradicted,
            "state": state,
        }

    def _finish(self, file: _QueueFile) -> str:
        """Write a file unless it is already correct; returns its state."""
        path = (file.topic, str(file.queue_id), queue_file_name(file.number, self.file_size))
        existing = None if self.continued is None else self._read(self.continued, path)
        if existing is not None:
            file.keep(np.frombuffer(existing, UNIT_DTYPE), self.log_start)
            if file.is_in(existing):
                return UNTOUCHED
        written = self._read(self.growing, path) if self.is_resumed else None
        is_staged = written is not None and file.is_in(written)
        if not is_staged:
            publish(_below(self.growing, path), file.content(), self.file_size, file.last_store_timestamp)
        if existing is not None:
            return COMPLETED
        return STAGED if is_staged else NEW

    def _read(self, folder: str, path: tuple[str, str, str]) -> bytes | None:
        """The bytes of an existing file; None if it is missing or has another size."""
        location = _below(folder, path)
        return location.read_bytes() if location.info().size == self.file_size else None


def _below(folder: str, path: tuple[str, str, str]) -> Location:
    topic, queue_id, name = path
    return Location.resolve(folder) / topic / queue_id / name


class _QueueFile:
    """One file in memory.

    A file has room for `capacity` units. Only those up to the queue's last unit are in memory, unless the file may
    exist: a queue of few messages has a file of the same size as any other.
    """

    def __init__(self, topic: str, queue_id: int, number: int, capacity: int, run: Any) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.number = number
        self.doubled = 0
        self.first_doubled = -1
        self.contradicted = 0
        self.first_contradicted = -1
        self.last_store_timestamp = 0
        self._start = number * capacity
        self._queue_min, self._queue_max = int(run.queue_min), int(run.queue_max)
        self._existing_end = int(run.existing_end)
        size = capacity if self._existing_end else min(self._queue_max - self._start, capacity)
        self._units = pre_blank(size)
        self._taken = np.zeros(size, np.bool_)
        self._last_stop = -1

    def put(self, run: Any) -> None:
        """Put a staged run at its position; runs come in the order of the log."""
        units = np.frombuffer(run.units, UNIT_DTYPE)
        first = int(run.first_queue_offset) - self._start
        stop = first + units.size
        free = ~self._taken[first:stop]
        if not free.all():
            if not self.doubled:
                self.first_doubled = int(run.first_queue_offset) + int(np.flatnonzero(~free)[0])
            self.doubled += int(units.size - free.sum())
        self._units[first:stop][free] = units[free]
        self._taken[first:stop] = True
        if stop > self._last_stop:
            self._last_stop, self.last_store_timestamp = stop, int(run.last_store_timestamp)

    def keep(self, existing: Units, log_start: int) -> None:
        """Keep the units of a continued file whose messages are before the log, up to the end of its queue."""
        if not self._existing_end:
            return
        counts = is_live(existing)
        counts[max(self._existing_end - self._start, 0) :] = False
        expired = counts & (existing["commit_log_offset"] < log_start)
        kept = expired & ~self._taken
        self._units[kept] = existing[kept]
        wrong = counts & ~kept & (existing.view((np.void, UNIT_SIZE)) != self._units.view((np.void, UNIT_SIZE)))
        self.contradicted = int(wrong.sum())
        if self.contradicted:
            self.first_contradicted = int(existing["commit_log_offset"][wrong][0])

    @property
    def units(self) -> int:
        """The number of units that the log has."""
        return int(self._taken.sum())

    @property
    def missing(self) -> tuple[list[int], list[int]]:
        """The starts and stops of the first `MAX_MISSING_RANGES` ranges of queue offsets without a message."""
        first = max(self._queue_min - self._start, 0)
        taken = self._taken[first : self._queue_max - self._start]
        edges = np.flatnonzero(np.diff(np.concatenate(([True], taken, [True]))))
        edges = edges[: 2 * MAX_MISSING_RANGES] + self._start + first
        return edges[::2].tolist(), edges[1::2].tolist()

    def content(self) -> memoryview:
        """The file up to the queue's last unit; zeros follow. Positions without a message are pre-blank."""
        return self._units[: self._queue_max - self._start].view(np.uint8).data

    def is_in(self, data: bytes) -> bool:
        """Whether the whole file `data` has this content."""
        content = self.content()
        rest = np.frombuffer(data, np.uint8)[content.nbytes :]
        return data[: content.nbytes] == content and not rest.any()
