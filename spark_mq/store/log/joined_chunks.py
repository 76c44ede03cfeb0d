"""Chunks of records that damage separates, joined into larger ones: each chunk costs its readers a millisecond."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from spark_mq.format.array_types import Bytes
from spark_mq.format.kernels.frame_dtype import FRAME_DTYPE
from spark_mq.format.kernels.frames import Frames, new_frames
from spark_mq.format.record import MIN_RECORD_SIZE
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.record_reader import CHUNK_SIZE, RecordChunk

_SMALL = 256 << 10
"""Chunks with fewer bytes of records are joined."""
_INDICES = [name for name in FRAME_DTYPE.names or () if FRAME_DTYPE[name] == np.int64]
"""The fields of a frame that are indices in the buffer; the others are lengths and flags."""


def joined_chunks(parts: Iterable[RecordChunk | CorruptRange]) -> Iterator[RecordChunk | list[CorruptRange]]:
    """The same records in the same order, in fewer chunks, each of which is valid until the next part is read.

    The ranges of damage come before the chunk that has the records around them, in the order of the log.
    """
    joined, damage = _JoinedChunk(), list[CorruptRange]()
    for part in parts:
        if isinstance(part, CorruptRange):
            damage.append(part)
            continue
        frames = np.asarray(part.frames)  # single records of a record array are slow
        start, (last, size) = frames.item(0)[0], frames.item(-1)[:2]
        is_small = last + size - start < _SMALL
        if not (is_small and joined.has_room(part.base + last + size)):
            if damage:
                yield damage
                damage = []
            yield from joined.taken()
        if is_small:
            joined.add(part, start, last + size)
        else:
            yield part
    if damage:
        yield damage
    yield from joined.taken()


class _JoinedChunk:
    """Copies of chunks, at the same distances from each other as in the log."""

    def __init__(self) -> None:
        self._buffer: Bytes = np.empty(0, np.uint8)
        self._frames: Frames = new_frames(0)
        self._base = 0
        self._counts: list[int] = []
        self._shifts: list[int] = []
        self._count = 0

    def has_room(self, stop: int) -> bool:
        """Whether a chunk that ends at a commit log offset can be added."""
        return not self._count or stop <= self._base + CHUNK_SIZE

    def add(self, part: RecordChunk, start: int, stop: int) -> None:
        """Add the chunk, whose records are from `start` to `stop` in its buffer."""
        if not self._buffer.size:
            self._buffer, self._frames = np.empty(CHUNK_SIZE, np.uint8), new_frames(CHUNK_SIZE // MIN_RECORD_SIZE + 1)
        if not self._count:
            self._base = part.base + start
        shift, count = part.base - self._base, part.frames.size
        self._buffer[start + shift : stop + shift] = part.buffer[start:stop]
        np.asarray(self._frames)[self._count : self._count + count] = part.frames
        self._counts.append(count)
        self._shifts.append(shift)
        self._count += count

    def taken(self) -> Iterator[RecordChunk]:
        """The chunk, unless nothing was added; what is added next begins another one."""
        if self._count:
            frames, shifts = self._frames[: self._count], np.repeat(self._shifts, self._counts)
            for name in _INDICES:
                setattr(frames, name, getattr(frames, name) + shifts)
            self._counts, self._shifts, self._count = [], [], 0
            yield RecordChunk(self._buffer, frames, self._base)
