"""Whole queue files out of staged runs of units.

A unit's place is its queue offset; of two messages with one queue offset the first in the log has it
(`ConsumeQueue.putMessagePositionInfo`@5.3.3 ignores a unit before the queue's end). Where the broker would close up
over a missing queue offset, and shift every later message, the place stays pre-blank here, and is reported:
consumers' offsets keep their meaning.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from spark_mq.build.progress import mark_done
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, pre_blank, queue_file_name
from spark_mq.store.filesystem import Location
from spark_mq.store.publish import publish

WRITTEN_SCHEMA = (
    "topic STRING, queue_id INT, file_number BIGINT, bytes BIGINT, units BIGINT, doubled BIGINT, first_doubled BIGINT"
)
"""One row for each file: units written, units whose place was taken, and the commit log offset of the first run that
held one of those."""


@dataclass(frozen=True)
class QueueWriter:
    """Writes the files whose runs a task was given. `folder` is the `consumequeue` folder to write below."""

    folder: str
    file_size: int
    done: Location

    def __call__(self, batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """For `mapInPandas`: rows sorted by file and then by commit log offset."""
        runs = (run for batch in batches for run in batch.itertuples(index=False))
        has_written = False
        for (topic, queue_id, file_number), group in groupby(runs, lambda r: (r.topic, r.queue_id, r.file_number)):
            file = _QueueFile(int(file_number), self.file_size // UNIT_SIZE)
            for run in group:
                file.put(run)
            location = (
                Location.resolve(self.folder) / topic / str(queue_id) / queue_file_name(file_number, self.file_size)
            )
            publish(location, file.content(), self.file_size, file.last_store_timestamp)
            yield pd.DataFrame(
                {
                    "topic": [topic],
                    "queue_id": [queue_id],
                    "file_number": [file_number],
                    "bytes": [self.file_size],
                    "units": [file.units],
                    "doubled": [file.doubled],
                    "first_doubled": [file.first_doubled],
                }
            )
            has_written = True
        if has_written:
            mark_done(self.done, uuid.uuid4().hex)


class _QueueFile:
    """One file in memory: `capacity` units."""

    def __init__(self, file_number: int, capacity: int) -> None:
        self.doubled = 0
        self.first_doubled = -1
        self.last_store_timestamp = 0
        self._start = file_number * capacity
        self._units = pre_blank(capacity)
        self._taken = np.zeros(capacity, np.bool_)
        self._last_place = -1
        self._queue_max = 0

    def put(self, run: Any) -> None:
        """Place a staged run; runs come in the order of the log."""
        units = np.frombuffer(run.units, UNIT_DTYPE)
        first = int(run.first_queue_offset) - self._start
        stop = first + units.size
        free = ~self._taken[first:stop]
        if not free.all():
            self.doubled += int(units.size - free.sum())
            self.first_doubled = int(run.commit_log_offset) if self.first_doubled < 0 else self.first_doubled
        self._units[first:stop][free] = units[free]
        self._taken[first:stop] = True
        if stop > self._last_place:
            self._last_place, self.last_store_timestamp = stop, int(run.last_store_timestamp)
        self._queue_max = int(run.queue_max)

    @property
    def units(self) -> int:
        """Units placed."""
        return int(self._taken.sum())

    def content(self) -> memoryview:
        """The file up to the queue's last unit; zeros follow. Places that no message has are pre-blank."""
        return self._units[: self._queue_max - self._start].view(np.uint8).data
