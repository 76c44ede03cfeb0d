"""Ranges of bytes of one segment."""

from __future__ import annotations

import os

import numpy as np

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Bytes
from spark_mq.io.file_reader import OpenFile
from spark_mq.io.remote_file import READ_SIZE
from spark_mq.store.log.commit_log import Segment


class SegmentSource(OpenFile):
    """An open segment, of which any range can be read. `bytes_read` counts the bytes that were read.

    An array that `read` returned is valid until the next `read`, which uses the same memory. A segment over a network
    is read in large pieces, and the last one is kept: reads that follow one another, or overlap, get each byte once.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.bytes_read = 0
        self._piece, self._piece_at = b"", 0
        self._memory: Bytes = np.empty(0, np.uint8)
        super().__init__(segment.location, segment.size)

    def read(self, position: int, length: int) -> Bytes:
        """The `length` bytes from `position` on; fewer if the segment ends before."""
        length = min(length, self.segment.size - position)
        data = self._read_local(position, length) if self._remote is None else self._read_remote(position, length)
        self.bytes_read += data.size
        if data.size < length:
            raise CorruptLogError(
                f"{self.segment.location}: the file ended at {position + data.size}, it had {self.segment.size} bytes "
                "when the store was listed; run again if the broker has just removed it"
            )
        return data

    def _read_local(self, position: int, length: int) -> Bytes:
        if self._memory.size < length:
            self._memory = np.empty(length, np.uint8)
        data = self._memory[:length]
        done = 0
        while done < length:
            count = os.preadv(self._local, [data[done:].data], position + done)
            if count == 0:
                break
            done += count
        return data[:done]

    def _read_remote(self, position: int, length: int) -> Bytes:
        assert self._remote is not None
        kept = position - self._piece_at
        if not 0 <= kept <= len(self._piece):
            self._piece, self._piece_at, kept = b"", position, 0
        if kept + length > len(self._piece):
            rest = self._piece[kept:]
            start = position + len(rest)
            wanted = max(length - len(rest), min(READ_SIZE, self.segment.data_end - start))
            self._piece, self._piece_at, kept = rest + self._remote.read_range(start, wanted), position, 0
        return np.frombuffer(self._piece, np.uint8)[kept : kept + length]
