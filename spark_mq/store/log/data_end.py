"""Where the data of a file end: a broker creates its files in advance, filled with zeros."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from spark_mq.io.file_reader import FileReader
from spark_mq.io.local import open_regular
from spark_mq.io.location import Location
from spark_mq.io.remote_file import READ_SIZE

_ZERO_BLOCK: Final = bytes(READ_SIZE)
_MOST_REQUESTS: Final = 8
"""Requests for parts of one remote file that are sent at the same time: zeros take long to arrive, too."""


def find_data_end(file: Location, size: int) -> int:
    """The position after which the file contains only zeros; 0 for a file of zeros.

    The holes of a sparse local file are skipped. Other zeros are read from the end, block by block. If the first block
    of a file on S3 is zeros, the file's ETag can tell that all others are zeros, too.
    """
    blocks = _local_blocks(file, size) if file.is_local else _remote_blocks(file, size)
    for start, block in blocks:
        if block != _ZERO_BLOCK[: len(block)]:
            return start + len(block.rstrip(b"\0"))
        if start and start + len(block) == size and file.tells_only_zeros(size):
            return 0
    return 0


def _local_blocks(file: Location, size: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of a local file with their positions, from the end on."""
    end = _end_of_extents(file.path, size)
    with FileReader(file) as reader:
        while end > 0:
            start = max(0, end - READ_SIZE)
            yield start, reader.read(start, end - start)
            end = start


def _remote_blocks(file: Location, size: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of a file over a network with their positions, from the end on. The first answer can be the last."""
    reader, end, count = file.open_remote(), size, 1
    with ThreadPoolExecutor(_MOST_REQUESTS) as threads:
        while end > 0:
            stops = [end - READ_SIZE * number for number in range(count) if end > READ_SIZE * number]
            starts = [max(0, stop - READ_SIZE) for stop in stops]
            lengths = [stop - start for start, stop in zip(starts, stops, strict=True)]
            yield from zip(starts, threads.map(reader.read_range, starts, lengths), strict=True)
            end, count = starts[-1], min(2 * count, _MOST_REQUESTS)


def _end_of_extents(path: str, size: int) -> int:
    """The end of the last part of a local file that is not a hole."""
    if not hasattr(os, "SEEK_DATA"):
        return size
    with open(open_regular(path), "rb") as file:
        end = 0
        while end < size:
            try:
                data = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left
                return end
            end = os.lseek(file.fileno(), data, os.SEEK_HOLE)
        return end
