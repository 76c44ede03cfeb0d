"""Where table `consumer_progress` gets the ends of queues and single messages of them: a store, or an archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.io.location import Location
from spark_mq.lifecycle.messages.lost_end import lost_end
from spark_mq.store.log.newest_record import newest_record
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue_state import queue_states
from spark_mq.store.retention import moment_of

Queue = tuple[str, int]
"""A topic and a queue id."""

_PRE_BLANK_LIMIT = 1 << 16
"""Units that are read to find a queue's first message after pre-blank units."""


@dataclass(frozen=True)
class QueueMessage:
    """A message of a queue: its offset there, its store time in milliseconds, and its commit log offset."""

    queue_offset: int
    stored: int
    commit_log_offset: int


class QueueSource(Protocol):
    """The queues of a store."""

    @property
    def location(self) -> Location:
        """The folder with `config/`."""

    @property
    def problem(self) -> str | None:
        """Why the ends of queues are not certain; None if they are."""

    @property
    def behind(self) -> str | None:
        """Why any queue can lack messages; None if that is not so."""

    @property
    def problems(self) -> Mapping[Queue, str | None]:
        """Each queue that has messages or is known to have had some, sorted, with the reason if it is damaged."""

    def moment(self, at: int | None) -> int:
        """The time to which lags refer, in milliseconds: `at`, or that of the source."""

    def ends(self, queue: Queue) -> tuple[int, int]:
        """The first queue offset of which there is a message, and the one after the last."""

    def first_message(self, queue: Queue, start: int, stop: int) -> QueueMessage | int:
        """The first message from an offset of a queue on; the queue offset of its unit if that leads to no message."""

    def stored(self, queue: Queue, queue_offset: int) -> int:
        """The store time of a message in milliseconds; -1 if it is not known."""


class StoreQueues:
    """The consume queues of a store directory."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.location = store.location
        states = queue_states(store)
        self.behind = states.behind
        self.problem = _log_problem(store)
        self.problems = {
            queue: None if state.problem is None else f"{state.name}: {state.problem}"
            for queue, state in states.by_queue.items()
        }

    def moment(self, at: int | None) -> int:
        """The time `at`; now for None."""
        return moment_of(at)

    def ends(self, queue: Queue) -> tuple[int, int]:
        """The first offset of a queue, and the one after the last."""
        return self._store.get_min_offset_in_queue(*queue), self._store.get_max_offset_in_queue(*queue)

    def first_message(self, queue: Queue, start: int, stop: int) -> QueueMessage | int:
        """As `QueueSource`; units before a queue's first message are skipped."""
        units = self._store.queues[queue].units(start, min(stop, start + _PRE_BLANK_LIMIT))
        is_message = units["store_size"] != PRE_BLANK_SIZE
        queue_offset = start + int(is_message.argmax())
        proven = self._store.queue_cover(*queue).proven(queue_offset)
        if proven is None:
            return queue_offset
        return QueueMessage(queue_offset, proven.record.store_timestamp, proven.record.commit_log_offset)

    def stored(self, queue: Queue, queue_offset: int) -> int:
        """The store time of a message in milliseconds; -1 if it is not known."""
        found = self._store.queues.get(queue)
        return -1 if found is None else self._store.pickup_store_timestamp(*found.unit(queue_offset)[:2])


def _log_problem(store: MessageStore) -> str | None:
    end = store.get_max_phy_offset()
    if end > store.get_min_phy_offset() and not store.queues:
        return "the store has no consume queues"
    for segment in reversed(store.records.segments):
        newest = newest_record(store.records, segment, end) if segment.base < end else None
        if newest is not None:
            return lost_end(store.location, newest.store_timestamp)
    return lost_end(store.location, 0)
