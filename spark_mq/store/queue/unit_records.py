"""The records to which units lead, one after another in memory.

Only the bytes of the records are read, and small gaps between them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spark_mq.errors import StoreChangedError
from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.kernels.file_ranges import read_ranges
from spark_mq.format.kernels.frames import new_frames, read_frames_at
from spark_mq.io.file_reader import FileReader
from spark_mq.store.log.record_lookup import RecordLookup, SegmentFile
from spark_mq.store.log.record_reader import Records
from spark_mq.store.queue.read_cost import coalesced

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

    Args:
        offsets: The commit log offsets of the units, ascending; at least one.
        sizes: Their sizes, in bytes.
        gap: Bytes between two records that are read over.

    Returns:
        The records; None if the segment ends before them.
    """
    starts, stops = coalesced(offsets, sizes, gap)
    ends = np.cumsum(stops - starts)
    buffer = np.empty(int(ends[-1]), np.uint8)
    if not _read_into(buffer, segment, starts - segment.base, stops - segment.base):
        return None
    ranges = np.searchsorted(starts, offsets, side="right") - 1
    positions = offsets + (ends - stops)[ranges]
    frames = new_frames(offsets.size)
    count = read_frames_at(buffer, positions, offsets, sizes, frames)
    return Records(buffer, frames[:count])


def records_of_units(
    records: RecordLookup, offsets: Int64s, sizes: Int64s, gap: int
) -> Iterator[tuple[Records, slice]]:
    """The records of units of any segments, and the indexes of the units; units that lead to no record are left out.

    If very many units of a chunk lead to no record, the rest of them is left out, too.

    Args:
        offsets: The commit log offsets of the units, ascending.
        sizes: Their sizes, in bytes.
        gap: Bytes between two records that are read over.
    """
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


def _read_into(buffer: Bytes, segment: SegmentFile, starts: Int64s, stops: Int64s) -> bool:
    """Read ranges of a segment one after another into `buffer`, and return True; False if bytes are missing."""
    with FileReader(segment.location) as file:
        places = starts.tolist(), stops.tolist()
        file.announce(*places)
        if file.descriptor is not None and read_ranges(file.descriptor, starts, stops, buffer):
            return True
        memory, end = buffer.data, 0  # over a network; or the reason for which the kernel ended becomes an error
        for start, stop in zip(*places, strict=True):
            begin, end = end, end + stop - start
            if not file.read_into(memory[begin:end], start):
                return False
    return True
