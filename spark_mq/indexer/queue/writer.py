"""Whole queue files out of staged runs of units.

A unit's place is its queue offset; of two messages with one queue offset the first in the log has it
(`ConsumeQueue.putMessagePositionInfo`@5.3.3 ignores a unit before the queue's end). Where the broker would close up
over a missing queue offset, and shift every later message, the place stays pre-blank here, and is reported:
consumers' offsets keep their meaning.

Of a file that is continued, units of messages before the log's start stay. All others must be what the log says; where
they are not, that is reported, and what the log says counts. A file that is already what it should be is left alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
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
"""One row for each file: bytes written; units that the log has for it; the first ranges of queue offsets between the
queue's first and last message that have no message; units whose place was taken, and the queue offset of the first of
those; units of the file that was continued that the log contradicts, and the
commit log offset of the first of them; NEW; STAGED, a killed job wrote it; UNTOUCHED, or
COMPLETED: the file that was continued was as it should be, or not."""

MAX_MISSING_RANGES = 32
"""Ranges without a message that are named for a file; a log can be made to have any number of them."""

NEW = "NEW"
STAGED = "STAGED"
UNTOUCHED = "UNTOUCHED"
COMPLETED = "COMPLETED"


@dataclass(frozen=True)
class QueueWriter:
    """Writes the files whose runs a task was given, below the folder `growing`.

    `continued`: the `consumequeue` folder whose files are continued, None for none. `log_start`: the commit log offset
    with which the log begins. `is_resumed`: files can be there already.
    """

    growing: str
    continued: str | None
    file_size: int
    log_start: int
    is_resumed: bool
    done: Location

    def __call__(self, batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """For `mapInPandas`: rows sorted by file and then by commit log offset."""
        runs = (run for batch in batches for run in batch.itertuples(index=False))
        has_written = False
        for (topic, queue_id, file_number), group in groupby(runs, lambda r: (r.topic, r.queue_id, r.file_number)):
            file = _QueueFile(int(file_number), self.file_size // UNIT_SIZE)
            for run in group:
                file.put(run)
            path = (topic, str(queue_id), queue_file_name(file_number, self.file_size))
            state = self._finish(file, path)
            yield pd.DataFrame(
                {
                    "topic": [topic],
                    "queue_id": [queue_id],
                    "file_number": [file_number],
                    "bytes": [0 if state == UNTOUCHED else self.file_size],
                    "units": [file.units],
                    "missing_starts": [file.missing[0]],
                    "missing_stops": [file.missing[1]],
                    "doubled": [file.doubled],
                    "first_doubled": [file.first_doubled],
                    "contradicted": [file.contradicted],
                    "first_contradicted": [file.first_contradicted],
                    "state": [state],
                }
            )
            has_written = True
        if has_written:
            mark_done(self.done, uuid.uuid4().hex)

    def _finish(self, file: _QueueFile, path: tuple[str, str, str]) -> str:
        """Write a file where it is not yet as it should be; returns its state."""
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
        """The bytes of a file that is there; None for one of another size, too."""
        location = _below(folder, path)
        return location.read_bytes() if location.info().size == self.file_size else None


def _below(folder: str, path: tuple[str, str, str]) -> Location:
    topic, queue_id, name = path
    return Location.resolve(folder) / topic / queue_id / name


class _QueueFile:
    """One file in memory: `capacity` units."""

    def __init__(self, file_number: int, capacity: int) -> None:
        self.doubled = 0
        self.first_doubled = -1
        self.contradicted = 0
        self.first_contradicted = -1
        self.last_store_timestamp = 0
        self._start = file_number * capacity
        self._units = pre_blank(capacity)
        self._taken = np.zeros(capacity, np.bool_)
        self._last_place = -1
        self._queue_min = 0
        self._queue_max = 0
        self._existing_end = 0

    def put(self, run: Any) -> None:
        """Place a staged run; runs come in the order of the log."""
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
        if stop > self._last_place:
            self._last_place, self.last_store_timestamp = stop, int(run.last_store_timestamp)
        self._queue_min, self._queue_max = int(run.queue_min), int(run.queue_max)
        self._existing_end = int(run.existing_end)

    def keep(self, existing: Units, log_start: int) -> None:
        """Keep units of a file that is continued: those before the log, up to where its queue ends."""
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
        """Units that the log has."""
        return int(self._taken.sum())

    @property
    def missing(self) -> tuple[list[int], list[int]]:
        """First and next queue offset of each range without a message: no more than `MAX_MISSING_RANGES`."""
        first = max(self._queue_min - self._start, 0)
        taken = self._taken[first : self._queue_max - self._start]
        edges = np.flatnonzero(np.diff(np.concatenate(([True], taken, [True]))))
        edges = edges[: 2 * MAX_MISSING_RANGES] + self._start + first
        return edges[::2].tolist(), edges[1::2].tolist()

    def content(self) -> memoryview:
        """The file up to the queue's last unit; zeros follow. Places that no message has are pre-blank."""
        return self._units[: self._queue_max - self._start].view(np.uint8).data

    def is_in(self, data: bytes) -> bool:
        """Whether a whole file has this content."""
        content = self.content()
        return data[: content.nbytes] == content and not any(memoryview(data)[content.nbytes :])
