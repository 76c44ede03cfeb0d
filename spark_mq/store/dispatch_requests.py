"""Messages that a broker dispatches when it starts, and what that does to its queues and its index.

`LackingScan` finds the messages of the whole log that have no unit: none at their queue offset that leads to them.
`lacking_messages` answers the same from the end of the log only, without the kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import ArrayRows, Flags, Int32s, Int64s
from spark_mq.format.consume_queue import UNIT_SIZE, Queue
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.dispatch import QueueTable, has_unit
from spark_mq.format.kernels.index_keys import index_keys
from spark_mq.format.kernels.recovery import put_units
from spark_mq.format.record import COMMIT_LOG_OFFSET_AT, QUEUE_OFFSET_AT
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.config.config_file import configured_topics, is_configured
from spark_mq.store.lacking_messages import leads_to_its_message
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, Split, list_offset_range
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_reader import RecordChunk, joined_chunks
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.log.split_reader import read_split
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import NO_FILE, RecoveredQueue, truncate_queue

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
        last = queue.unit(end - 1)[0] if leads_to_its_message(self._store, queue, end - 1) else -1
        is_deleted = (queue_offsets >= end) & (offsets < last)
        for index in np.flatnonzero(queue_offsets < end)[:_LOOKED_AT].tolist():
            queue_offset = int(queue_offsets[index])
            is_later = queue.unit(queue_offset)[0] > offsets[index]
            is_deleted[index] = is_later and leads_to_its_message(self._store, queue, queue_offset)
        return WithoutUnit(offsets, is_deleted)


def _range(part: CorruptRange) -> LogRange:
    return LogRange(part.commit_log_offset, part.commit_log_offset + part.length)


@dataclass(frozen=True)
class DispatchRequests(ArrayRows):
    """Records in the order in which a broker reads them (`DispatchRequest`@5.3.3); one value each for each record.

    Attributes:
        commit_log_offset: The commit log offset that the record states, with which a broker dispatches it.
        queue: The number of its queue in `StartingQueues`.
    """

    position: Int64s
    commit_log_offset: Int64s
    store_size: Int32s
    queue: Int32s
    queue_offset: Int64s
    has_unit: Flags
    entry_count: Int32s


_NO_INT32S, _NO_INT64S, _NO_FLAGS = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.bool_)
_NO_REQUESTS = DispatchRequests(_NO_INT64S, _NO_INT64S, _NO_INT32S, _NO_INT32S, _NO_INT64S, _NO_FLAGS, _NO_INT32S)


class StartingQueues:
    """The queues of a broker that starts: those that have folders, and those that it creates.

    Attributes:
        on_disk: The queue as it is before anything is dispatched, by number; None without a folder.
        end: The byte of each queue after its last unit; -1 if it has no file.
        max_physic_offset: The commit log offset after the last message of each queue; -1 if that is not known.
    """

    def __init__(self, recovered: Iterable[RecoveredQueue], file_size: int, has_tags: bool = False) -> None:
        """The queues with folders; `has_tags` is whether tags have index entries."""
        self.on_disk: list[RecoveredQueue | None] = list(recovered)
        self.names = [(queue.folder.topic, queue.folder.queue_id) for queue in self.on_disk if queue is not None]
        self.end = np.array([queue.end for queue in self.on_disk if queue is not None], np.int64)
        self.max_physic_offset = np.array(
            [queue.max_physic_offset for queue in self.on_disk if queue is not None], np.int64
        )
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._table = QueueTable()
        self._number_of: list[int] = []
        self._exists = np.ones(len(self.names), np.bool_)
        self._file_size = file_size
        self._has_tags = has_tags

    @property
    def highest(self) -> int:
        """The largest commit log offset after a message that a queue has; -1 without queues."""
        return int(self.max_physic_offset.max(initial=-1))

    def requests(self, chunks: Iterable[RecordChunk]) -> DispatchRequests:
        """The records as requests; queues that are not known get numbers."""
        parts = [_NO_REQUESTS]
        for chunk in chunks:
            buffer, frames = chunk.buffer, chunk.frames
            parts.append(
                DispatchRequests(
                    chunk.base + frames.position,
                    int64s_at(buffer, frames.position + COMMIT_LOG_OFFSET_AT),
                    frames.store_size.copy(),  # the memory of frames is used again for the next chunk
                    self._table.numbers(buffer, frames),
                    int64s_at(buffer, frames.position + QUEUE_OFFSET_AT),
                    has_unit(frames),
                    index_keys(buffer, frames, self._has_tags).entry_count,
                )
            )
        found = DispatchRequests.concatenate(parts)
        return replace(found, queue=self._known()[found.queue])

    def put(self, requests: DispatchRequests) -> Int32s:
        """Dispatch messages that have a unit; returns what happened to each, as `PutResult` numbers."""
        results = np.empty(requests.queue.size, np.int32)
        self._exists[requests.queue] = True
        put_units(
            requests.queue,
            requests.queue_offset,
            requests.commit_log_offset,
            requests.store_size,
            self._file_size,
            self.end,
            self.max_physic_offset,
            results,
        )
        return results

    def truncate(self, log_end: int, readers: FileReaders) -> dict[int, RecoveredQueue]:
        """Cut off the units of messages from commit log offset `log_end` on; returns the queues that change, by number.

        Units that were put before are after the ones that are cut off, and go with them.
        """
        changed = {}
        for number, queue in enumerate(self.on_disk):
            if queue is None or queue.end == NO_FILE:
                continue
            after = truncate_queue(queue, log_end, self._file_size, readers)
            has_new_units = self.end[number] > queue.end
            if after.end < queue.end or (after.end > queue.end and not has_new_units):
                changed[number] = self.on_disk[number] = after
            if after.end < queue.end or not has_new_units:
                self.end[number], self.max_physic_offset[number] = after.end, after.max_physic_offset
        without_file = self._exists & (self.end == NO_FILE)
        self.max_physic_offset[without_file] = log_end
        return changed

    def max_offsets(self) -> dict[tuple[str, int], int]:
        """The queue offset after the last unit of each queue that has files."""
        ends = zip(self.names, self.end.tolist(), strict=True)
        return {name: end // UNIT_SIZE for name, end in ends if end != NO_FILE}

    def are_there(self, requests: DispatchRequests, readers: FileReaders) -> npt.NDArray[np.bool_]:
        """Which messages have a unit at their queue offset before anything is dispatched."""
        found = np.zeros(requests.queue.size, np.bool_)
        order = np.argsort(requests.queue, kind="stable")
        starts = np.flatnonzero(np.diff(requests.queue[order], prepend=-1))
        for indices in np.split(order, starts)[1:]:
            queue = self.on_disk[int(requests.queue[indices[0]])]
            if queue is None or not queue.files:
                continue
            first, stop = int(queue.folder.files[0].base_name) // UNIT_SIZE, queue.end // UNIT_SIZE
            wanted = requests.queue_offset[indices]
            inside = indices[(wanted >= first) & (wanted < stop)]
            if inside.size:
                offsets = requests.queue_offset[inside]
                lowest = int(offsets.min())
                units = ConsumeQueue(queue.folder, readers).units(lowest, int(offsets.max()) + 1)[offsets - lowest]
                found[inside] = (units["commit_log_offset"] == requests.commit_log_offset[inside]) & (
                    units["store_size"] == requests.store_size[inside]
                )
        return found & requests.has_unit

    def _known(self) -> Int32s:
        """The number of each queue of the table; new ones are added."""
        ids = self._table.queue_ids()
        for index in range(len(self._number_of), self._table.count):
            name = decode_utf8(self._table.topic(index)), int(ids[index])
            if name not in self._numbers:
                self._numbers[name] = len(self.names)
                self.names.append(name)
                self.on_disk.append(None)
            self._number_of.append(self._numbers[name])
        added = len(self.names) - self.end.size
        self.end = np.concatenate((self.end, np.full(added, NO_FILE, np.int64)))
        self.max_physic_offset = np.concatenate((self.max_physic_offset, np.full(added, -1, np.int64)))
        self._exists = np.concatenate((self._exists, np.zeros(added, np.bool_)))
        return np.array(self._number_of, np.int32)


def doubled_entries(requests: DispatchRequests, index_end: int, entries: int) -> tuple[int, int | None]:
    """The number of index entries that are put a second time, and the commit log offset of the first such message.

    An index ignores messages before the last one that it has, and puts the keys of that one again
    (`IndexService.buildIndex`@5.3.3, as in 4.9).

    Args:
        index_end: The commit log offset of the last message in the index; 0 without one.
    """
    offsets, counts = requests.commit_log_offset, requests.entry_count
    has_keys = counts > 0
    ends = np.maximum.accumulate(np.where(has_keys, offsets, index_end))
    before = np.maximum(np.concatenate((np.array([index_end], np.int64), ends[:-1])), index_end)
    again = np.flatnonzero(has_keys & (offsets == before))
    doubled, first = 0, None
    for index in again.tolist():
        is_first = offsets[index] == index_end and not (has_keys[:index] & (offsets[:index] == index_end)).any()
        number = min(int(counts[index]), entries) if is_first else int(counts[index])
        if number:
            first = int(offsets[index]) if first is None else first
            doubled += number
    return doubled, first
