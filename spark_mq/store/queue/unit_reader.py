"""The messages of some units of queues, if units contradict the log, too; `unit_records` reads the records."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spark_mq.errors import StoreChangedError
from spark_mq.format.kernels.big_endian import int32s_at, int64s_at
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.frames import new_frames, scan_records
from spark_mq.format.record import QUEUE_ID_AT, QUEUE_OFFSET_AT, Record
from spark_mq.io.location import Location
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.joined_chunks import joined_chunks
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.offset_range import list_offset_range
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.record_reader import Records
from spark_mq.store.log.split_reader import read_split
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.queue.tags_codes import can_have_tags
from spark_mq.store.queue.unit_cover import FoundUnits
from spark_mq.store.queue.unit_records import chunk_bounds, read_chunk
from spark_mq.store.queue.units_read import UnitsRead


@dataclass(frozen=True)
class UnitReader:
    """Reads the records of one `UnitsRead`.

    Attributes:
        find_queue: Returns a queue by topic and queue id, or None.
        find_cover: Returns what the units of a queue prove, by topic and queue id.
        gap: Bytes between two records that are read over.
        others: The parts of the log whose messages are read elsewhere, even if a unit of this read should lead to one.
    """

    store: Location
    records: RecordLookup
    find_queue: Callable[[str, int], ConsumeQueue | None]
    find_cover: Callable[[str, int], QueueCover]
    request: UnitsRead
    gap: int
    others: Sequence[LogRange] = ()

    def chunks(self) -> Iterator[Records | list[CorruptRange]]:
        """The records of the units, in the order of the log, unless units contradict it.

        If a unit does not lead to a record of its size, the part of the log around it is scanned: then the chunks have
        all records of that part. If it leads to a message of another queue or queue offset, its own message is searched
        for between its neighbours (`QueueCover.messages`), and takes its place.
        """
        units = self._units()
        if units.count != self.request.count:
            names = ", ".join(f"{queue.topic}/{queue.queue_id}" for queue in self.request.queues)
            raise StoreChangedError(f"units of {names} have changed since the read was planned: read again")
        for piece in self.request.pieces:
            first, stop = np.searchsorted(units.offsets, (piece.start, piece.stop)).tolist()
            yield from self._read(piece, units.at(slice(first, stop)))

    def _units(self) -> FoundUnits:
        parts = []
        for index, part in enumerate(self.request.queues):
            queue = self.find_queue(part.topic, part.queue_id)
            if queue is None:
                raise StoreChangedError(
                    f"queue {part.topic}/{part.queue_id} was removed since the read was planned: read again"
                )
            parts.append(FoundUnits.of_queue(index, part.start, queue.units(part.start, part.stop)))
        found = FoundUnits.joined(parts).in_ranges(self.request.pieces)
        codes = self.request.tags_codes
        return found if codes is None else found.at(can_have_tags(found.tags_codes, codes))

    def _read(self, piece: LogRange, units: FoundUnits) -> Iterator[Records | list[CorruptRange]]:
        segment = self.records.segment_of(piece.start)
        if segment is None:
            raise StoreChangedError(
                f"the segment of commit log offset {piece.start} was removed since the read was planned: read again"
            )
        reached = piece.start
        for start, stop in chunk_bounds(units.offsets, units.sizes, self.gap):
            following = piece.stop if stop == units.count else int(units.offsets[stop])
            chunk = read_chunk(segment, units.offsets[start:stop], units.sizes[start:stop], self.gap)
            if chunk is None or chunk.frames.size < stop - start:
                yield from self._scan(LogRange(reached, following))
            else:
                yield from self._own(chunk, units.at(slice(start, stop)))
            reached = following

    def _scan(self, part: LogRange) -> Iterator[Records | list[CorruptRange]]:
        listing = uuid.uuid4().hex
        for split in list_offset_range(self.store, part.start, part.stop).splits(
            DEFAULT_SPLIT_SIZE, is_start_known=False
        ):
            yield from joined_chunks(read_split(split, listing))

    def _own(self, chunk: Records, units: FoundUnits) -> Iterator[Records]:
        """The records of the chunk that are at the queue offsets of their units, and the messages of other units."""
        buffer, frames = chunk.buffer, chunk.frames
        positions = frames.position
        is_own = int64s_at(buffer, positions + QUEUE_OFFSET_AT) == units.queue_offsets
        queues = self.request.queues
        queue_ids = np.array([queue.queue_id for queue in queues], np.int32)
        is_own &= int32s_at(buffer, positions + QUEUE_ID_AT) == queue_ids[units.queues]
        messages = MessageColumns(buffer, frames)
        for topic in {queue.topic for queue in queues}:
            is_of_topic = np.array([queue.topic == topic for queue in queues])[units.queues]
            is_own &= ~is_of_topic | messages.topic_is(topic.encode("utf-8", "replace"))
        start = 0
        for index in np.flatnonzero(~is_own).tolist():
            if start < index:
                yield replace(chunk, frames=frames[start:index])
            start = index + 1
            queue, queue_offset = queues[int(units.queues[index])], int(units.queue_offsets[index])
            for record in self.find_cover(queue.topic, queue.queue_id).messages(queue_offset, queue_offset + 1):
                if not any(record.commit_log_offset in part for part in self.others):
                    yield self._of_one(record)
        if start < units.count:
            yield replace(chunk, frames=frames[start:])

    def _of_one(self, record: Record) -> Records:
        stored = np.frombuffer(self.records.read(record.commit_log_offset, record.size), np.uint8)
        frames = new_frames(1)
        scan_records(stored, 0, 1, record.commit_log_offset, record.size, frames)
        return Records(stored, frames)
