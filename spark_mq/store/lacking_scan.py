"""All messages of the live log that have no unit, from a read of the log with the kernels: nothing is left out.

A message has a unit if its queue has one at its queue offset that leads to it. `lacking_messages` answers the same from
the end of the log only, without the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.consume_queue import Queue
from spark_mq.format.kernels.dispatch import has_unit
from spark_mq.store.config.topics import configured_topics, is_configured
from spark_mq.store.dispatch_requests import StartingQueues
from spark_mq.store.lacking_messages import leads_to_its_message
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_reader import RecordChunk, joined_chunks
from spark_mq.store.log.split_reader import read_split
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE, Split, list_offset_range
from spark_mq.store.message_store import MessageStore

_LOOKED_AT = 10_000
"""Messages of a queue whose place is looked at for a later message; the others count as lost."""


@dataclass(frozen=True)
class WithoutUnit:
    """Messages of one queue that have no unit, in the order of the log.

    Attributes:
        is_deleted: Which of them are of a topic that was deleted, as far as files show: `config/topics.json` does not
            name it and the queue has no files; or a later message of the queue has the queue offset, or a smaller one
            (as in the codes QUEUE_DELETED and QUEUE_OFFSET_TWICE of `verify`).
    """

    commit_log_offset: Int64s
    is_deleted: Flags


class LackingScan:
    """The messages without a unit of one store. The log is read once, whatever versions of a broker are asked for."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._damaged: list[LogRange] = []
        self._known: dict[tuple[tuple[Queue, int], ...], dict[Queue, WithoutUnit]] = {}
        self._counts: dict[int, int] = {}

    def before(self, queues: StartingQueues, stop: int) -> dict[Queue, WithoutUnit]:
        """The messages before commit log offset `stop` without a unit in `queues`, by queue."""
        ends = tuple(
            (queues.names[number], queue.end) for number, queue in enumerate(queues.on_disk) if queue is not None
        )
        if ends not in self._known:
            self._known[ends] = self._scan(queues)
        found = {}
        for name, messages in self._known[ends].items():
            count = int(np.searchsorted(messages.commit_log_offset, stop))
            if count:
                found[name] = WithoutUnit(messages.commit_log_offset[:count], messages.is_deleted[:count])
        return found

    def count_after(self, start: int) -> int:
        """The number of messages of the live log from commit log offset `start` on that belong into a queue."""
        if start not in self._counts:
            chunks = chain.from_iterable(self._splits(start, []))
            self._counts[start] = sum(int(has_unit(chunk.frames).sum()) for chunk in chunks)
        return self._counts[start]

    def damaged(self) -> list[LogRange]:
        """The parts of the live log that are not records, or that no segment has, in order; known after `before`."""
        return self._damaged

    def _scan(self, queues: StartingQueues) -> dict[Queue, WithoutUnit]:
        lacking: dict[Queue, list[tuple[Int64s, Int64s]]] = {}
        damaged: list[LogRange] = []
        for split in self._splits(max(self._store.get_min_phy_offset(), 0), damaged):
            read = queues.requests(split)
            read = read.take(read.has_unit & ~queues.are_there(read, self._store.files))
            order = np.argsort(read.queue, kind="stable")
            for indices in np.split(order, np.flatnonzero(np.diff(read.queue[order])) + 1):
                if indices.size:
                    name = queues.names[int(read.queue[indices[0]])]
                    lacking.setdefault(name, []).append((read.position[indices], read.queue_offset[indices]))
        self._damaged = sorted(damaged, key=lambda part: part.start)
        configured = configured_topics(self._store.location)
        return {
            name: self._without_unit(queues, name, parts, is_configured(name[0], configured))
            for name, parts in lacking.items()
        }

    def _splits(self, start: int, damaged: list[LogRange]) -> Iterator[Iterator[RecordChunk]]:
        """The records of the live log from `start` on; what is not a record is added to `damaged`."""

        def chunks(split: Split) -> Iterator[RecordChunk]:
            for part in joined_chunks(read_split(split)):
                if isinstance(part, list):
                    damaged.extend(map(_range, part))
                else:
                    yield part

        listed = list_offset_range(self._store.location, start, self._store.get_max_phy_offset())
        damaged += map(_range, listed.missing)
        for split in listed.splits(DEFAULT_SPLIT_SIZE, is_start_known=False):
            yield chunks(split)

    def _without_unit(
        self, queues: StartingQueues, name: Queue, parts: list[tuple[Int64s, Int64s]], is_configured: bool
    ) -> WithoutUnit:
        offsets, queue_offsets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        queue = self._store.queues.get(name)
        if queue is None or not queue.files or queue.written_end <= queue.files[0].first:
            return WithoutUnit(offsets, np.full(offsets.size, not is_configured))
        end = queue.written_end
        is_deleted = (queue_offsets >= end) & (offsets < queue.unit(end - 1)[0])
        for index in np.flatnonzero(queue_offsets < end)[:_LOOKED_AT].tolist():
            queue_offset = int(queue_offsets[index])
            is_later = queue.unit(queue_offset)[0] > offsets[index]
            is_deleted[index] = is_later and leads_to_its_message(self._store, queue, queue_offset)
        return WithoutUnit(offsets, is_deleted)


def _range(part: CorruptRange) -> LogRange:
    return LogRange(part.commit_log_offset, part.commit_log_offset + part.length)
