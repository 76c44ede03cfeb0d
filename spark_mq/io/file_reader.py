"""Bytes of a store's files by range, for look-ups that read little and here and there.

Nothing is kept but open files. `segment_source` is for reading a whole segment in order.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from types import TracebackType
from typing import Self

from pyarrow import NativeFile

from spark_mq.errors import StoreChangedError
from spark_mq.io.location import Location

_MAX_OPEN_FILES = 64


class OpenFile:
    """A file that is open for reading, by the operating system where it can, else by its filesystem."""

    def __init__(self, location: Location) -> None:
        self._local = -1
        self._remote: NativeFile | None = None
        if location.is_local:
            self._local = os.open(location.path, os.O_RDONLY)
        else:
            self._remote = location.filesystem.open_input_file(location.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._local >= 0:
            os.close(self._local)
            self._local = -1
        if self._remote is not None:
            self._remote.close()
            self._remote = None


class FileReader(OpenFile):
    """One open file, read here and there. `bytes_read` counts what was read."""

    def __init__(self, location: Location) -> None:
        self.bytes_read = 0
        try:
            super().__init__(location)
        except FileNotFoundError as error:
            raise StoreChangedError(f"{location} was removed since the store was opened; open it again") from error

    def read(self, position: int, length: int) -> bytes:
        """The `length` bytes from `position` on, fewer where the file ends."""
        data = self._read_local(position, length) if self._remote is None else self._remote.read_at(length, position)
        self.bytes_read += len(data)
        return bytes(data)

    def _read_local(self, position: int, length: int) -> bytes:
        data = os.pread(self._local, length, position)
        while len(data) < length and (more := os.pread(self._local, length - len(data), position + len(data))):
            data += more
        return data


class FileReaders:
    """The files of a store that are open; the ones not used for longest are closed."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, FileReader] = OrderedDict()
        self._closed_bytes = 0

    @property
    def bytes_read(self) -> int:
        """Bytes read through all of them."""
        return self._closed_bytes + sum(reader.bytes_read for reader in self._open.values())

    def read(self, location: Location, position: int, length: int) -> bytes:
        """The bytes of one file; see `FileReader.read`.

        Raises `StoreChangedError` where the file is gone.
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
        """Close all files; they are opened again where something is read."""
        while self._open:
            self._close(self._open.popitem()[1])

    def _close(self, reader: FileReader) -> None:
        self._closed_bytes += reader.bytes_read
        reader.close()
