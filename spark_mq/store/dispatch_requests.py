"""Messages that a broker dispatches when it starts, and what that does to its queues and its index.

`LackingScan` finds the messages of the whole log that have no unit: none at their queue offset that leads to them.
`lacking_messages` answers the same from the end of the log only, without the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from spark_mq.format.array_types import ArrayRows, Flags, Int32s, Int64s
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, UNIT_SIZE, BatchUnits, Queue, is_written
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.dispatch import QueueTable, batch_units, has_unit, is_final, light_queues
from spark_mq.format.kernels.index_keys import entry_counts
from spark_mq.format.kernels.recovery import RULES_OF_VERSIONS, RecordCheck, find_units, put_units
from spark_mq.format.record import COMMIT_LOG_OFFSET_AT, MAX_RECORD_SIZE, MIN_RECORD_SIZE, QUEUE_OFFSET_AT
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.config.config_file import configured_topics, is_configured
from spark_mq.store.lacking_messages import leads_to_its_message, oldest_units
from spark_mq.store.log.commit_log import Split, list_offset_range
from spark_mq.store.log.log_range import LogRange, range_of
from spark_mq.store.log.record_reader import RecordChunk, joined_chunks
from spark_mq.store.log.recovery_walk import FileCheck, WalkEnd
from spark_mq.store.log.segment_files import SegmentFile
from spark_mq.store.log.split_reader import WHOLE, read_split
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import NO_FILE, QueueFolder, RecoveredQueue, queue_path, unit_blocks, units_after

ANYWHERE, NOWHERE = -(1 << 63), (1 << 63) - 1
"""Offsets before and after all others."""
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


@dataclass(frozen=True)
class DispatchRequests(ArrayRows):
    """Records in the order in which a broker reads them (`DispatchRequest`@5.3.3); one value each for each record.

    After a record, each of its light message queues has values, too.

    Attributes:
        rank: 0 for a record, and 1, 2, ... for its light message queues.
        fails: Whether its dispatch to light message queues fails (`kernels.dispatch.light_queues`).
        commit_log_offset: The commit log offset that the record states, with which a broker dispatches it.
        queue: The number of its queue in `QueueNumbers`.
        is_led_to: Whether a file of its queue has a unit at its queue offset that leads to it.
        message_count: The number of its messages in a batch consume queue; else 1.
        key_count: The number of its index entries, without one for its tags.
        has_tags: Whether there is an entry for its tags, if tags have entries.
    """

    position: Int64s
    commit_log_offset: Int64s
    store_size: Int32s
    queue: Int32s
    queue_offset: Int64s
    message_count: Int64s
    has_unit: Flags
    is_led_to: Flags
    key_count: Int32s
    has_tags: Flags
    rank: Int32s
    fails: Flags

    @property
    def place(self) -> Int64s:
        """A number in the log for each value, no two of which are the same."""
        return self.position + self.rank

    def records(self) -> DispatchRequests:
        """The records alone."""
        return self.take(self.rank == 0) if self.rank.any() else self

    def with_light(self, messages: Int64s, queue: Int32s, queue_offset: Int64s) -> DispatchRequests:
        """The records with light message queues: the numbers of records, ascending, of queues, and queue offsets."""
        light = self.take(messages)
        light = replace(
            light,
            queue=queue,
            queue_offset=queue_offset,
            message_count=np.ones_like(queue_offset),
            key_count=np.zeros_like(light.key_count),
            has_tags=np.zeros_like(light.has_tags),
            rank=(np.arange(1, messages.size + 1) - np.searchsorted(messages, messages)).astype(np.int32),
        )
        both = DispatchRequests.concatenate([self, light])
        return both.take(np.argsort(both.place))


_NO_REQUESTS = DispatchRequests(*(np.empty(0, kind) for kind in "qqiiqq??i?i?"))


class QueueNumbers:
    """Numbers of queues: first those with folders, in their order, then others, in the order in which they are read.

    Attributes:
        names: Topic and queue id of each queue, by number.
    """

    def __init__(
        self,
        folders: Sequence[QueueFolder],
        readers: FileReaders,
        batch_topics: frozenset[str] = frozenset(),
        has_light_queues: bool = False,
    ) -> None:
        """The queues of these folders; `has_light_queues` is whether the broker dispatches to light message queues."""
        self._has_light_queues = has_light_queues
        self.names = [(folder.topic, folder.queue_id) for folder in folders]
        self._batch_topics = batch_topics
        self._batch_units: dict[int, BatchUnits] = {}
        self._folders = folders
        self.readers = readers
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._table = QueueTable()
        self._number_of: list[int] = []

    def requests(self, chunks: Iterable[RecordChunk], since: int = ANYWHERE) -> DispatchRequests:
        """The records as requests; queues that are not known get numbers.

        Args:
            since: The commit log offset that a record must at least state so that its index entries are counted.
        """
        parts = [_NO_REQUESTS]
        for chunk in chunks:
            buffer, frames = chunk.buffer, chunk.frames
            offsets = int64s_at(buffer, frames.position + COMMIT_LOG_OFFSET_AT)
            none = np.zeros(frames.size, np.bool_)
            numbers = self._table.numbers(buffer, frames)
            queue = self._known()[numbers]
            queue_offset, message_count = int64s_at(buffer, frames.position + QUEUE_OFFSET_AT), np.ones_like(offsets)
            in_queues, in_batches = has_unit(frames), self.are_batch[queue]
            if in_batches.any():
                units = batch_units(buffer, frames[in_batches])
                queue_offset[in_batches], message_count[in_batches] = units["queue_offset"], units["message_count"]
                in_queues |= in_batches & is_final(frames)
            is_counted = offsets.max(initial=ANYWHERE) >= since
            key_count, has_tags = entry_counts(buffer, frames) if is_counted else (none.astype(np.int32), none)
            found = DispatchRequests(
                chunk.base + frames.position,
                offsets,
                frames.store_size.copy(),  # the memory of frames is used again for the next chunk
                queue,
                queue_offset,
                message_count,
                in_queues,
                none,
                key_count,
                has_tags,
                np.zeros_like(queue),
                np.zeros_like(none),
            )
            if self._has_light_queues:
                messages, numbers, light_offsets, fails = light_queues(buffer, frames[in_queues], self._table)
                found.fails[in_queues] = fails
                found = found.with_light(np.flatnonzero(in_queues)[messages], self._known()[numbers], light_offsets)
            parts.append(found)
        found = DispatchRequests.concatenate(parts)
        return replace(found, is_led_to=self._are_led_to(found))

    @property
    def are_batch(self) -> Flags:
        """Which queues are batch consume queues, by number."""
        if not self._batch_topics:
            return np.zeros(len(self.names), np.bool_)
        return np.array([topic in self._batch_topics for topic, _ in self.names], np.bool_)

    def _known(self) -> Int32s:
        """The number of each queue of the table; new ones are added."""
        ids = self._table.queue_ids()
        for index in range(len(self._number_of), self._table.count):
            name = decode_utf8(self._table.topic(index)), int(ids[index])
            if name not in self._numbers:
                self._numbers[name] = len(self.names)
                self.names.append(name)
            self._number_of.append(self._numbers[name])
        return np.array(self._number_of, np.int32)

    def _are_led_to(self, read: DispatchRequests) -> Flags:
        lowest, highest = np.full(len(self.names), NOWHERE), np.full(len(self.names), ANYWHERE)
        np.minimum.at(lowest, read.queue, read.queue_offset)
        np.maximum.at(highest, read.queue, read.queue_offset)
        pieces, first, position, data = [0], list[int](), [0], list[bytes]()
        for number, is_batch in enumerate(self.are_batch.tolist()):
            if number < len(self._folders) and lowest[number] <= highest[number] and not is_batch:
                queue = ConsumeQueue(self._folders[number], self.readers)
                for location, start, stop in queue.ranges(int(lowest[number]), int(highest[number]) + 1):
                    data.append(self.readers.read(location, start, stop - start))
                    first.append(-(-int(location.name) // UNIT_SIZE) + start // UNIT_SIZE)
                    position.append(position[-1] + len(data[-1]))
            pieces.append(len(first))
        found = np.empty(read.queue.size, np.bool_)
        find_units(
            np.frombuffer(b"".join(data), np.uint8),
            np.array(pieces, np.int64),
            np.array(first, np.int64),
            np.array(position, np.int64),
            read.queue,
            read.queue_offset,
            read.commit_log_offset,
            read.store_size,
            found,
        )
        for number in np.unique(read.queue[self.are_batch[read.queue]]).tolist():
            messages = np.flatnonzero(read.queue == number)
            found[messages] = self._are_in_batches(number, read.take(messages))
        return found

    def _are_in_batches(self, number: int, read: DispatchRequests) -> Flags:
        """Which messages of a batch consume queue a unit of it leads to."""
        if number not in self._batch_units:
            folders = self._folders[number : number + 1]
            blocks = (
                units[is_written(units)]
                for folder in folders
                for info in folder.files
                for units in unit_blocks(folder, info, info.size, self.readers)
            )
            units = np.concatenate([np.empty(0, BATCH_UNIT_DTYPE), *blocks])
            self._batch_units[number] = units[np.argsort(units["commit_log_offset"], kind="stable")]
        units, names = self._batch_units[number], ("commit_log_offset", "store_size", "queue_offset", "message_count")
        if not units.size:
            return np.zeros(read.queue.size, np.bool_)
        offsets = units["commit_log_offset"].astype(np.int64)
        found = units[np.minimum(np.searchsorted(offsets, read.commit_log_offset), units.size - 1)]
        are_same: Flags = np.all([found[name] == getattr(read, name) for name in names], axis=0)
        return are_same


class CheckedLog:
    """The log as recoveries check it. A file is read once for all rules by which the result is the same."""

    def __init__(self, numbers: QueueNumbers) -> None:
        self._numbers = numbers
        self._known: dict[tuple[SegmentFile, int, int], tuple[int, DispatchRequests, FileCheck]] = {}

    def read(
        self, files: Iterable[SegmentFile], rules: int, position: int, since: int, checks_offsets: bool
    ) -> tuple[DispatchRequests, WalkEnd]:
        """The records that are accepted from a position in the first file on, and the end of the log.

        Args:
            rules: Rules of `kernels.recovery`.
            since: As in `QueueNumbers.requests`.
            checks_offsets: Whether a record that states an offset outside its file ends the log
                (`checkCommitLogOffsetOnRecover`, 5.5.0).
        """
        parts = []
        for file in files:
            requests, end = self._of_file(file, rules, position, since)
            offsets = requests.commit_log_offset
            outside = np.flatnonzero((offsets < file.base) | (offsets > file.base + file.size))
            if checks_offsets and outside.size:
                end = WalkEnd(file, int(requests.position[outside[0]]) - file.base, RecordCheck.BAD_OFFSET)
                requests = requests.take(slice(outside[0]))
            parts.append(requests)
            if end.found != RecordCheck.BLANK:
                break
            position = 0
        return DispatchRequests.concatenate(parts), end

    def known(self, segment: SegmentFile, stop: int) -> DispatchRequests | None:
        """The messages of a segment, if it was checked up to `stop`, and readers find the same ones; else None.

        Readers also ask for a record's own offset and for a size that is possible (`kernels.frames.read_frame`).
        """
        for (file, position, _), (_, requests, check) in self._known.items():
            sizes = requests.store_size
            if (
                (file.location, file.size, position) == (segment.location, segment.size, 0)
                and check.reaches(stop)
                and np.array_equal(requests.records().commit_log_offset, requests.records().position)
                and sizes.min(initial=MIN_RECORD_SIZE) >= MIN_RECORD_SIZE
                and sizes.max(initial=0) <= MAX_RECORD_SIZE
            ):
                return requests
        return None

    def _of_file(self, file: SegmentFile, rules: int, position: int, since: int) -> tuple[DispatchRequests, WalkEnd]:
        for tried in (rules | RULES_OF_VERSIONS, rules):
            key = file, position, tried
            if key not in self._known or self._known[key][0] > since:
                check = FileCheck(file, tried, position)
                self._known[key] = since, self._numbers.requests(check.read(), since), check
            _, requests, check = self._known[key]
            if check.holds_for(rules):
                break
        return requests, check.end


class StartingQueues:
    """The queues of a broker that starts: those that have folders, and those that it creates.

    Attributes:
        on_disk: The queues with folders as they are before anything is dispatched, by number.
        end: The byte of each queue after its last unit; -1 if it has no file.
        max_physic_offset: The commit log offset after the last message of each queue; that of the last record of a
            batch consume queue. -1 if that is not known.
        counted_again: By number: the queue offsets of the first unit, and after the last one, that `truncate` added.
    """

    def __init__(self, recovered: Iterable[RecoveredQueue], numbers: QueueNumbers, file_size: int) -> None:
        self.on_disk = list(recovered)
        self.end = np.array([queue.end for queue in self.on_disk], np.int64)
        self.max_physic_offset = np.array([queue.max_physic_offset for queue in self.on_disk], np.int64)
        self.names = numbers.names
        self._numbers = numbers
        self._next_offset = np.array([queue.next_offset for queue in self.on_disk], np.int64)
        self._exists = np.ones(len(self.on_disk), np.bool_)
        self._file_size = file_size
        self.counted_again: dict[int, tuple[int, int]] = {}

    @property
    def highest(self) -> int:
        """The largest commit log offset after a message that a queue has; -1 without queues."""
        return int(self.max_physic_offset.max(initial=-1))

    def put(self, requests: DispatchRequests, is_dispatched: Flags) -> Int32s:
        """Dispatch messages to their queues; returns what happened to each, as `PutResult` numbers."""
        added = len(self.names) - self.end.size
        self.end = np.concatenate((self.end, np.full(added, NO_FILE, np.int64)))
        self.max_physic_offset = np.concatenate((self.max_physic_offset, np.full(added, -1, np.int64)))
        self._next_offset = np.concatenate((self._next_offset, np.zeros(added, np.int64)))
        self._exists = np.concatenate((self._exists, np.zeros(added, np.bool_)))
        results = np.empty(requests.queue.size, np.int32)
        put_units(
            requests.queue,
            requests.queue_offset,
            requests.message_count,
            requests.commit_log_offset,
            requests.store_size,
            is_dispatched & requests.has_unit,
            self._file_size,
            self._numbers.are_batch,
            self._exists,
            self.end,
            self._next_offset,
            self.max_physic_offset,
            results,
        )
        return results

    def truncate(
        self, log_end: int, truncated: Callable[[RecoveredQueue, int], RecoveredQueue]
    ) -> dict[int, RecoveredQueue]:
        """Cut off the units of messages from commit log offset `log_end` on; returns the queues that change, by number.

        Units that were put before are after the ones that are cut off, and go with them. If they fill a gap, the valid
        units after it count again: `truncateDirtyLogicFiles` reads the last file from its start.
        """
        changed = {}
        for number, queue in enumerate(self.on_disk):
            if queue.end == NO_FILE:
                continue
            after = truncated(queue, log_end)
            has_new_units = self.end[number] > queue.end
            if after.end < queue.end or (not has_new_units and (after.end > queue.end or after.deleted)):
                changed[number] = self.on_disk[number] = after
            if after.end < queue.end or not has_new_units:
                self.end[number], self.max_physic_offset[number] = after.end, after.max_physic_offset
                self._next_offset[number] = after.next_offset
            elif not queue.folder.is_batch and int(queue.files[-1].base_name) <= (end := int(self.end[number])) < (
                int(queue.files[-1].base_name) + self._file_size
            ):
                count, max_physic_offset = units_after(queue, end, log_end, self._numbers.readers)
                if count:
                    self.end[number], self.max_physic_offset[number] = end + count * UNIT_SIZE, max_physic_offset
                    self._next_offset[number] += count
                    self.counted_again[number] = end // UNIT_SIZE, end // UNIT_SIZE + count
        without_file = self._exists & (self.end == NO_FILE)
        are_batch = self._numbers.are_batch[: without_file.size]
        self.max_physic_offset[without_file] = log_end - are_batch[without_file]
        return changed

    def empty_last_files(self) -> Iterator[str]:
        """The last file of each queue that ends at its first byte, unless that is the first byte of the queue."""
        for queue, end in zip(self.on_disk, self.end.tolist(), strict=False):
            folder, name = queue.folder, queue.files[-1].base_name if queue.files else ""
            if end > 0 and name and int(name) == end and not folder.is_batch:
                yield queue_path(folder.topic, folder.queue_id, name, folder.tree)

    def max_offsets(self) -> dict[tuple[str, int], int]:
        """The queue offset after the last unit of each queue that has files."""
        ends = zip(self.names, self.end.tolist(), self._next_offset.tolist(), strict=False)
        return {name: next_offset for name, end, next_offset in ends if end != NO_FILE}

    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The queue offsets of the first unit, and after the last one, of each queue before anything is added."""
        return tuple((queue.folder.first_offset, queue.next_offset) for queue in self.on_disk)

    def are_there(self, requests: DispatchRequests) -> Flags:
        """Which messages have a unit at their queue offset that is not one of those that were put."""
        chosen, are_there = requests.is_led_to & requests.has_unit, np.zeros(requests.queue.size, np.bool_)
        for bounds in (dict(enumerate(self.bounds())), self.counted_again):
            first, stop = np.zeros((2, len(self.names)), np.int64)
            for number, part in bounds.items():
                first[number], stop[number] = part
            offset, queue = requests.queue_offset, requests.queue
            are_there |= chosen & (first[queue] <= offset) & (offset < stop[queue])
        return are_there
