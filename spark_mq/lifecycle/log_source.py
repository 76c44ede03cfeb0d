"""What a table of this package needs of a store: selected messages, and files of `config/`.

A store directory is such a source (`StoreLog`), and so is a store in an archive (`spark_mq.archive.lifecycle`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.selected_messages import SelectedMessages, Selection, batches_of, selections_of
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import lost_end
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import moment_of


class LogSource(Protocol):
    """A log, and what else is known of its store."""

    @property
    def location(self) -> Location:
        """The folder with `config/` and `checkpoint`, as they were before the messages were selected."""

    @property
    def conf(self) -> BrokerConf:
        """The broker's settings."""

    @property
    def broker_versions(self) -> BrokerVersions:
        """The versions of the broker that are possible."""

    @property
    def config_end(self) -> int | None:
        """The commit log offset up to which the files of `location` can speak of messages; None for the whole log."""

    def moment(self, at: int | datetime | None) -> int:
        """The time for which states are told, in milliseconds: `at`, or the newest one of which the source knows."""

    def selections_of(self, *selections: Selection) -> tuple[SelectedMessages, ...]:
        """The messages of several selections, in the order of the log; see `selected_messages.selections_of`."""

    def batches_of(self, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The messages of a selection, batch by batch; see `selected_messages.batches_of`."""

    def lost_end(self, newest_timestamp: int) -> str | None:
        """Why the end of the log can be lost; see `lost_end.lost_end`."""

    def due_times(self, delayed: DelayedPlaces) -> tuple[Int64s, Flags]:
        """When messages of SCHEDULE_TOPIC_XXXX are due, in milliseconds; and of which of them the source shows it."""

    @property
    def timer_location(self) -> Location | None:
        """The folder with the timer log; None if the source lacks timer logs."""


class DelayedPlaces:
    """Where messages of SCHEDULE_TOPIC_XXXX are: an element of each array for each message.

    Attributes:
        queue_id: Queue ids: the delay level minus 1.
        stored: Store times in milliseconds.
    """

    def __init__(self, offset: Int64s, queue_id: Int64s, queue_offset: Int64s, stored: Int64s) -> None:
        self.offset, self.queue_id, self.queue_offset, self.stored = offset, queue_id, queue_offset, stored


class StoreLog:
    """The log of a store directory, and its other files."""

    config_end = None

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.location = store.location
        self.conf = store.broker_conf
        self.broker_versions = store.broker_versions
        self.timer_location: Location | None = store.location

    def moment(self, at: int | datetime | None) -> int:
        """The time `at`; now for None."""
        return moment_of(at)

    def selections_of(self, *selections: Selection) -> tuple[SelectedMessages, ...]:
        """As `LogSource`, by one read of the log."""
        return selections_of(self._store, *selections)

    def batches_of(self, selection: Selection) -> Iterator[pa.RecordBatch]:
        """As `LogSource`, by one read of the log."""
        return batches_of(self._store, selection)

    def lost_end(self, newest_timestamp: int) -> str | None:
        """As `LogSource`, by the file `checkpoint`."""
        return lost_end(self._store.location, newest_timestamp)

    def due_times(self, delayed: DelayedPlaces) -> tuple[Int64s, Flags]:
        """As `LogSource`: the tags code of a message's unit (`CommitLog.checkMessageAndReturnSize`@5.3.3)."""
        due, is_known = np.zeros(delayed.offset.size, np.int64), np.zeros(delayed.offset.size, np.bool_)
        for queue_id in np.unique(delayed.queue_id).tolist():
            queue = self._store.find_queue(SCHEDULE_TOPIC, queue_id)
            if queue is None:
                continue
            waiting = np.flatnonzero(delayed.queue_id == queue_id)
            for file in queue.files:
                place = delayed.queue_offset[waiting] - file.first
                is_here = (place >= 0) & (place < file.count)
                if is_here.any():
                    mine = waiting[is_here]
                    units = queue.units(file.first, file.first + file.count)[place[is_here]]
                    is_same = units["commit_log_offset"].astype(np.int64) == delayed.offset[mine]
                    codes, has_code = queue.tags_codes(units)
                    is_same &= has_code
                    due[mine[is_same]] = codes[is_same]
                    is_known[mine[is_same]] = True
        return due, is_known
