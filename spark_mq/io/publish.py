"""Writing files whole, and removing folders: a file under its final name is complete, or it does not exist.

On a local filesystem the file is written under a temporary name, flushed to the disk and renamed; then its folder is
flushed. Elsewhere the content is assembled first and written once, the length is checked, and a write that fails is
repeated: under a temporary name on HDFS, which renames in one step, and under the final name on object stores, where a
rename is a copy. The content of a large file is assembled in a temporary file: a segment of 1 GiB might not fit into
memory. S3 replaces an existing file in one step.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from spark_mq.errors import SparkMqError, StorageError
from spark_mq.io.file_reader import FileReader
from spark_mq.io.local import flush_to_disk, make_folders, start_flush
from spark_mq.io.location import Location

_MAX_IN_MEMORY = 64 << 20
_FLUSHED_EARLY = 1 << 20
"""Bytes of a write that goes to the disk while the next one is prepared."""
_COPIED_TOGETHER = 4 << 20
_LATEST_FILE_TIME = (1 << 32) * 1000
"""Milliseconds; about the year 2106. A store time may be any number, a file's modification time may not."""


class FileInParts(Protocol):
    """A file that is being written."""

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Write bytes at a position; positions without bytes become zeros."""


def copy_bytes(source: FileReader, target: FileInParts, start: int, stop: int) -> None:
    """Copy a range of a file to the same position of another one."""
    for position in range(start, stop, _COPIED_TOGETHER):
        target.write(position, source.read(position, min(_COPIED_TOGETHER, stop - position)))


def publish(
    location: Location, content: bytes | memoryview, size: int | None = None, modified_millis: int | None = None
) -> None:
    """Write a file of `size` bytes, whole or not at all: `content`, followed by zeros.

    Missing folders are created. A file that exists is replaced.

    Args:
        size: The length of the file in bytes, by default that of `content`. On a local filesystem the zeros after
            `content` can be a hole.
        modified_millis: The file's modification time in milliseconds since the epoch, limited to the years 1970 to
            2106. None keeps the time of writing. Only local filesystems can set a time.
    """
    with published(location, memoryview(content).nbytes if size is None else size, modified_millis) as file:
        file.write(0, content)


@contextmanager
def published(location: Location, size: int, modified_millis: int | None = None) -> Iterator[FileInParts]:
    """A context for a file of `size` bytes that is written in parts, whole or not at all: it appears at the end.

    An error in the context leaves the file as it was. Arguments and errors are those of `publish`.
    """
    if location.is_local:
        with _published_locally(location.path, size, modified_millis) as file:
            yield file
        return
    with _assembled(size) as content:
        yield content
        location.parent.make_folder()
        if location.renames:
            temporary = location.parent / _temporary_name(location.name)
            try:
                _write(location, temporary, content.data, size)
                rename(temporary, location)
            except BaseException:
                with suppress(OSError, StorageError):
                    temporary.delete()
                raise
        else:
            _write(location, location, content.data, size)


def _write(location: Location, file: Location, content: bytearray | mmap.mmap, size: int) -> None:
    """Write `file`, which is `location` or becomes it."""
    file.over_network().write(file.path, content)
    stored = file.now().info().size
    if stored != size:
        raise SparkMqError(f"{location}: wrote {size} bytes, but the filesystem has {stored}; write the file again")


def rename(source: Location, target: Location) -> None:
    """Rename a file or folder, in one step. Missing folders are created. A file is replaced, a folder is not."""
    target.parent.make_folder()
    source.storage.rename(source.path, target.path)
    if target.is_local:
        flush_to_disk(target.parent.path)


def remove_folder(folder: Location) -> None:
    """Remove a folder and everything in it; if it is a symbolic link, only the link.

    Another process can remove files of the folder at the same time.
    """
    folder.storage.delete_folder(folder.path)


def discard_folder(folder: Location) -> None:
    """Remove a folder as far as that is possible; it need not exist."""
    if folder.is_local:
        shutil.rmtree(folder.path, ignore_errors=True)
        return
    with suppress(OSError, StorageError):
        remove_folder(folder)


def _temporary_name(name: str) -> str:
    return f".{name}.{uuid.uuid4().hex}.tmp"


@contextmanager
def _assembled(size: int) -> Iterator[_Buffer]:
    """A context for the content of a file: in memory, or in a temporary file if it is large."""
    if size <= _MAX_IN_MEMORY:
        yield _Buffer(bytearray(size))
        return
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, and a crash later
        # The mapping ends with its last user.
        yield _Buffer(mmap.mmap(file.fileno(), size))


class _Buffer:
    """The content of a file that is not written yet."""

    def __init__(self, data: bytearray | mmap.mmap) -> None:
        self.data = data

    def write(self, position: int, data: bytes | memoryview) -> None:
        self.data[position : position + len(data)] = data


@dataclass(frozen=True)
class _OpenFile:
    descriptor: int

    def write(self, position: int, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self.descriptor, rest, position)
            if written >= _FLUSHED_EARLY:
                start_flush(self.descriptor, position, written)
            position += written
            rest = rest[written:]


@contextmanager
def _published_locally(path: str, size: int, modified_millis: int | None) -> Iterator[FileInParts]:
    folder = os.path.dirname(path)
    make_folders(folder)
    temporary = os.path.join(folder, _temporary_name(os.path.basename(path)))
    try:
        with open(temporary, "xb", buffering=0) as file:
            yield _OpenFile(file.fileno())
            file.truncate(size)
            if modified_millis is not None:
                modified = min(max(modified_millis, 0), _LATEST_FILE_TIME) * 1_000_000
                os.utime(file.fileno(), ns=(modified, modified))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    flush_to_disk(folder)
