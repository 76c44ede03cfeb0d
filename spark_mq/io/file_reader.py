"""Ranges of bytes of a store's files, for look-ups that read a few short ranges.

Bytes of a local file are not cached; only files are kept open. `remote_file` has the rules for a file over a network.
`store.log.commit_log` reads a whole segment in order.
"""

from __future__ import annotations

import errno
import os
import resource
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Self, TypeVar

from spark_mq.errors import SparkMqError, StoreChangedError
from spark_mq.io.local import open_regular
from spark_mq.io.location import Location
from spark_mq.io.remote_file import KEPT_BLOCKS, REQUESTS_TOGETHER, RemoteFile

_LEAST_OPEN_FILES, _MOST_OPEN_FILES = 64, 1024
_SAMPLE = 8

_Item = TypeVar("_Item")


def sample(items: Sequence[_Item]) -> Sequence[_Item]:
    """A few of the items, at regular distances: those that are looked for in the page cache before an announcement."""
    return items[:: max(len(items) // _SAMPLE, 1)]


class OpenFile:
    """A file that is open for reading: through the operating system if it is local, else through its filesystem."""

    def __init__(self, location: Location, size: int | None = None) -> None:
        """Open the file; `size` is that of the file or of its used part, if it is known: then nobody is asked for it.

        A file over a network that does not exist any more is then an error of the first read, `StoreChangedError`.
        """
        self._local = -1
        self._remote: RemoteFile | None = None
        if location.is_local:
            self._local = open_regular(location.path)
        else:
            self._remote = location.open_remote(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_into(self, memory: memoryview, position: int) -> int:
        """Fill `memory` with the bytes from `position` on; returns their number, less if the file ends before."""
        if self._remote is not None:
            data = self._remote.read(position, len(memory))
            memory[: len(data)] = data
            return len(data)
        done = 0
        while done < len(memory) and (count := os.preadv(self._local, [memory[done:]], position + done)):
            done += count
        return done

    def announce(self, starts: Sequence[int], stops: Sequence[int]) -> None:
        """Ask the operating system to read ranges of the file, if some of them are not in its page cache.

        It then reads many of them at a time, while a call that returns bytes waits for each. Nothing else changes, and
        nothing is done for a file that is not local.
        """
        if self._remote is not None or not starts or not hasattr(os, "posix_fadvise"):
            return
        if all(self.is_cached(position) for position in sample(starts)):
            return
        for start, stop in zip(starts, stops, strict=True):
            os.posix_fadvise(self._local, start, stop - start, os.POSIX_FADV_WILLNEED)

    def is_cached(self, position: int) -> bool:
        """Whether the byte can be read without waiting for a disk; True if the operating system does not tell."""
        if self._remote is not None or not hasattr(os, "RWF_NOWAIT"):
            return True
        try:
            os.preadv(self._local, [bytearray(1)], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # not every filesystem answers
        return True

    def next_data(self, position: int) -> int:
        """The position of the first byte from `position` on that is not in a hole of a sparse local file; else it."""
        if self._remote is not None or not hasattr(os, "SEEK_DATA"):
            return position
        try:
            return os.lseek(self._local, position, os.SEEK_DATA)
        except OSError as error:
            return os.fstat(self._local).st_size if error.errno == errno.ENXIO else position

    @property
    def descriptor(self) -> int | None:
        """The file's descriptor of the operating system; None if the file is not local."""
        return None if self._remote is not None else self._local

    @property
    def allocated(self) -> int | None:
        """Bytes of the disk that the file occupies; None if the file is not local. A sparse file occupies less."""
        return None if self._remote is not None else os.fstat(self._local).st_blocks * 512

    def close(self) -> None:
        """Close the file."""
        if self._local >= 0:
            os.close(self._local)
            self._local = -1
        self._remote = None


class FileReader(OpenFile):
    """One open file, of which any range can be read. `bytes_read` counts the bytes that were read."""

    def __init__(self, location: Location) -> None:
        self.bytes_read = 0
        try:
            super().__init__(location)
        except FileNotFoundError as error:
            raise StoreChangedError(f"{location} was removed since the store was opened: try again") from error

    def read(self, position: int, length: int) -> bytes:
        """The `length` bytes from `position` on; fewer if the file ends before."""
        data = self._read_local(position, length) if self._remote is None else self._remote.read(position, length)
        self.bytes_read += len(data)
        return bytes(data)

    def _read_local(self, position: int, length: int) -> bytes:
        data = os.pread(self._local, length, position)
        while len(data) < length and (more := os.pread(self._local, length - len(data), position + len(data))):
            data += more
        return data


class FileReaders:
    """The open files of a store. Above half of what a process may open, the least recently used one is closed."""

    def __init__(self) -> None:
        may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(max(may_open // 2, _LEAST_OPEN_FILES), _MOST_OPEN_FILES)
        self._open: OrderedDict[str, FileReader] = OrderedDict()
        self._closed_bytes = 0

    @property
    def bytes_read(self) -> int:
        """Bytes that were read from all files, those that are closed included."""
        return self._closed_bytes + sum(reader.bytes_read for reader in self._open.values())

    def read(self, location: Location, position: int, length: int) -> bytes:
        """The `length` bytes of the file at `location`, from `position` on; fewer if the file ends before."""
        return self.reader(location).read(position, length)

    def announce(self, ranges: Sequence[tuple[Location, int, int]]) -> None:
        """Ask the operating system to read ranges of local files: a file, `start` and `stop` for each."""
        if ranges and ranges[0][0].is_local and not self.are_cached(sample(ranges)):
            for location, start, stop in ranges:
                self.reader(location).announce([start], [stop])

    def are_cached(self, ranges: Iterable[tuple[Location, int, int]]) -> bool:
        """Whether the first bytes of the ranges can be read without waiting for a disk, as in `OpenFile.is_cached`."""
        return all(self.reader(location).is_cached(start) for location, start, _ in ranges)

    def reader(self, location: Location) -> FileReader:
        """The open file at `location`, for a short time: another call can close it."""
        reader = self._open.get(location.path)
        if reader is None:
            reader = self._open[location.path] = FileReader(location)
            if len(self._open) > self._most:
                self._close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(location.path)
        return reader

    def close(self) -> None:
        """Close all files. A later `read` opens its file again."""
        while self._open:
            self._close(self._open.popitem()[1])

    def _close(self, reader: FileReader) -> None:
        self._closed_bytes += reader.bytes_read
        reader.close()


_MOST_TOGETHER: Final = 32
"""Files that are opened at the same time: half of those that a snapshot keeps open."""


def read_together(ranges: Sequence[tuple[Location, int, int]]) -> None:
    """Read ranges of several files of a snapshot at the same time: what is read of them next is there already.

    A range is a file, the position of the first byte, and the position after the last one. A file is opened once, and
    its ranges are read one after the other, as many as are certainly kept. An error is left to the next read, and files
    that no snapshot keeps open are not read.
    """

    def read(parts: Sequence[tuple[Location, int, int]]) -> None:
        with suppress(OSError, SparkMqError):
            file = parts[0][0].open_remote()
            for _, start, stop in parts[: KEPT_BLOCKS // 2]:  # a short range is in two blocks at most
                file.read(start, stop - start)

    from concurrent.futures import ThreadPoolExecutor

    files: dict[str, list[tuple[Location, int, int]]] = {}
    for location, start, stop in ranges:
        if location.stays_open and (location.path in files or len(files) < _MOST_TOGETHER):
            files.setdefault(location.path, []).append((location, start, stop))
    with ThreadPoolExecutor(REQUESTS_TOGETHER) as threads:
        list(threads.map(read, files.values()))
