"""A file on a filesystem over a network: few and large reads, and bytes that were read are kept for a while.

A request for 20 bytes takes as long as one for 256 KiB. So a read gets the block around it, and a small file whole.
Reads that follow one another get more with each request, up to 2 MiB.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from spark_mq.errors import SparkMqError, StoreChangedError
from spark_mq.io.s3 import shown

if TYPE_CHECKING:
    from spark_mq.io.location import Location
    from spark_mq.io.storage import NetworkStorage

READ_SIZE: Final = 8 << 20
"""The number of bytes of a request for a part of a long range."""

_BLOCK: Final = 256 << 10
_SMALL_FILE: Final = 1 << 20
_MOST_BLOCKS: Final = 8
_KEPT_BLOCKS: Final = 16
_REQUESTS_TOGETHER: Final = 8
_MOST_TOGETHER: Final = 32
"""Files that are opened at the same time: half of those that a snapshot keeps open."""


def read_together(ranges: Sequence[tuple[Location, int, int]]) -> None:
    """Read ranges of several files of a snapshot at the same time: what is read of them next is there already.

    A file is opened once, and its ranges are read one after the other, as many as are certainly kept. An error is left
    to the next read, and files that no snapshot keeps open are not read.

    Args:
        ranges: A file, the position of the first byte, and the position after the last one.
    """

    def read(parts: Sequence[tuple[Location, int, int]]) -> None:
        with suppress(OSError, SparkMqError):
            file = parts[0][0].open_remote()
            for _, start, stop in parts[: _KEPT_BLOCKS // 2]:  # a short range is in two blocks at most
                file.read(start, stop - start)

    files: dict[str, list[tuple[Location, int, int]]] = {}
    for location, start, stop in ranges:
        if location.stays_open and (location.path in files or len(files) < _MOST_TOGETHER):
            files.setdefault(location.path, []).append((location, start, stop))
    with ThreadPoolExecutor(_REQUESTS_TOGETHER) as threads:
        list(threads.map(read, files.values()))


class RemoteFile:
    """One open file. `size` is that when the file was listed or opened, if it is not given."""

    def __init__(self, storage: NetworkStorage, path: str, size: int | None = None) -> None:
        """Raise `FileNotFoundError` if the file does not exist, `StorageError` if it cannot be opened."""
        self._storage, self._path = storage, path
        self._file = storage.open(path, size)
        self.size = self._file.size
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._next = -1
        """The block after those that the last request got: a read of it goes on where that request ended."""
        self._count = 1
        self._lock = threading.Lock()

    def read(self, position: int, length: int) -> bytes:
        """The `length` bytes from `position` on; fewer only if the file ends before. Blocks are kept."""
        stop = min(position + length, self.size)
        if position >= stop:
            return b""
        with self._lock:
            return self._read(position, stop)

    def _read(self, position: int, stop: int) -> bytes:
        first, last = position // _BLOCK, (stop - 1) // _BLOCK
        missing = [block for block in range(first, last + 1) if block not in self._blocks]
        if missing and last - first >= _KEPT_BLOCKS:
            return self._request(position, stop - position)
        if missing:
            self._fetch(missing[0], missing[-1] + 1)
        parts = []
        for block in range(first, last + 1):
            self._blocks.move_to_end(block)
            parts.append(self._blocks[block])
        while len(self._blocks) > _KEPT_BLOCKS:
            self._blocks.popitem(last=False)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        start = position - first * _BLOCK
        return data[start : start + stop - position]

    def read_range(self, position: int, length: int) -> bytes:
        """The `length` bytes from `position` on, by one request; fewer only if the file ends before.

        Only a small file is kept.
        """
        if self.size <= _SMALL_FILE:
            return self.read(position, length)
        length = min(length, self.size - position)
        return self._request(position, length) if length > 0 else b""

    def _request(self, position: int, length: int) -> bytes:
        def request() -> bytes:
            data = self._file.read(position, length)
            if len(data) < length:
                raise OSError(f"only {len(data)} of {length} bytes at {position} arrived")
            return data

        try:
            return self._storage.asked(self._path, request)
        except FileNotFoundError:
            name = shown(self._storage.uri(self._path))
            raise StoreChangedError(f"{name} was removed while it was read; read the store again") from None

    def _fetch(self, start: int, stop: int) -> None:
        """Get the blocks from `start` to `stop` (not included), and more if reads follow one another."""
        if self.size <= _SMALL_FILE:
            start, stop = 0, -(-self.size // _BLOCK)
        elif start == self._next:
            self._count = min(2 * self._count, _MOST_BLOCKS)
            stop = max(stop, min(start + self._count, -(-self.size // _BLOCK)))
        else:
            self._count = stop - start
        data = memoryview(self._request(start * _BLOCK, min((stop - start) * _BLOCK, self.size - start * _BLOCK)))
        for block in range(start, stop):
            at = (block - start) * _BLOCK
            self._blocks[block] = bytes(data[at : at + _BLOCK])
        self._next = stop
