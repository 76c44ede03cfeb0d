"""Ranges of bytes of a store's files, for look-ups that read a few short ranges.

Bytes of a local file are not cached; only files are kept open. `remote_file` has the rules for a file over a network.
`store.log.segment_source` reads a whole segment in order.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from types import TracebackType
from typing import Self

from spark_mq.errors import StoreChangedError
from spark_mq.io.location import Location
from spark_mq.io.remote_file import RemoteFile

_MAX_OPEN_FILES = 64


class OpenFile:
    """A file that is open for reading: through the operating system if it is local, else through its filesystem."""

    def __init__(self, location: Location) -> None:
        self._local = -1
        self._remote: RemoteFile | None = None
        if location.is_local:
            self._local = os.open(location.path, os.O_RDONLY)
        else:
            self._remote = location.open_remote()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read_into(self, memory: memoryview, position: int) -> bool:
        """Fill `memory` with the bytes from `position` on; False if the file ends before."""
        if self._remote is not None:
            data = self._remote.read(position, len(memory))
            memory[: len(data)] = data
            return len(data) == len(memory)
        while memory:
            count = os.preadv(self._local, [memory], position)
            if count == 0:
                return False
            memory, position = memory[count:], position + count
        return True

    def close(self) -> None:
        """Close the file."""
        if self._local >= 0:
            os.close(self._local)
            self._local = -1
        self._remote = None


class FileReader(OpenFile):
    """One open file, of which any range can be read. `bytes_read` counts the bytes that were read.

    Raises:
        StoreChangedError: The file does not exist any more.
    """

    def __init__(self, location: Location) -> None:
        self.bytes_read = 0
        try:
            super().__init__(location)
        except FileNotFoundError as error:
            raise StoreChangedError(f"{location} was removed since the store was opened; open it again") from error

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
    """The open files of a store. Above 64 files, the least recently used one is closed."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, FileReader] = OrderedDict()
        self._closed_bytes = 0

    @property
    def bytes_read(self) -> int:
        """Bytes that were read from all files, those that are closed included."""
        return self._closed_bytes + sum(reader.bytes_read for reader in self._open.values())

    def read(self, location: Location, position: int, length: int) -> bytes:
        """The `length` bytes of the file at `location`, from `position` on; fewer if the file ends before.

        Raises:
            StoreChangedError: The file does not exist any more.
        """
        reader = self._open.get(location.path)
        if reader is None:
            reader = self._open[location.path] = FileReader(location)
            if len(self._open) > _MAX_OPEN_FILES:
                self._close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(location.path)
        return reader.read(position, length)

    def close(self) -> None:
        """Close all files. A later `read` opens its file again."""
        while self._open:
            self._close(self._open.popitem()[1])

    def _close(self, reader: FileReader) -> None:
        self._closed_bytes += reader.bytes_read
        reader.close()
