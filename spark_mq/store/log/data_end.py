"""Where the data of a file end: a broker creates its files in advance, filled with zeros."""

from __future__ import annotations

import os

from spark_mq.io.location import Location

_ZERO_BLOCK = bytes(4 << 20)


def find_data_end(file: Location, size: int) -> int:
    """The position after which the file contains only zeros; 0 for a file of zeros.

    The holes of a sparse local file are skipped. Other zeros are read from the end, block by block.
    """
    end = _end_of_extents(file.path, size) if file.is_local else size
    with file.filesystem.open_input_file(file.path) as stream:
        while end > 0:
            start = max(0, end - len(_ZERO_BLOCK))
            block = stream.read_at(end - start, start)
            if block != _ZERO_BLOCK[: len(block)]:
                return start + len(block.rstrip(b"\0"))
            end = start
    return 0


def _end_of_extents(path: str, size: int) -> int:
    """The end of the last part of a local file that is not a hole."""
    if not hasattr(os, "SEEK_DATA"):
        return size
    with open(path, "rb") as file:
        end = 0
        while end < size:
            try:
                data = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left
                return end
            end = os.lseek(file.fileno(), data, os.SEEK_HOLE)
        return end
