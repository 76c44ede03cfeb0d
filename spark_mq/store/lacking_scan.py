"""The messages of the whole log that have no unit: none at their queue offset that leads to them.

`lacking_messages` answers the same from the end of the log only, without the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from spark_mq.format.array_types import ArrayRows, Flags, Int64s
from spark_mq.format.consume_queue import Queue
from spark_mq.store.config.config_file import configured_topics, is_configured
from spark_mq.store.dispatch_requests import ANYWHERE, NOWHERE, CheckedLog, DispatchRequests, QueueNumbers
from spark_mq.store.lacking_messages import leads_to_its_message, oldest_units
from spark_mq.store.log.commit_log import Split, list_offset_range
from spark_mq.store.log.log_range import LogRange, range_of
from spark_mq.store.log.record_reader import RecordChunk, joined_chunks
from spark_mq.store.log.split_reader import WHOLE, read_split
from spark_mq.store.message_store import MessageStore
from spark_mq.store.starting_queues import StartingQueues

_CHUNKS = 32
"""Chunks of the log whose messages are in memory together."""
_LOOKED_AT = 10_000
"""Messages of a queue whose place is looked at for a later message; the others count as lost."""


@dataclass(frozen=True)
class WithoutUnit(ArrayRows):
    """Messages of one queue that have no unit, in the order of the log.

    Attributes:
        place: As in `DispatchRequests`.
        is_deleted: Which of them are of a topic that was deleted, as far as files show: `config/topics.json` does not
            name it and the queue has no files; or a later message of the queue has the queue offset, or a smaller one
            (as in the codes QUEUE_DELETED and QUEUE_OFFSET_TWICE of `verify`).
    """

    commit_log_offset: Int64s
    place: Int64s
    is_deleted: Flags


class LackingScan:
    """The messages without a unit of one store. What no recovery checked of the log is read once, for all versions."""

    def __init__(self, store: MessageStore, numbers: QueueNumbers, checked: CheckedLog) -> None:
        self._store = store
        self._numbers = numbers
        self._checked = checked
        self.damaged: list[LogRange] = []
        """The parts of the live log that are not records, or that no segment has, in order; known after `before`."""
        self._known: dict[tuple[object, ...], dict[Queue, WithoutUnit]] = {}
        self._counts: dict[int, int] = {}

    def before(self, queues: StartingQueues, stop: int) -> dict[Queue, WithoutUnit]:
        """The messages before commit log offset `stop` without a unit in `queues`, by queue."""
        key = queues.bounds(), tuple(queues.counted_again.items())
        if key not in self._known:
            self._known[key] = self._scan(queues)
        found = {}
        for name, messages in self._known[key].items():
            count = int(np.searchsorted(messages.commit_log_offset, stop))
            if count:
                found[name] = messages.take(slice(count))
        return found

    def count_after(self, start: int) -> int:
        """The number of messages of the live log from commit log offset `start` on that belong into a queue."""
        if start not in self._counts:
            self._counts[start] = sum(int((read.has_unit & (read.rank == 0)).sum()) for read in self._live(start, []))
        return self._counts[start]

    def _scan(self, queues: StartingQueues) -> dict[Queue, WithoutUnit]:
        lacking: dict[Queue, list[tuple[Int64s, Int64s, Int64s]]] = {}
        damaged: list[LogRange] = []
        for read in self._live(max(self._store.get_min_phy_offset(), 0), damaged):
            read = read.take(read.has_unit & ~queues.are_there(read))
            order = np.argsort(read.queue, kind="stable")
            for indices in np.split(order, np.flatnonzero(np.diff(read.queue[order])) + 1):
                if indices.size:
                    name = self._numbers.names[int(read.queue[indices[0]])]
                    found = read.position[indices], read.place[indices], read.queue_offset[indices]
                    lacking.setdefault(name, []).append(found)
        self.damaged = sorted(damaged, key=lambda part: part.start)
        configured = configured_topics(self._store.location)
        without = {
            name: self._without_unit(name, parts, is_configured(name[0], configured)) for name, parts in lacking.items()
        }
        return without | self._of_later_lives(without)

    def _of_later_lives(self, without: Mapping[Queue, WithoutUnit]) -> dict[Queue, WithoutUnit]:
        """The messages of queues without files that were deleted with their topic, as other queues of it show."""
        deleted: dict[str, int] = {}
        for (topic, _), one in without.items():
            if one.is_deleted.any():
                deleted[topic] = max(int(one.commit_log_offset[one.is_deleted].max()), deleted.get(topic, ANYWHERE))
        starts = oldest_units(self._store, deleted.keys())
        return {
            name: replace(messages, is_deleted=messages.commit_log_offset < starts[name[0]])
            for name, messages in without.items()
            if name not in self._store.queues and not messages.is_deleted.any()
            if name[0] in starts and starts[name[0]] >= deleted[name[0]]
        }

    def _live(self, start: int, damaged: list[LogRange]) -> Iterator[DispatchRequests]:
        """The messages of the live log from `start` on; what is not a record is added to `damaged`."""

        def chunks(split: Split) -> Iterator[RecordChunk]:
            for part in joined_chunks(read_split(split)):
                if isinstance(part, list):
                    damaged.extend(map(range_of, part))
                else:
                    yield part

        listed = list_offset_range(self._store.location, start, self._store.get_max_phy_offset())
        damaged += map(range_of, listed.missing)
        known = {segment.base: self._checked.known(segment, listed.end) for segment in listed.segments}
        for split in listed.splits(WHOLE, is_start_known=False):
            base = split.segment.base
            messages = known[base]
            if messages is None:
                rest = chunks(split)
                while (read := self._numbers.requests(islice(rest, _CHUNKS), NOWHERE)).position.size:
                    yield read
            else:
                places = np.searchsorted(messages.position, (base + split.start, base + split.stop))
                yield messages.take(slice(*places))

    def _without_unit(
        self, name: Queue, parts: list[tuple[Int64s, Int64s, Int64s]], is_configured: bool
    ) -> WithoutUnit:
        offsets, places, queue_offsets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        queue = self._store.queues.get(name)
        if queue is None or not queue.files or queue.written_end <= queue.files[0].first:
            return WithoutUnit(offsets, places, np.full(offsets.size, not is_configured))
        end = queue.written_end
        last = queue.unit(end - 1)[0] if leads_to_its_message(self._store, queue, end - 1) else -1
        is_deleted = (queue_offsets >= end) & (offsets < last)
        for index in np.flatnonzero(queue_offsets < end)[:_LOOKED_AT].tolist():
            queue_offset = int(queue_offsets[index])
            is_later = queue.unit(queue_offset)[0] > offsets[index]
            is_deleted[index] = is_later and leads_to_its_message(self._store, queue, queue_offset)
        return WithoutUnit(offsets, places, is_deleted)
