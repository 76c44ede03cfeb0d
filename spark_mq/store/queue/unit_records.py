"""The records to which units lead, in chunks as `read_split` returns them.

Only the bytes of the records are read, and small gaps between them. They are placed at the same distances from one
another as in the segment, in memory that the operating system provides when it is written to. So a chunk is like any
other chunk of records.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import numpy as np

from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.kernels.frames import new_frames, read_frames_at
from spark_mq.io.file_reader import FileReader
from spark_mq.store.log.record_lookup import RecordLookup, SegmentFile
from spark_mq.store.log.record_reader import RecordChunk
from spark_mq.store.queue.read_cost import coalesced

_CHUNK_BYTES = 8 << 20
_CHUNK_SPAN = 1 << 30
"""Bytes of the log from the first to the last record of a chunk: address space, of which little is used."""
_MOST_ASTRAY = 64


def chunk_bounds(offsets: Int64s, sizes: Int64s) -> list[tuple[int, int]]:
    """Ranges of indexes: each needs about `_CHUNK_BYTES` of memory at most, over at most `_CHUNK_SPAN` of the log.

    A record that is far from the one before it needs a page more.
    """
    if not offsets.size:
        return []
    needed = sizes + np.minimum(np.diff(offsets, prepend=offsets[0]), mmap.PAGESIZE)
    chunks = (np.cumsum(needed) - needed) // _CHUNK_BYTES
    spans = (offsets - offsets[0]) // _CHUNK_SPAN
    bounds = (np.flatnonzero((np.diff(chunks) > 0) | (np.diff(spans) > 0)) + 1).tolist()
    return list(zip([0, *bounds], [*bounds, offsets.size], strict=True))


def read_chunk(segment: SegmentFile, offsets: Int64s, sizes: Int64s, gap: int) -> RecordChunk | None:
    """The records to which units lead, up to the first unit that leads to no record of its size.

    Args:
        segment: The segment that has the records.
        offsets: The commit log offsets of the units, ascending; at least one.
        sizes: Their sizes, in bytes.
        gap: Bytes between two records that are read over.

    Returns:
        The records; None if the segment ends before them.

    """
    base = int(offsets[0])
    buffer = _memory(int((offsets + sizes).max()) - base)
    starts, stops = coalesced(offsets, sizes, gap)
    if not _read_into(buffer, base, segment, starts.tolist(), stops.tolist()):
        return None
    frames = new_frames(offsets.size)
    count = read_frames_at(buffer, offsets - base, sizes, base, buffer.size, frames)
    return RecordChunk(buffer, base, frames[:count])


def records_of_units(
    records: RecordLookup, offsets: Int64s, sizes: Int64s, gap: int
) -> Iterator[tuple[RecordChunk, slice]]:
    """The records of units of any segments, and the indexes of the units; units that lead to no record are left out.

    If very many units of a chunk lead to no record, the rest of them is left out, too.

    Args:
        records: The records of the store.
        offsets: The commit log offsets of the units, ascending.
        sizes: Their sizes, in bytes.
        gap: Bytes between two records that are read over.

    """
    for segment in records.segments:
        first, last = np.searchsorted(offsets, (segment.base, segment.base + segment.size)).tolist()
        while first < last and offsets[last - 1] + sizes[last - 1] > segment.base + segment.size:
            last -= 1
        for start, stop in chunk_bounds(offsets[first:last], sizes[first:last]):
            reached, astray = first + start, 0
            while reached < first + stop and astray < _MOST_ASTRAY:
                which = slice(reached, first + stop)
                chunk = read_chunk(segment, offsets[which], sizes[which], gap)
                if chunk is None:
                    break
                if chunk.frames.size:
                    yield chunk, slice(reached, reached + chunk.frames.size)
                reached += chunk.frames.size + 1
                astray += 1


def _memory(size: int) -> Bytes:
    """Memory for `size` bytes, of which only the pages that are written to are provided."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)


def _read_into(buffer: Bytes, base: int, segment: SegmentFile, starts: list[int], stops: list[int]) -> bool:
    """Read ranges of the log to their places in `buffer`, whose first byte is at `base`; False if bytes are missing."""
    memory = buffer.data
    with FileReader(segment.location) as file:
        file.announce([start - segment.base for start in starts], [stop - segment.base for stop in stops])
        for start, stop in zip(starts, stops, strict=True):
            if not file.read_into(memory[start - base : stop - base], start - segment.base):
                return False
    return True
