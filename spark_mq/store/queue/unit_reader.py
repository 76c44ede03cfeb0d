"""The messages of some units of queues, if units contradict the log, too.

Only the bytes of the records are read, and small gaps between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spark_mq.errors import StoreChangedError
from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.kernels.big_endian import int32s_at, int64s_at
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.frames import new_frames, read_frames_at, scan_records
from spark_mq.format.kernels.gather import read_ranges
from spark_mq.format.record import QUEUE_ID_AT, QUEUE_OFFSET_AT
from spark_mq.io.file_reader import FileReader
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, list_offset_range
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.record_reader import Records, joined_chunks
from spark_mq.store.log.segment_files import CorruptRange, SegmentFile
from spark_mq.store.log.split_reader import read_split
from spark_mq.store.queue.consume_queue import ConsumeQueue, can_have_tags
from spark_mq.store.queue.lookup import QueueCover, UnitsRead
from spark_mq.store.queue.unit_cover import FoundUnits, coalesced

_CHUNK_BYTES = 8 << 20
_MOST_ASTRAY = 64


def chunk_bounds(offsets: Int64s, sizes: Int64s, gap: int) -> list[tuple[int, int]]:
    """Ranges of indexes: each needs about `_CHUNK_BYTES` of memory at most."""
    if not offsets.size:
        return []
    before = np.zeros_like(offsets)
    before[1:] = np.diff(offsets) - sizes[:-1]
    needed = sizes + np.where(before <= gap, np.maximum(before, 0), 0)
    chunks = (np.cumsum(needed) - needed) // _CHUNK_BYTES
    bounds = (np.flatnonzero(np.diff(chunks)) + 1).tolist()
    return list(zip([0, *bounds], [*bounds, offsets.size], strict=True))


def read_chunk(segment: SegmentFile, offsets: Int64s, sizes: Int64s, gap: int) -> Records | None:
    """The records to which units lead, up to the first unit that leads to no record of its size.

    The records; None if the segment ends before them.
    """
    starts, stops = coalesced(offsets, sizes, gap)
    ends = np.cumsum(stops - starts)
    buffer = np.empty(int(ends[-1]), np.uint8)
    if not read_into(buffer, segment, starts - segment.base, stops - segment.base):
        return None
    ranges = np.searchsorted(starts, offsets, side="right") - 1
    positions = offsets + (ends - stops)[ranges]
    frames = new_frames(offsets.size)
    count = read_frames_at(buffer, positions, offsets, sizes, frames)
    return Records(buffer, frames[:count])


def records_of_units(
    records: RecordLookup, offsets: Int64s, sizes: Int64s, gap: int
) -> Iterator[tuple[Records, slice]]:
    """The records of units of any segments, and the indexes of the units; units that lead to no record are left out."""
    for segment in records.segments:
        first, last = np.searchsorted(offsets, (segment.base, segment.base + segment.size)).tolist()
        while first < last and offsets[last - 1] + sizes[last - 1] > segment.base + segment.size:
            last -= 1
        for start, stop in chunk_bounds(offsets[first:last], sizes[first:last], gap):
            reached, astray = first + start, 0
            while reached < first + stop and astray < _MOST_ASTRAY:
                which = slice(reached, first + stop)
                chunk = read_chunk(segment, offsets[which], sizes[which], gap)
                if chunk is None:
                    raise StoreChangedError(f"{segment.location} became shorter since the store was opened: read again")
                if chunk.frames.size:
                    yield chunk, slice(reached, reached + chunk.frames.size)
                reached += chunk.frames.size + 1
                astray += 1


def read_into(buffer: Bytes, segment: SegmentFile, starts: Int64s, stops: Int64s) -> bool:
    """Read ranges of a segment one after another into `buffer`, and return True; False if bytes are missing."""
    with FileReader(segment.location) as file:
        places = starts.tolist(), stops.tolist()
        file.announce(*places)
        if file.descriptor is not None and read_ranges(file.descriptor, starts, stops, buffer):
            return True
        memory, end = buffer.data, 0  # over a network; or the reason for which the kernel ended becomes an error
        for start, stop in zip(*places, strict=True):
            begin, end = end, end + stop - start
            if file.read_into(memory[begin:end], start) < end - begin:
                return False
    return True


@dataclass(frozen=True)
class UnitReader:
    """Reads the records of one `UnitsRead`.

    Attributes:
        others: The parts of the log whose messages are read elsewhere, even if a unit of this read should lead to one.
    """

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
            yield from self._read(piece, units.take(slice(first, stop)))

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
        return found if codes is None else found.take(can_have_tags(found.tags_codes, codes))

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
                yield from self._own(chunk, units.take(slice(start, stop)))
            reached = following

    def _scan(self, part: LogRange) -> Iterator[Records | list[CorruptRange]]:
        for split in list_offset_range(self.records.store, part.start, part.stop).splits(
            DEFAULT_SPLIT_SIZE, is_start_known=False
        ):
            yield from joined_chunks(read_split(split))

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
                    stored, one = self.records.read(record.commit_log_offset, record.size), new_frames(1)
                    own = np.frombuffer(stored, np.uint8)
                    scan_records(own, 0, 1, record.commit_log_offset, record.size, one)
                    yield Records(own, one)
        if start < units.count:
            yield replace(chunk, frames=frames[start:])
