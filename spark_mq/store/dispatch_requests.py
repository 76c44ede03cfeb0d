"""The records that a broker reads when it starts, as requests to dispatch them to its queues and its index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spark_mq.format.array_types import ArrayRows, Flags, Int32s, Int64s
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, UNIT_SIZE, BatchUnits, is_written
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.dispatch import batch_units, has_unit, is_final, light_queues
from spark_mq.format.kernels.index_keys import entry_counts
from spark_mq.format.kernels.queue_table import QueueTable
from spark_mq.format.kernels.recovery import RULES_OF_VERSIONS, RecordCheck, find_units
from spark_mq.format.record import COMMIT_LOG_OFFSET_AT, MAX_RECORD_SIZE, MIN_RECORD_SIZE, QUEUE_OFFSET_AT
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.log.record_reader import RecordChunk
from spark_mq.store.log.recovery_walk import FileCheck, WalkEnd
from spark_mq.store.log.segment_files import SegmentFile
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFolder
from spark_mq.store.queue.recovered_queue import unit_blocks

ANYWHERE, NOWHERE = -(1 << 63), (1 << 63) - 1
"""Offsets before and after all others."""


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
    """Numbers of queues: first those with folders, in their order, then others, in the order in which they are read."""

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
